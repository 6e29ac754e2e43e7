"""Mixture of experts (§2.2, §11.1).

Law: softmax over all routable experts (or σ of each), then the top k, lower index first among equals, then, if the file says
so, divided by their sum. `expert_bias` changes the choice and not the weights. A masked expert leaves before the softmax.
Experts are those whose tensors are there, and the router has as many rows. A router with a bias is GPT-OSS's: the k weights
sum to 1, and its experts clamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch, Layer, Moe, needed, refuse
from cmfspec.engine.claims import Claims
from cmfspec.engine.ffn import claim_gated, gated
from cmfspec.engine.ops import ACTIVATIONS, sigmoid, softmax
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

TINY = 1e-20  # so that σ's that are all 0 have a sum to be divided by
LIMIT, ALPHA = 7.0, 1.702  # GPT-OSS's clamp and slope


def _banked(weights: Weights, at: str) -> bool:
    """Whether the layer's experts lie in one tensor of three dimensions per role."""
    return weights.has(f"{at}experts.gate_up_proj")


def _moe(arch: Arch) -> Moe:
    moe: Moe = needed(arch.moe, "moe", "a layer has a router", "MOE-003")
    return moe


def check(arch: Arch, claims: Claims, layer: Layer) -> None:
    """Claim the layer's tensors. Raises Unrunnable."""
    at, hidden, moe = f"{layer.prefix}mlp.", arch.hidden_size, _moe(arch)
    experts = claims.linear(f"{at}gate", None, hidden)
    biased = claims.weights.has(f"{at}gate.bias")
    if not biased and not moe.router_sigmoid:
        needed(moe.norm_topk_prob, "moe.norm_topk_prob", "families differ in it", "MOE-006")
    claims.may(f"{at}expert_bias", experts)
    if _banked(claims.weights, at):
        width = claims.need(f"{at}experts.gate_up_proj", experts, None, hidden)[1]
        claims.need(f"{at}experts.down_proj", experts, hidden, width // 2)
        if width % 2:
            refuse("DEFRAG-005", f"tensor {at}experts.gate_up_proj", f"{width} rows", "as many of gate as of up")
    else:
        present = 0
        while present < moe.num_experts and claims.weights.has(f"{at}experts.{present}.gate_proj.weight"):
            claim_gated(arch, claims, f"{at}experts.{present}.")
            present += 1
        if present != experts:
            refuse("MOEDEFRAG-004", f"tensor {at}gate.weight", f"{experts} rows", f"{present}, as there are experts")
    if claims.weights.has(f"{at}shared_expert.gate_proj.weight"):
        claim_gated(arch, claims, f"{at}shared_expert.")
        claims.may(f"{at}shared_expert_gate.weight", 1, hidden)


def route(
    logits: F32, moe: Moe, normalise: bool, bias: F32 | None = None, routable: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.intp], F32]:
    """Router logits [n, experts] -> chosen experts and their weights, both [n, k]."""
    if routable is not None:
        logits = np.where(routable, logits, np.float32(-np.inf))
    scores = sigmoid(logits) if moe.router_sigmoid else softmax(logits)
    ranked = scores if bias is None else scores + bias
    count = logits.shape[1]
    if routable is not None:
        ranked, count = np.where(routable, ranked, np.float32(-np.inf)), int(routable.sum())
    chosen = np.argsort(-ranked, axis=1, kind="stable")[:, : min(moe.top_k, count)]
    weight = np.take_along_axis(scores, chosen, axis=1)
    if normalise:
        weight = weight / (weight.sum(axis=1, keepdims=True) + np.float32(TINY))
    return chosen, weight * np.float32(moe.routed_scaling_factor)


def run(arch: Arch, weights: Weights, layer: Layer, x: F32) -> F32:
    """x [n, hidden] after the norm -> what the layer adds."""
    at, moe = f"{layer.prefix}mlp.", _moe(arch)
    logits = weights.linear(f"{at}gate", x)
    bias = weights.tensor(f"{at}expert_bias") if weights.has(f"{at}expert_bias") else None
    normalise = bool(moe.norm_topk_prob) or weights.has(f"{at}gate.bias")
    chosen, weight = route(logits, moe, normalise, bias, weights.experts(layer, logits.shape[1]))
    out = np.zeros_like(x)
    for expert in np.unique(chosen):
        row, column = np.nonzero(chosen == expert)
        out[row] += weight[row, column, None] * _expert(arch, weights, at, int(expert), x[row])
    if weights.has(f"{at}shared_expert.gate_proj.weight"):
        shared = gated(arch, weights, f"{at}shared_expert.", x)
        if weights.has(f"{at}shared_expert_gate.weight"):
            shared *= sigmoid(weights.matmul(f"{at}shared_expert_gate.weight", x))
        out += shared
    return out


def _expert(arch: Arch, weights: Weights, at: str, expert: int, x: F32) -> F32:
    if _banked(weights, at):
        both = x @ weights.tensor(f"{at}experts.gate_up_proj")[expert].T
        width = both.shape[1] // 2
        inner = ACTIVATIONS[arch.hidden_act](both[:, :width]) * both[:, width:]
        banked: F32 = inner @ weights.tensor(f"{at}experts.down_proj")[expert].T
        return banked
    stem = f"{at}experts.{expert}."
    if not weights.has(f"{at}gate.bias"):
        return gated(arch, weights, stem, x)
    gate = np.minimum(weights.linear(f"{stem}gate_proj", x), np.float32(LIMIT))
    up = np.clip(weights.linear(f"{stem}up_proj", x), np.float32(-LIMIT), np.float32(LIMIT))
    return weights.linear(f"{stem}down_proj", (up + 1) * gate * sigmoid(np.float32(ALPHA) * gate))
