"""q1, q1s and q1t: one bit, one bit with outliers, three states with outliers (§3.1).

Law: the scale of a group is the mean magnitude of what the scale is for: outliers, kept apart as halves, have no part in it.
An outlier is one of the `keep` largest of the tensor. q1s carries the error of a sign to the next weight of the row, as the
public writer does; q1 does if told to. Under an outlier of q1t lies code 0. A group of zeros has scale 0 and is zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.encoder import Encode, blocked, largest, share, stored, summed
from cmfspec.codecs.q1 import POWERS
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

    Mask = NDArray[np.bool_]

KEEP = 0.01  # the share of outliers
SUPPORT = np.float32(0.7)  # of the mean: what the second way to ternary takes as nonzero
GAIN = (0.5, 2.0)  # between which a row's scales are corrected
MAX_COLUMNS = 65536  # a column of q1t's outliers is a u16
DIGITS = 35  # in the seven bytes of a tile; the last three are nobody's


def mean_scales(weights: F32, kept: Mask, tensor: str) -> F32:
    """[rows, groups]: the mean magnitude of those that aren't kept apart, as halves; 0 where all are."""
    blocks = blocked(weights)
    inside = ~kept.reshape(blocks.shape)
    total = summed(np.where(inside, np.abs(blocks), np.float32(0)))
    return stored(total / np.maximum(inside.sum(axis=2), 1).astype(np.float32), tensor, "group scale")


def signs(weights: F32, scales: F32, kept: Mask, diffuse: bool) -> Mask:
    """Whether each weight's bit is set: ±0 counts as positive. diffuse: what a sign leaves over goes to the next one."""
    if not diffuse:
        return weights >= 0
    columns, lone, levels = (
        np.ascontiguousarray(part.T) for part in (weights, kept, scales)
    )  # all rows at once, quickly
    bits = np.empty(columns.shape, np.bool_)
    over = np.zeros(len(weights), np.float32)
    for place, column in enumerate(columns):
        value = column + over
        positive = value >= 0
        level = levels[place // GROUP]
        bits[place] = np.where(lone[place], column >= 0, positive)
        over = np.where(lone[place], over, value - np.where(positive, level, -level))
    return np.ascontiguousarray(bits.T)


def tiles(scales: F32, bodies: NDArray[np.uint8]) -> bytes:
    """Each group's scale and then its bytes."""
    heads = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    return np.hstack((heads, bodies)).tobytes()


def signed(weights: F32, kept: Mask, diffuse: bool, tensor: str) -> bytes:
    """The tiles of q1 and q1s."""
    scales = mean_scales(weights, kept, tensor)
    bits = signs(weights, scales, kept, diffuse)
    return tiles(scales, np.packbits(bits.reshape(-1, GROUP), axis=1, bitorder="little"))


def _q1(weights: F32, tensor: str, diffuse: bool = False) -> bytes:
    return signed(weights, np.zeros(weights.shape, np.bool_), diffuse, tensor)


def apart(weights: F32, keep: float) -> Mask:
    """Where the outliers are."""
    kept = np.zeros(weights.shape, np.bool_)
    kept.reshape(-1)[largest(np.abs(weights), share(keep, weights.size))] = True
    return kept


def sparse(kept: Mask, weights: F32, tensor: str) -> bytes:
    """q1s's overlay: a count, then (flat index, half) in rising order. Raises ValueError past what a u32 counts."""
    if weights.size > 2**32:
        raise ValueError(f"{tensor}: {weights.size} weights, more than q1s can address")
    where = np.flatnonzero(kept)
    entries = np.empty(len(where), np.dtype([("at", "<u4"), ("value", "<f2")]))
    entries["at"], entries["value"] = where, stored(weights.reshape(-1)[where], tensor, "outlier")
    return len(where).to_bytes(4, "little") + entries.tobytes()


def _q1s(weights: F32, tensor: str, keep: float = KEEP, diffuse: bool = True) -> bytes:
    kept = apart(weights, keep)
    return signed(weights, kept, diffuse, tensor) + sparse(kept, weights, tensor)


def by_rows(kept: Mask, weights: F32, tensor: str) -> bytes:
    """q1t's overlay: where each row's outliers begin, then (column, half). Raises ValueError past 65536 columns."""
    if weights.shape[1] > MAX_COLUMNS:
        raise ValueError(f"{tensor}: {weights.shape[1]} columns, more than the {MAX_COLUMNS} that q1t can address")
    rows, columns = np.nonzero(kept)
    pointers = np.concatenate(([0], np.cumsum(kept.sum(axis=1))))
    entries = np.empty(len(rows), np.dtype([("col", "<u2"), ("value", "<f2")]))
    entries["col"], entries["value"] = columns, stored(weights[rows, columns], tensor, "outlier")
    return pointers.astype("<u4").tobytes() + entries.tobytes()


def ternary_bytes(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[groups, 32] of codes to [groups, 7] bytes, five digits each, the least significant first."""
    digits = np.zeros((len(codes), DIGITS), np.uint8)
    digits[:, :GROUP] = codes
    packed: NDArray[np.uint8] = (digits.reshape(len(codes), DIGITS // len(POWERS), len(POWERS)) * POWERS).sum(
        axis=2, dtype=np.uint8
    )
    return packed


def _support(blocks: F32, inside: Mask, tensor: str) -> tuple[F32, Mask]:
    """(scale of each group, which of its weights are not zero): of two ways the one with the smaller squared error."""
    sizes = np.where(inside, np.abs(blocks), np.float32(0))
    mean = summed(sizes) / np.maximum(inside.sum(axis=2), 1).astype(np.float32)
    first = stored(mean, tensor, "group scale")
    above = [inside & (sizes >= first[..., None] / 2), inside & (sizes >= SUPPORT * mean[..., None])]
    loud = summed(np.where(above[1], sizes, np.float32(0))) / np.maximum(above[1].sum(axis=2), 1).astype(np.float32)
    scales = [first, stored(loud, tensor, "group scale")]
    errors = []
    for scale, nonzero in zip(scales, above, strict=True):
        lost = sizes - np.where(nonzero, scale[..., None], np.float32(0))
        errors.append(summed(lost * lost))
    second = errors[1] < errors[0]
    return np.where(second, scales[1], scales[0]), np.where(second[..., None], above[1], above[0])


def _gains(blocks: F32, scales: F32, nonzero: Mask) -> F32:
    """[rows]: the factor for a row's scales that leaves the smallest squared error, between one half and two."""
    sizes = np.where(nonzero, np.abs(blocks), 0).astype(np.float64)
    levels = np.where(nonzero, scales[..., None], 0).astype(np.float64)
    over, under = (sizes * levels).sum(axis=(1, 2)), (levels * levels).sum(axis=(1, 2))
    gains = np.ones(len(blocks))
    np.divide(over, under, out=gains, where=under > 1e-20)
    return np.clip(gains, *GAIN).astype(np.float32)


def ternary(weights: F32, kept: Mask, tensor: str) -> bytes:
    """The tiles of q1t."""
    blocks = blocked(weights)
    scales, nonzero = _support(blocks, ~kept.reshape(blocks.shape), tensor)
    nonzero &= scales[..., None] > 0
    final = stored(scales * _gains(blocks, scales, nonzero)[:, None], tensor, "group scale")
    codes = np.where(nonzero, np.where(blocks >= 0, 1, 2), 0).astype(np.uint8)
    return tiles(final, ternary_bytes(codes.reshape(-1, GROUP)))


def _q1t(weights: F32, tensor: str, keep: float = KEEP) -> bytes:
    kept = apart(weights, keep)
    return ternary(weights, kept, tensor) + by_rows(kept, weights, tensor)


ENCODERS: dict[str, Encode] = {"q1": _q1, "q1s": _q1s, "q1t": _q1t}
