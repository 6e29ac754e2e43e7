"""q4_block, q4_tiled and q4tp: four bits a weight in groups of 32 (§3.2).

Law: `scale = absmax(group)/7`, rounded to a half first. q4tp rounds `lo` and `step` to halves before it chooses a rung, and
quantises against the rung that a decoder will build from them. The rung is the nearest to the group's own scale, or one of
its neighbours where that leaves a smaller squared error. No ladder is made longer for a group below 2^-14, since its rungs
would be missing for all others of the row. A group of zeros has nibbles 8 on whatever rung.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.codec import ceil_div
from cmfspec.codecs.encoder import TINY, Encode, absmax, log2, quants, raw, scale, stored, summed
from cmfspec.codecs.q4 import CODE_BITS, RUNGS, ladder
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

TOP = np.float32(7)
BELOW, ABOVE = 2, 1  # rungs around the nearest that are tried
SILENT = log2(TINY)  # where the ladder of a row of zeros begins
NUDGES = 64  # smallest steps of a half by which `step` may have to grow until the top rung is high enough


def packed(codes: F32) -> NDArray[np.uint8]:
    """[groups, 32] of q − 8 to [groups, 16] bytes of nibbles."""
    nibbles = (codes + 8).astype(np.uint8)
    return nibbles[:, 0::2] | nibbles[:, 1::2] << np.uint8(4)


def _groups(blocks: F32, tensor: str) -> tuple[F32, NDArray[np.uint8]]:
    """(scales, nibbles)."""
    scales = scale(absmax(blocks), TOP, tensor, "group scale")
    return scales, packed(quants(blocks, scales[:, None], TOP))


def _q4_block(weights: F32, tensor: str) -> bytes:
    """The flattened tensor, filled up with zeros."""
    blocks = np.zeros((ceil_div(weights.size, GROUP), GROUP), np.float32)
    blocks.reshape(-1)[: weights.size] = weights.reshape(-1)
    scales, nibbles = _groups(blocks, tensor)
    return nibbles.tobytes() + raw(scales)


def _q4_tiled(weights: F32, tensor: str) -> bytes:
    scales, nibbles = _groups(weights.reshape(-1, GROUP), tensor)
    return np.hstack((scales.astype("<f2").view(np.uint8).reshape(-1, 2), nibbles)).tobytes()


def _ladders(logs: F32, live: NDArray[np.bool_]) -> F32:
    """[rows, groups] of log2 scales to [rows, 2] of (lo, step), both halves, the top rung not below the row's largest."""
    low = np.where(live, logs, np.inf).min(axis=1, initial=np.inf)
    high = np.where(live, logs, -np.inf).max(axis=1, initial=-np.inf)
    silent = ~live.any(axis=1)
    low[silent] = high[silent] = SILENT
    lo = low.astype(np.float16).astype(np.float32)
    step = (np.maximum(high - lo, 0) / np.float32(RUNGS - 1)).astype(np.float16)
    bits = step.view(np.uint16)
    for _ in range(NUDGES):
        width = step.astype(np.float32)
        short = ~((width > 0) & (lo + np.float32(RUNGS - 1) * width >= high))
        if not short.any():
            break
        bits += short
    return np.stack((lo, step.astype(np.float32)), axis=1)


def nibbles_at(blocks: F32, scales: F32) -> F32:
    """q − 8 of [groups, 32] against these scales: −8 is a code like any other where a rung may be below absmax/7."""
    return np.clip(np.rint(blocks * (1 / scales)[:, None]), -8, 7)


def _searched(blocks: F32, rungs: F32, nearest: NDArray[np.int64]) -> NDArray[np.int64]:
    """The code with the smallest squared error, the first of equal ones. rungs: [groups, 32], the ladder of each."""
    best = nearest.copy()
    least = np.full(len(blocks), np.inf, np.float32)
    for offset in range(-BELOW, ABOVE + 1):
        codes = np.clip(nearest + offset, 0, RUNGS - 1)
        scales = np.take_along_axis(rungs, codes[:, None], axis=1)[:, 0]
        lost = blocks - nibbles_at(blocks, scales) * scales[:, None]
        error = summed(lost * lost)
        better = error < least
        best[better], least[better] = codes[better], error[better]
    return best


def bit_codes(codes: NDArray[np.int64]) -> bytes:
    """[rows, groups] of codes, five bits each from the low end, each row padded to a byte."""
    bits = ((codes[:, :, None] >> np.arange(CODE_BITS)) & 1).astype(np.uint8)
    rows = bits.reshape(len(codes), codes.shape[1] * CODE_BITS)
    return np.packbits(rows, axis=1, bitorder="little").tobytes()


def _q4tp(weights: F32, tensor: str, search: bool = True) -> bytes:
    """search: try the neighbours of the nearest rung, or take it."""
    blocks = weights.reshape(-1, GROUP)
    shape = (len(weights), weights.shape[1] // GROUP)
    top = absmax(blocks).reshape(shape)
    live = top > 0
    logs = log2(np.maximum(stored(top / TOP, tensor, "group scale"), TINY))
    params = _ladders(logs, live)
    lo, step = params[:, :1], params[:, 1:]
    nearest = np.clip(np.rint((logs - lo) / step), 0, RUNGS - 1).astype(np.int64)
    nearest[~live] = 0
    rungs = np.repeat(ladder(params), shape[1], axis=0)
    codes = nearest.reshape(-1)
    if search:
        codes = np.where(live.reshape(-1), _searched(blocks, rungs, codes), codes)
    chosen = np.take_along_axis(rungs, codes[:, None], axis=1)[:, 0]
    nibbles = packed(nibbles_at(blocks, chosen)).tobytes()
    return b"".join((nibbles, raw(params), bit_codes(codes.reshape(shape))))


ENCODERS: dict[str, Encode] = {"q4_block": _q4_block, "q4_tiled": _q4_tiled, "q4tp": _q4tp}
