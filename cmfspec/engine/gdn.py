"""Gated DeltaNet: `LinearAttention` layers (§2; the operator is Hugging Face's).

Law: S ← e^g·S; δ = β·(v − kᵀS) with the S just decayed; S ← S + k⊗δ; o = qᵀS. Value head h takes key head
h // (values / keys). The gated norm is ·w whatever `norm_style` says. All of it is float32, step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch, Layer, needed, refuse
from cmfspec.engine.claims import Claims
from cmfspec.engine.conv import claim_taps, convolved
from cmfspec.engine.ops import rms, sigmoid, silu, softplus
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

L2_EPS = 1e-6  # inside the root


@dataclass(frozen=True)
class Sizes:
    """Key heads and their width, value heads and theirs."""

    keys: int
    key_dim: int
    values: int
    value_dim: int


@dataclass(frozen=True)
class Memory:
    """history: the last inputs of the convolution; state: [value heads, key dim, value dim]."""

    history: F32
    state: F32


def sizes(arch: Arch, weights: Weights, layer: Layer) -> Sizes:
    """From the header, and from the tensors where the header is silent about a width. Raises Unrunnable."""
    at = f"{layer.prefix}linear_attn."
    keys = needed(arch.linear_num_key_heads, "linear_num_key_heads", "a layer is LinearAttention", "HDR-031")
    values = needed(arch.linear_num_value_heads, "linear_num_value_heads", "a layer is LinearAttention", "HDR-031")
    if values % keys:
        refuse("HDR-031", "header.arch.linear_num_value_heads", values, f"a multiple of {keys} key heads")
    value_dim = arch.linear_value_head_dim or weights.shape(f"{at}norm.weight")[0]
    key_dim = arch.linear_key_head_dim or (weights.shape(f"{at}in_proj_qkv.weight")[0] - values * value_dim) // (
        2 * keys
    )
    if key_dim < 1:
        rows = weights.shape(f"{at}in_proj_qkv.weight")[0]
        refuse("HDR-031", f"tensor {at}in_proj_qkv.weight", f"{rows} rows", f"more than {values} values of {value_dim}")
    return Sizes(keys, key_dim, values, value_dim)


def check(arch: Arch, claims: Claims, layer: Layer) -> None:
    """Claim the layer's tensors. Raises Unrunnable."""
    at, hidden = f"{layer.prefix}linear_attn.", arch.hidden_size
    claims.need(f"{at}norm.weight", arch.linear_value_head_dim)
    claims.need(f"{at}in_proj_qkv.weight", None, hidden)
    size = sizes(arch, claims.weights, layer)
    wide = size.values * size.value_dim
    channels = 2 * size.keys * size.key_dim + wide
    claims.need(f"{at}in_proj_qkv.weight", channels, hidden)
    claims.need(f"{at}in_proj_z.weight", wide, hidden)
    for name in ("in_proj_a.weight", "in_proj_b.weight"):
        claims.need(at + name, size.values, hidden)
    for name in ("A_log", "dt_bias"):
        claims.need(at + name, size.values)
    claim_taps(arch, claims, f"{at}conv1d.weight", channels)
    claims.need(f"{at}out_proj.weight", hidden, wide)


def run(arch: Arch, weights: Weights, layer: Layer, x: F32, memory: Memory | None) -> tuple[F32, Memory]:
    """x [n, hidden] after the layer's norm -> what the layer adds, and its memory."""
    at, size, count = f"{layer.prefix}linear_attn.", sizes(arch, weights, layer), len(x)
    mixed = weights.matmul(f"{at}in_proj_qkv.weight", x)
    mixed, history = convolved(weights.tensor(f"{at}conv1d.weight"), mixed, memory.history if memory else None)
    key_width = size.keys * size.key_dim
    q, k, v = np.split(silu(mixed), [key_width, 2 * key_width], axis=1)
    repeats = size.values // size.keys
    q, k = (_unit(part.reshape(count, size.keys, size.key_dim)).repeat(repeats, axis=1) for part in (q, k))
    q = q * np.float32(size.key_dim**-0.5)
    v = v.reshape(count, size.values, size.value_dim)

    step = softplus(weights.matmul(f"{at}in_proj_a.weight", x) + weights.tensor(f"{at}dt_bias"))
    decay = np.exp(-np.exp(weights.tensor(f"{at}A_log")) * step)
    beta = sigmoid(weights.matmul(f"{at}in_proj_b.weight", x))
    state = memory.state if memory else np.zeros((size.values, size.key_dim, size.value_dim), np.float32)
    out = np.empty((count, size.values, size.value_dim), np.float32)
    for t in range(count):
        state = state * decay[t, :, None, None]
        delta = beta[t, :, None] * (v[t] - (k[t, :, None, :] @ state)[:, 0])
        state = state + k[t, :, :, None] * delta[:, None, :]
        out[t] = (q[t, :, None, :] @ state)[:, 0]

    gate = silu(weights.matmul(f"{at}in_proj_z.weight", x)).reshape(out.shape)
    out = rms(out, arch.rms_norm_eps) * weights.tensor(f"{at}norm.weight") * gate
    return weights.matmul(f"{at}out_proj.weight", out.reshape(count, -1)), Memory(history, state)


def _unit(x: F32) -> F32:
    total = np.square(x, dtype=np.float64).sum(axis=-1, keepdims=True)
    y: F32 = x / np.sqrt(total + L2_EPS).astype(np.float32)
    return y
