"""Full and sliding attention: biases, qk-norm, output gates and sinks by presence (§2).

Law: query head h reads the keys of head h // (heads / kv heads). A `q_proj` of twice the rows holds [q; gate] per head, and
σ(gate) multiplies the output before o_proj; the gate is neither normed nor rotated. Key j is visible to query i iff
i − window < j ≤ i.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch, Layer, needed, refuse
from cmfspec.engine.claims import Claims
from cmfspec.engine.norm import normed
from cmfspec.engine.ops import sigmoid, soft_cap, softplus
from cmfspec.engine.rope import rope_of, rotate
from cmfspec.engine.state import Past, extended
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

SLIDING, FULL = "SlidingAttention", "FullAttention"


def query_heads(arch: Arch, layer: Layer) -> int:
    """Of this layer."""
    per_layer = arch.attention_heads_per_layer
    return arch.num_attention_heads if per_layer is None or layer.index is None else per_layer[layer.index]


def window_of(arch: Arch, layer: Layer) -> int | None:
    """How many positions the layer sees, its own included; None: all. Raises Unrunnable.

    A tag decides; without any such tag in the file, `sliding_window_pattern` N makes every Nth layer a full one.
    """
    pattern = arch.sliding_window_pattern
    sliding = layer.tag == SLIDING
    if pattern and layer.index is not None and SLIDING not in arch.layer_types:
        sliding = (layer.index + 1) % pattern != 0
    window: int | None = needed(arch.sliding_window, "sliding_window", "a layer slides", "HDR-025") if sliding else None
    return window


def check(arch: Arch, claims: Claims, layer: Layer) -> None:
    """Claim the layer's tensors. Raises Unrunnable."""
    at, hd, hidden = f"{layer.prefix}self_attn.", arch.head_dim, arch.hidden_size
    heads, kv = query_heads(arch, layer), arch.num_kv_heads
    if heads % kv:
        refuse("HDR-011", "header.arch.num_kv_heads", kv, f"a divisor of {heads} heads")
    rows = claims.linear(f"{at}q_proj", None, hidden)
    if rows not in (heads * hd, 2 * heads * hd):
        refuse("HDR-021", f"tensor {at}q_proj.weight", f"{rows} rows", f"{heads} heads of {hd}, or twice that")
    for name in ("k_proj", "v_proj"):
        claims.linear(f"{at}{name}", kv * hd, hidden)
    claims.linear(f"{at}o_proj", hidden, heads * hd)
    for name, count in (("q_norm", heads), ("k_norm", kv)):
        claims.may(f"{at}{name}.weight", _one_of(claims, f"{at}{name}.weight", hd, count * hd))
    claims.may(f"{at}g_proj.weight", _one_of(claims, f"{at}g_proj.weight", heads, heads * hd), hidden)
    claims.may(f"{at}sinks", heads)
    rope_of(arch, window_of(arch, layer) is not None)


def _one_of(claims: Claims, name: str, narrow: int, wide: int) -> int:
    """The first dimension that a tensor may have: the wide one if it has that."""
    return wide if claims.weights.has(name) and claims.weights.shape(name)[:1] == (wide,) else narrow


def run(arch: Arch, weights: Weights, layer: Layer, x: F32, past: Past | None) -> tuple[F32, Past]:
    """x [n, hidden] after the layer's norm -> what the layer adds, and its keys and values so far."""
    at, hd, count = f"{layer.prefix}self_attn.", arch.head_dim, len(x)
    heads, kv = query_heads(arch, layer), arch.num_kv_heads
    window = window_of(arch, layer)
    rope, start = rope_of(arch, window is not None), past.length if past else 0

    q = weights.linear(f"{at}q_proj", x)
    gate = None
    if q.shape[1] == 2 * heads * hd:
        both = q.reshape(count, heads, 2, hd)
        q, gate = both[:, :, 0].reshape(count, heads * hd), both[:, :, 1]
    k, v = weights.linear(f"{at}k_proj", x), weights.linear(f"{at}v_proj", x)
    q = rotate(_qk_norm(arch, weights, f"{at}q_norm.weight", q), rope, start)
    k = rotate(_qk_norm(arch, weights, f"{at}k_norm.weight", k), rope, start)
    past = extended(past, k, v.reshape(count, kv, hd))

    scale = 1 / math.sqrt(arch.query_pre_attn_scalar or hd)
    sinks = weights.tensor(f"{at}sinks") if weights.has(f"{at}sinks") else None
    out = attend(q, past, scale, window, arch.attn_logit_softcapping, sinks)
    if gate is not None:
        out *= sigmoid(gate)
    if weights.has(f"{at}g_proj.weight"):
        out *= softplus(weights.matmul(f"{at}g_proj.weight", x)).reshape(count, heads, -1)
    return output(weights, layer, out), past


def _qk_norm(arch: Arch, weights: Weights, name: str, x: F32) -> F32:
    """[n, heads·head_dim] -> [n, heads, head_dim], normed as wide as the norm's weight is, if there is one."""
    if weights.has(name):
        x = normed(arch, weights, name, x.reshape(len(x), -1, weights.shape(name)[0]))
    return x.reshape(len(x), -1, arch.head_dim)


def output(weights: Weights, layer: Layer, out: F32) -> F32:
    """o_proj of [n, heads, dim], heads that don't count being 0."""
    live = weights.heads(layer, out.shape[1])
    if live is not None:
        out = out * live[None, :, None]
    return weights.linear(f"{layer.prefix}self_attn.o_proj", out.reshape(len(out), -1))


def attend(
    q: F32, past: Past, scale: float, window: int | None, cap: float | None = None, sinks: F32 | None = None
) -> F32:
    """q [n, heads, dim], of the last n positions of `past` -> [n, heads, dim of a value].

    sinks [heads]: a logit that takes its share of the softmax and gives nothing.
    """
    count, heads = q.shape[:2]
    start = past.length - count
    low = 0 if window is None else max(0, start - window + 1)  # before it no query sees anything
    keys, values = past.keys[:, low:], past.values[:, low:]
    kv, span = keys.shape[:2]
    grouped = q.reshape(count, kv, heads // kv, -1).transpose(1, 2, 0, 3)  # [kv, group, n, dim]
    scores: F32 = np.matmul(grouped * np.float32(scale), keys[:, None].transpose(0, 1, 3, 2))
    scores = soft_cap(scores, cap)
    row, column = np.arange(start, start + count)[:, None], np.arange(low, low + span)[None]
    hidden = column > row
    if window is not None:
        hidden |= column <= row - window
    scores = np.where(hidden, np.float32(-np.inf), scores)
    top = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks.reshape(kv, -1, 1, 1))
    weight = np.exp(scores - top)
    total = weight.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks.reshape(kv, -1, 1, 1) - top)
    mixed: F32 = ((weight / total) @ values[:, None]).transpose(2, 0, 1, 3).reshape(count, heads, -1)
    return mixed
