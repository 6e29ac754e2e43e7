"""Models small enough to run in a millisecond: recipes of files that an engine computes with.

Law: deterministic, float32, every tensor different from every other; a kind is the plain model with tensors or fields more.
What their logits are is for an engine to say; those of the small models of Hugging Face (golden/oracle) lie beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS, encode
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.layout import DTYPE_IDS
from golden.numbers import floats
from golden.oracle import HOME

HIDDEN, INNER, VOCAB, HEADS, KV, HEAD = 32, 32, 40, 2, 1, 16  # rows of whole groups, for every encoding
ARCH: Mapping[str, Any] = {
    "arch_name": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_layers": 2,
    "num_attention_heads": HEADS,
    "num_kv_heads": KV,
    "head_dim": HEAD,
    "vocab_size": VOCAB,
    "layer_types": ["FullAttention", "FullAttention"],
    "rms_norm_eps": 1e-5,
    "norm_style": "qwen",
    "rope_theta": 100.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 32,
}
MOE = {"num_experts": 5, "top_k": 2, "moe_intermediate_size": 12, "norm_topk_prob": True}
Tensors = dict[str, Any]
Made = tuple[dict[str, Any], Tensors]


def values(seed: str, shape: tuple[int, ...]) -> Any:
    """Finite floats in (−½, ½), float32, exact in a half."""
    return (floats(f"model/{seed}", int(np.prod(shape))) / 4).reshape(shape)


def _feed(tensors: Tensors, stem: str, inner: int = INNER) -> None:
    for role, shape in (("gate", (inner, HIDDEN)), ("up", (inner, HIDDEN)), ("down", (HIDDEN, inner))):
        name = f"{stem}{role}_proj.weight"
        tensors[name] = values(name, shape)


def _plain() -> Made:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn."
        shapes |= {f"{at}q_proj.weight": (HEADS * HEAD, HIDDEN), f"{at}k_proj.weight": (KV * HEAD, HIDDEN)}
        shapes |= {f"{at}v_proj.weight": (KV * HEAD, HIDDEN), f"{at}o_proj.weight": (HIDDEN, HEADS * HEAD)}
    tensors = {name: values(name, shape) for name, shape in shapes.items()}
    norms = [
        f"model.layers.{layer}.{name}_layernorm.weight" for layer in (0, 1) for name in ("input", "post_attention")
    ]
    tensors |= {name: 1 + values(name, (HIDDEN,)) for name in (*norms, "model.norm.weight")}
    for layer in range(2):
        _feed(tensors, f"model.layers.{layer}.mlp.")
    tensors["lm_head.weight"] = values("lm_head", (VOCAB, HIDDEN))
    return dict(ARCH), tensors


def _bias() -> Made:
    arch, tensors = _plain()
    for layer in range(2):
        for role, rows in (("q", HEADS * HEAD), ("k", KV * HEAD), ("v", KV * HEAD)):
            name = f"model.layers.{layer}.self_attn.{role}_proj.bias"
            tensors[name] = values(name, (rows,))
    return arch, tensors


def _qk_norm() -> Made:
    arch, tensors = _plain()
    for layer in range(2):
        for role in "qk":
            name = f"model.layers.{layer}.self_attn.{role}_norm.weight"
            tensors[name] = 1 + values(name, (HEAD,))
    return arch, tensors


def _gated() -> Made:
    arch, tensors = _plain()
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn.q_proj.weight"
        tensors[name] = values(f"{name}/gated", (2 * HEADS * HEAD, HIDDEN))
    return arch, tensors


def _moe() -> Made:
    """A dense layer and one of experts."""
    arch, tensors = _plain()
    at = "model.layers.1.mlp."
    tensors = {name: value for name, value in tensors.items() if not name.startswith(at)}
    tensors[f"{at}gate.weight"] = values(f"{at}gate", (MOE["num_experts"], HIDDEN)) * 2
    for expert in range(int(MOE["num_experts"])):
        _feed(tensors, f"{at}experts.{expert}.", int(MOE["moe_intermediate_size"]))
    return {**arch, "moe": dict(MOE)}, tensors


def _moe_first() -> Made:
    """The experts are in the first layer."""
    arch, tensors = _moe()
    swapped = {"model.layers.0.mlp.": "model.layers.1.mlp.", "model.layers.1.mlp.": "model.layers.0.mlp."}
    stem = len("model.layers.0.mlp.")
    return arch, {swapped.get(name[:stem], name[:stem]) + name[stem:]: value for name, value in tensors.items()}


def _nan() -> Made:
    """A router whose row of an expert is no number."""
    arch, tensors = _moe()
    router = tensors["model.layers.1.mlp.gate.weight"].copy()
    router[2] = np.nan
    return arch, {**tensors, "model.layers.1.mlp.gate.weight": router}


def _ties() -> Made:
    """Experts 1 to 4 have the same row in the router, and are chosen or not together."""
    arch, tensors = _moe()
    router = tensors["model.layers.1.mlp.gate.weight"].copy()
    router[2:] = router[1]
    return arch, {**tensors, "model.layers.1.mlp.gate.weight": router}


def _shared() -> Made:
    """With an expert that all tokens share."""
    arch, tensors = _moe()
    at = "model.layers.1.mlp."
    _feed(tensors, f"{at}shared_expert.", 8)
    tensors[f"{at}shared_expert_gate.weight"] = values(f"{at}shared", (1, HIDDEN))
    return {**arch, "moe": {**arch["moe"], "shared_expert_intermediate_size": 8}}, tensors


def _tied() -> Made:
    arch, tensors = _plain()
    del tensors["lm_head.weight"]
    return {**arch, "tie_word_embeddings": True}, tensors


KINDS: Mapping[str, Callable[[], Made]] = {
    "plain": _plain, "bias": _bias, "qk_norm": _qk_norm, "gated": _gated, "tied": _tied,
    "moe": _moe, "moe_first": _moe_first, "ties": _ties, "shared": _shared, "nan": _nan,
}  # fmt: skip


def entries(tensors: Tensors) -> tuple[Entry, ...]:
    """As float32 entries of a file."""
    return tuple(
        Entry(name, DTYPE_IDS["f32"], value.shape, np.ascontiguousarray(value, "<f4").tobytes())
        for name, value in tensors.items()
    )


@cache
def small(kind: str, *changes: str) -> Blueprint:
    """The file of a kind. changes: `-name` leaves out the tensor or the field of `arch` of that name; `one=other` puts the
    tensor `other` in the place of `one`. Raises KeyError."""
    arch, tensors = KINDS[kind]()
    for change in changes:
        name, _, other = change.partition("=")
        if other:
            tensors[name] = tensors[other]
        elif name[1:] in tensors:
            del tensors[name[1:]]
        else:
            del arch[name[1:]]
    return _file(arch, tensors)


@cache
def quantised(kind: str, *dtypes: str) -> Blueprint:
    """The file of a kind with its matrices of attention, feed-forward and head in these encodings by turns."""
    plan = small(kind)
    wide = [entry.name for entry in plan.tensors if "_proj.weight" in entry.name or entry.name == "lm_head.weight"]
    by_name = {name: dtypes[place % len(dtypes)] for place, name in enumerate(wide)}
    return replace(plan, tensors=tuple(_encoded(entry, by_name.get(entry.name, "f32")) for entry in plan.tensors))


def _encoded(entry: Entry, dtype: str) -> Entry:
    if dtype == "f32":
        return entry
    weights = np.frombuffer(entry.payload, "<f4").reshape(entry.shape)
    return replace(entry, dtype=DTYPE_IDS[dtype], payload=encode(dtype, weights, tensor=entry.name))


def decoded(plan: Blueprint) -> Blueprint:
    """The file with every tensor as the float32 that it decodes to (§3.2)."""
    values = {entry.name: CODECS[entry.dtype].decode(memoryview(entry.payload), entry.shape) for entry in plan.tensors}
    return replace(plan, tensors=entries(values))


def _file(arch: dict[str, Any], tensors: Tensors) -> Blueprint:
    return Blueprint({"format": "cmf", "version": 2, "arch": arch, "quant_type": "F32"}, entries(tensors))


@cache
def of_the_oracle(family: str) -> Blueprint:
    """A small model of Hugging Face as a file: what `pack` would write of it, but float32 throughout."""
    from cmfspec.tools.config import model_of
    from cmfspec.tools.names import plan_of
    from cmfspec.tools.pack import values as packed
    from cmfspec.tools.safetensors import Weights
    from cmfspec.tools.unpackable import json_file

    folder = HOME / family
    config = model_of(json_file(folder / "config.json"))
    arch = {**config.arch, **({"mtp": {"num_layers": config.mtp}} if config.mtp else {})}
    with Weights(folder) as weights:
        cuts = plan_of(folder, weights, config.arch, bool(config.mtp)).cuts
        tensors = {cut.name: packed(weights, cut) for cut in cuts}
    return _file(arch, tensors)


@cache
def answers(family: str) -> dict[str, Any]:
    """What Hugging Face says about it: token_ids, logits, greedy, greedy_margin, nll."""
    with np.load(HOME / family / "oracle.npz") as file:
        return {key: file[key] for key in file.files}
