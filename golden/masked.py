"""Small models with a mask named `kept`, and each as the model that the mask leaves: recipes in pairs.

Law: `masked:x` under its mask computes what `cut:x` computes, which has no mask: a neuron, a head or a layer that doesn't
count is 0 where its output is added, and an expert that can't be chosen isn't there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from cmfspec.format.blueprint import Blueprint, masks_section
from golden.models import HEADS, INNER, MOE, Tensors, entries, small

TASK = "kept"
LAYERS = 2
NEURONS = np.arange(LAYERS * INNER).reshape(LAYERS, INNER) % 3 > 0  # other ones in each layer
BITS: Mapping[str, Mapping[str, Any]] = {
    "ffn": {"ffn": NEURONS},
    "heads": {"heads": np.array([[True, False], [False, True]])},
    "gates": {"gates": np.array([[False, True]])},
    "all": {},
}


def _bits(what: str) -> Mapping[str, Any]:
    """The rows that aren't full. what: a key of BITS, or the digits of the experts that are kept in the second layer."""
    if not what.isdigit():
        return BITS[what]
    row = np.isin(np.arange(MOE["num_experts"]), [*map(int, what)])
    return {"experts": np.stack([np.ones_like(row), row])}


def _kind(what: str) -> str:
    return "moe" if what.isdigit() else "plain"


@cache
def masked(what: str) -> Blueprint:
    """The model with the mask."""
    bits = _bits(what)
    sizes = {"ffn": (LAYERS, INNER), "heads": (LAYERS, HEADS), "gates": (1, LAYERS)}
    areas = [bits.get(name, np.ones(size, bool)) for name, size in sizes.items()]
    areas += [bits["experts"]] if "experts" in bits else []
    blob = b"".join(np.packbits(area, axis=1, bitorder="little").tobytes() for area in areas)
    record = {"task_id": 0, "name": TASK, "sparsity": 0.5, "priority": "Normal", "description": None, "quality": None}
    record |= {"parent": None, "has_hot_pack": False, **({"has_expert_fields": True} if "experts" in bits else {})}
    return replace(small(_kind(what)), masks=masks_section({"default_task": TASK, "masks": [record]}, [blob]))


@cache
def cut(what: str) -> Blueprint:
    """What the mask leaves."""
    plan, bits = small(_kind(what)), _bits(what)
    tensors = {entry.name: np.frombuffer(entry.payload, "<f4").reshape(entry.shape).copy() for entry in plan.tensors}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        if "ffn" in bits:
            tensors[f"{at}mlp.down_proj.weight"][:, ~bits["ffn"][layer]] = 0
        if "heads" in bits:
            width = tensors[f"{at}self_attn.o_proj.weight"].shape[1] // HEADS
            tensors[f"{at}self_attn.o_proj.weight"][:, np.repeat(~bits["heads"][layer], width)] = 0
        if "gates" in bits and not bits["gates"][0, layer]:
            tensors[f"{at}self_attn.o_proj.weight"][:] = 0
            tensors[f"{at}mlp.down_proj.weight"][:] = 0
    if "experts" not in bits:
        return replace(plan, tensors=entries(tensors))
    arch = plan.header["arch"]
    moe = {**arch["moe"], "num_experts": len(what)}
    header = {**plan.header, "arch": {**arch, "moe": moe}}
    return replace(plan, header=header, tensors=entries(_without_experts(tensors, [*map(int, what)])))


def _without_experts(tensors: Tensors, kept: list[int]) -> Tensors:
    """The experts of the second layer that are kept, numbered anew."""
    stem = "model.layers.1.mlp."
    found: Tensors = {}
    for name, value in tensors.items():
        number, _, role = name.removeprefix(f"{stem}experts.").partition(".")
        if not name.startswith(f"{stem}experts."):
            found[name] = value[kept] if name == f"{stem}gate.weight" else value
        elif int(number) in kept:
            found[f"{stem}experts.{kept.index(int(number))}.{role}"] = value
    return found
