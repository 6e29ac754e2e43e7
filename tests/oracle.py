"""The oracle's models as `.cmf` files: float32, canonical names, the header that the hub's config amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cmfspec
from cmfspec.engine import Model, load
from cmfspec.format.blueprint import Blueprint, Entry, masks_section
from cmfspec.format.build import render
from cmfspec.layout import DTYPE_IDS
from cmfspec.tools.config import model_of
from cmfspec.tools.names import plan_of
from cmfspec.tools.pack import values
from cmfspec.tools.safetensors import Weights
from cmfspec.tools.unpackable import json_file
from golden.oracle import HOME as IN_THE_TREE
from tests.shared import SHARED

ORACLE = SHARED / "oracle"
MODELS = ORACLE / "models" if ORACLE.is_dir() else IN_THE_TREE  # all of them, or the few
FAMILIES = sorted(path.name for path in MODELS.iterdir() if path.is_dir())


def needed(path: Path) -> Path:
    """The path, if it is there; the test is skipped if not."""
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


Tensors = dict[str, NDArray[np.float32]]


@lru_cache(maxsize=32)
def blueprint(family: str) -> Blueprint:
    """The file of a family: what `pack` would write of it, but for the encoding, which is float32 throughout."""
    folder = needed(MODELS / family)
    config = model_of(json_file(folder / "config.json"))
    arch = {**config.arch, **({"mtp": {"num_layers": config.mtp}} if config.mtp else {})}
    with Weights(folder) as weights:
        cuts = plan_of(folder, weights, config.arch, bool(config.mtp)).cuts
        tensors = {cut.name: values(weights, cut) for cut in cuts}
    return Blueprint({"format": "cmf", "version": 2, "arch": arch, "quant_type": "F32"}, entries(tensors))


def entries(tensors: Tensors) -> tuple[Entry, ...]:
    """As float32 entries of a file."""
    return tuple(
        Entry(name, DTYPE_IDS["f32"], value.shape, np.ascontiguousarray(value, "<f4").tobytes())
        for name, value in tensors.items()
    )


def arrays(plan: Blueprint) -> Tensors:
    """The tensors of a file of float32 entries."""
    return {entry.name: np.frombuffer(entry.payload, "<f4").reshape(entry.shape) for entry in plan.tensors}


def edited(plan: Blueprint, changes: Tensors | None = None, drop: tuple[str, ...] = (), **arch: Any) -> Blueprint:
    """The file with other tensors or other fields; a field given as None is left out."""
    tensors = {name: value for name, value in {**arrays(plan), **(changes or {})}.items() if name not in drop}
    fields = {key: value for key, value in {**plan.header["arch"], **arch}.items() if value is not None}
    return replace(plan, header={**plan.header, "arch": fields}, tensors=entries(tensors))


def masked(plan: Blueprint, **masks: Mapping[str, Any]) -> Blueprint:
    """The file with these masks: per name the bits of ffn, heads, gates and experts, all set where none are given."""
    arch = plan.header["arch"]
    layers, moe = arch["num_layers"], arch.get("moe") or {}
    sizes = {
        "ffn": (layers, arch["intermediate_size"]),
        "heads": (layers, arch["num_attention_heads"]),
        "gates": (1, layers),
        "experts": (layers, moe.get("num_experts", 0)),
    }
    records, blobs = [], []
    for name, bits in masks.items():
        rows = {key: np.reshape(bits.get(key, np.ones(size, bool)), size) for key, size in sizes.items()}
        areas = [rows[key] for key in sizes if key != "experts" or "experts" in bits]
        blobs.append(b"".join(np.packbits(area, axis=1, bitorder="little").tobytes() for area in areas))
        records.append({"name": name, **({"has_expert_fields": True} if "experts" in bits else {})})
    return replace(plan, masks=masks_section({"default_task": next(iter(masks)), "masks": records}, blobs))


def run(plan: Blueprint) -> Model:
    """The model of a file."""
    return load(cmfspec.open(render(plan)))


@lru_cache(maxsize=32)
def model(family: str) -> Model:
    """The model of a family."""
    return run(blueprint(family))


def stored(name: str) -> dict[str, NDArray[Any]]:
    """A file of answers about masks or skills."""
    with np.load(needed(ORACLE / "masks" / name)) as file:
        return {key: file[key] for key in file.files}


@lru_cache(maxsize=32)
def answers(family: str) -> dict[str, NDArray[Any]]:
    """What the oracle says about a family."""
    with np.load(needed(MODELS / family / "oracle.npz")) as file:
        return {key: file[key] for key in file.files}
