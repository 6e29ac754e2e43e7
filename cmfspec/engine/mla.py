"""Latent attention, DeepSeek's (ext), with rows as the hub orders them.

Law: a query head is [nope | rope]; the keys' rope part is one for all heads; rotation is of interleaved pairs. The norms
of the latents are ·w with an eps of their own, whatever `norm_style` says.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch, Layer, Mla, needed, refuse
from cmfspec.engine.attention import attend, output
from cmfspec.engine.claims import Claims
from cmfspec.engine.ops import rms
from cmfspec.engine.rope import Rope, rotate
from cmfspec.engine.state import Past, extended
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

LATENT_EPS = 1e-6


def _mla(arch: Arch) -> Mla:
    mla: Mla = needed(arch.mla, "mla", "a layer has kv_a_proj_with_mqa")
    return mla


def check(arch: Arch, claims: Claims, layer: Layer) -> None:
    """Claim the layer's tensors. Raises Unrunnable."""
    at, hidden, mla, heads = f"{layer.prefix}self_attn.", arch.hidden_size, _mla(arch), arch.num_attention_heads
    _rope(arch, mla)
    rows = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if claims.weights.has(f"{at}q_a_proj.weight"):
        latent = claims.need(f"{at}q_a_proj.weight", None, hidden)[0]
        claims.need(f"{at}q_a_layernorm.weight", latent)
        claims.need(f"{at}q_b_proj.weight", rows, latent)
    else:
        claims.need(f"{at}q_proj.weight", rows, hidden)
    claims.need(f"{at}kv_a_proj_with_mqa.weight", mla.kv_lora_rank + mla.qk_rope_head_dim, hidden)
    claims.need(f"{at}kv_a_layernorm.weight", mla.kv_lora_rank)
    claims.need(f"{at}kv_b_proj.weight", heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank)
    claims.linear(f"{at}o_proj", hidden, heads * mla.v_head_dim)


def run(arch: Arch, weights: Weights, layer: Layer, x: F32, past: Past | None) -> tuple[F32, Past]:
    """x [n, hidden] after the layer's norm -> what the layer adds, and its keys and values so far."""
    at, mla, heads, count = f"{layer.prefix}self_attn.", _mla(arch), arch.num_attention_heads, len(x)
    nope, start = mla.qk_nope_head_dim, past.length if past else 0
    rope = _rope(arch, mla)

    if weights.has(f"{at}q_a_proj.weight"):
        latent = rms(weights.matmul(f"{at}q_a_proj.weight", x), LATENT_EPS) * weights.tensor(
            f"{at}q_a_layernorm.weight"
        )
        q = weights.matmul(f"{at}q_b_proj.weight", latent)
    else:
        q = weights.matmul(f"{at}q_proj.weight", x)
    q = q.reshape(count, heads, -1)
    q = np.concatenate([q[..., :nope], rotate(q[..., nope:], rope, start)], axis=-1)

    both = weights.matmul(f"{at}kv_a_proj_with_mqa.weight", x)
    latent = rms(both[:, : mla.kv_lora_rank], LATENT_EPS) * weights.tensor(f"{at}kv_a_layernorm.weight")
    shared = rotate(both[:, None, mla.kv_lora_rank :], rope, start).repeat(heads, axis=1)
    kv = weights.matmul(f"{at}kv_b_proj.weight", latent).reshape(count, heads, -1)
    past = extended(past, np.concatenate([kv[..., :nope], shared], axis=-1), kv[..., nope:])
    return output(weights, layer, attend(q, past, _scale(arch, mla), None)), past


def _rope(arch: Arch, mla: Mla) -> Rope:
    if mla.qk_rope_head_dim % 2:
        refuse("HDR-011", "header.arch.mla.qk_rope_head_dim", mla.qk_rope_head_dim, "an even number of dims")
    if arch.rope_freq_factors is not None:
        refuse("HDR-011", "header.arch.rope_freq_factors", "frequency factors", "none: they aren't implemented for mla")
    return Rope(mla.qk_rope_head_dim, needed(arch.rope_theta, "rope_theta", "a layer attends"), arch.yarn, None, True)


def _scale(arch: Arch, mla: Mla) -> float:
    scale = 1 / math.sqrt(mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if arch.yarn and arch.yarn.mscale_all_dim:
        scale *= (0.1 * arch.yarn.mscale_all_dim * math.log(arch.yarn.factor) + 1) ** 2
    return scale
