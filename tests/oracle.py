"""The oracle's models as `.cmf` files: float32, canonical names, the header that the hub's config amounts to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cmfspec
from cmfspec.engine import Model, load
from cmfspec.format.build import Blueprint, Entry, masks_section, render
from cmfspec.layout import DTYPE_IDS
from tests.shared import SHARED

ORACLE = SHARED / "oracle"
MODELS = ORACLE / "models"
FAMILIES = sorted(path.name for path in MODELS.iterdir()) if MODELS.is_dir() else []
needs_oracle = pytest.mark.skipif(not FAMILIES, reason=f"{MODELS} is not here")

Tensors = dict[str, NDArray[np.float32]]

RENAMES = (
    (r"^model\.embedding_norm\.", "model.norm."),
    (r"\.operator_norm\.", ".input_layernorm."),
    (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."),
    (r"\.self_attn\.(q|k)_layernorm\.", r".self_attn.\1_norm."),
    (r"\.conv\.(conv|in_proj|out_proj)\.", r".short_conv.\1."),
    (r"\.feed_forward\.", ".mlp."),
    (r"\.w1\.", ".gate_proj."),
    (r"\.w2\.", ".down_proj."),
    (r"\.w3\.", ".up_proj."),
    (r"\.shared_experts\.", ".shared_expert."),
    (r"\.mlp\.(gate|experts)\.e_score_correction_bias$", ".mlp.expert_bias"),
    (r"\.mlp\.router\.", ".mlp.gate."),
    (r"^mtp\.fc\.", "model.mtp.eh_proj."),
    (r"^mtp\.pre_fc_norm_embedding\.", "model.mtp.enorm."),
    (r"^mtp\.pre_fc_norm_hidden\.", "model.mtp.hnorm."),
    (r"^mtp\.", "model.mtp."),
)


def safetensors(path: Path) -> Tensors:
    """The float32 tensors of a file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:start])
    found = {}
    for name, node in head.items():
        if name != "__metadata__":
            assert node["dtype"] == "F32", name
            low, high = node["data_offsets"]
            found[name] = np.frombuffer(raw[start + low : start + high], "<f4").reshape(node["shape"])
    return found


def renamed(name: str, layers: int) -> str:
    """The canonical name."""
    extra = f"model.layers.{layers}."  # DeepSeek keeps its drafting head behind the last layer
    if name.startswith(extra):
        rest = name.removeprefix(extra).replace("shared_head.norm", "norm")
        own = rest.split(".")[0] in ("enorm", "hnorm", "eh_proj", "norm")
        name = f"model.mtp.{rest}" if own else f"model.mtp.layers.0.{rest}"
    for pattern, new in RENAMES:
        name = re.sub(pattern, new, name)
    return name


def canonical(hub: Tensors, arch: Mapping[str, Any]) -> Tensors:
    """The hub's tensors under canonical names, fused ones taken apart."""
    out: Tensors = {}
    for name, value in hub.items():
        out.update(dict(_split(renamed(name, arch["num_layers"]), value, arch)))
    return out


def _split(name: str, value: NDArray[np.float32], arch: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    stem, _, last = name.rpartition("self_attn.qkv_proj")
    if stem:
        heads, kv, hd = (arch[key] for key in ("num_attention_heads", "num_kv_heads", "head_dim"))
        for role, part in zip("qkv", np.split(value, [heads * hd, (heads + kv) * hd]), strict=True):
            yield f"{stem}self_attn.{role}_proj{last}", part
        return
    stem, _, last = name.rpartition("mlp.gate_up_proj")
    if stem:
        for role, part in zip(("gate", "up"), np.split(value, 2), strict=True):
            yield f"{stem}mlp.{role}_proj{last}", part
        return
    stem, _, last = name.rpartition("mlp.experts.gate_up_proj")
    if stem:  # GPT-OSS: transposed, gate and up in turns
        for expert, bank in enumerate(value):
            for role, offset in (("gate", 0), ("up", 1)):
                part = bank[..., offset::2]
                yield f"{stem}mlp.experts.{expert}.{role}_proj.{'bias' if last else 'weight'}", part if last else part.T
        return
    stem, _, last = name.rpartition("mlp.experts.down_proj")
    if stem:
        for expert, bank in enumerate(value):
            yield f"{stem}mlp.experts.{expert}.down_proj.{'bias' if last else 'weight'}", bank if last else bank.T
        return
    nk, nv, dk, dv = (
        arch.get(f"linear_{key}") for key in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    )
    if name.endswith("in_proj_qkvz.weight"):
        r = nv // nk
        groups = np.split(value.reshape(nk, -1, value.shape[1]), [dk, 2 * dk, 2 * dk + r * dv], axis=1)
        q, k, v, z = (part.reshape(-1, value.shape[1]) for part in groups)
        yield name.replace("qkvz", "qkv"), np.concatenate([q, k, v])
        yield name.replace("qkvz", "z"), z
    elif name.endswith("in_proj_ba.weight"):
        b, a = (part.reshape(nv, -1) for part in np.split(value.reshape(nk, -1, value.shape[1]), 2, axis=1))
        yield name.replace("_ba", "_b"), b
        yield name.replace("_ba", "_a"), a
    else:
        yield name, value


@lru_cache(maxsize=32)
def blueprint(family: str) -> Blueprint:
    """The file of a family."""
    folder = MODELS / family
    arch = json.loads((folder / "arch.json").read_text("utf-8"))
    tensors = canonical(safetensors(folder / "model.safetensors"), arch)
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
    with np.load(ORACLE / "masks" / name) as file:
        return {key: file[key] for key in file.files}


@lru_cache(maxsize=32)
def answers(family: str) -> dict[str, NDArray[Any]]:
    """What the oracle says about a family."""
    with np.load(MODELS / family / "oracle.npz") as file:
        return {key: file[key] for key in file.files}
