"""Rotary positions: frequencies, their scaling, and the rotation.

Law: inv_freq and angle = float32(position)·inv_freq are float32, cos and sin are of that angle: at a million positions
float64 angles are 3e-2 away. Exponents run over the rotary dims, not over head_dim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch, Yarn, needed, refuse

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


@dataclass(frozen=True)
class Rope:
    """What a layer's rotation depends on. dim: the rotary dims; interleaved: pairs (2i, 2i+1), not (i, i + dim/2)."""

    dim: int
    theta: float
    yarn: Yarn | None = None
    factors: tuple[float, ...] | None = None
    interleaved: bool = False


def rope_of(arch: Arch, sliding: bool) -> Rope:
    """The rotation of an attention layer. Raises Unrunnable.

    A sliding layer has a table of its own iff the file has `rope_local_base_freq`; YaRN isn't in it.
    """
    if sliding and arch.rope_local_base_freq is not None:
        share = arch.local_partial_rotary_factor
        if share is None and arch.partial_rotary_factor != 1:
            needed(share, "local_partial_rotary_factor", "partial_rotary_factor isn't 1", "HDR-025")
        return Rope(_rotary(arch.head_dim, share or 1.0), arch.rope_local_base_freq)
    theta = needed(arch.rope_theta, "rope_theta", "a layer attends")
    dim = _rotary(arch.head_dim, arch.partial_rotary_factor)
    factors = arch.rope_freq_factors
    if factors is not None and len(factors) != dim // 2:
        refuse(
            "HDR-011", "header.arch.rope_freq_factors", f"{len(factors)} of them", f"{dim // 2}, one of each frequency"
        )
    return Rope(dim, theta, arch.yarn, factors)


def _rotary(head_dim: int, share: float) -> int:
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        refuse("HDR-011", "header.arch.partial_rotary_factor", f"{share} of {head_dim} dims", "an even number of dims")
    return dim


@lru_cache(maxsize=16)
def frequencies(rope: Rope) -> F32:
    """inv_freq, float32 [dim / 2]."""
    powers: F32 = np.power(np.float32(rope.theta), np.arange(0, rope.dim, 2, dtype=np.float32) / np.float32(rope.dim))
    inverse: F32 = np.reciprocal(powers)
    if rope.factors is not None:
        inverse = np.divide(inverse, np.array(rope.factors, np.float32))
    if rope.yarn is not None:
        keep = _ramp(rope, rope.yarn)
        inverse = np.reciprocal(np.float32(rope.yarn.factor) * powers) * (1 - keep) + inverse * keep
    return inverse


def _ramp(rope: Rope, yarn: Yarn) -> F32:
    """YaRN: how much of each frequency is kept as it is, the rest being divided by the factor."""

    def place(rotations: float) -> float:
        turns = yarn.original_max_position_embeddings / (rotations * 2 * math.pi)
        return rope.dim * math.log(turns) / (2 * math.log(rope.theta))

    low, high = place(yarn.beta_fast), place(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    width = np.float32(high - low if high != low else 0.001)
    kept: F32 = 1 - np.clip((np.arange(rope.dim // 2, dtype=np.float32) - np.float32(low)) / width, 0, 1)
    return kept


@lru_cache(maxsize=16)
def angles(rope: Rope, start: int, count: int) -> tuple[F32, F32]:
    """cos and sin, each float32 [count, dim / 2], of the positions from `start` on."""
    angle = np.arange(start, start + count).astype(np.float32)[:, None] * frequencies(rope)
    scale = np.float32(rope.yarn.attention_factor if rope.yarn else 1)
    return np.cos(angle) * scale, np.sin(angle) * scale


def rotate(x: F32, rope: Rope, start: int) -> F32:
    """x [n, heads, head_dim] with its first `dim` dims rotated; the n positions begin at `start`."""
    cos, sin = (table[:, None, :] for table in angles(rope, start, len(x)))
    half = rope.dim // 2
    first, second = (
        (slice(0, rope.dim, 2), slice(1, rope.dim, 2)) if rope.interleaved else (slice(half), slice(half, rope.dim))
    )
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out
