"""q4_block, q4_tiled and q4tp: four bits a weight in groups of 32 (§3.2).

Law: element 2k is the low nibble of byte k, 2k+1 the high one; `w = (q − 8)·scale`. The three differ in where the scales
are and, for q4tp, in what they are: rungs of a ladder per row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.codec import Codec, ceil_div, exact, f16, grouped, groups, room, u8
from cmfspec.codecs.stored import LINE, Stored, places
from cmfspec.kernels.threads import spread
from cmfspec.layout import DTYPE_IDS, GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

HALF = GROUP // 2  # bytes of nibbles in a group
TILE = 2 + HALF
RUNGS = 32
CODE_BITS = 5


def _nibbles(packed: NDArray[np.uint8], weights: F32) -> F32:
    """`weights`, made q − 8 of [groups, 16] bytes."""
    pairs = weights.reshape(-1, HALF, 2)
    pairs[..., 0] = packed & 15
    pairs[..., 1] = packed >> 4
    pairs -= np.float32(8)
    return weights


def _q4_block(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    """Groups over the flattened tensor, zero-padded: `[u8 : ceil(n/32)·16][f16 : ceil(n/32)]`."""
    n = int(np.prod(shape, dtype=object)) if shape else 1
    count = ceil_div(n, GROUP)
    exact("DIR-020", payload, count * TILE)
    weights = room(shape, out)
    padded = weights if n == count * GROUP else room((count, GROUP), None)
    grouped(_nibbles(u8(payload, 0, count * HALF).reshape(-1, HALF), padded), f16(payload, count * HALF, count))
    if padded is not weights:
        weights[...] = padded.reshape(-1)[:n].reshape(shape)
    return weights


def _q4_tiled(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    """Tiles of `[f16 scale][16B nibbles]`, row-major."""
    count = shape[0] * groups(shape[1])
    exact("DIR-020", payload, count * TILE)
    tiles = u8(payload, 0, count * TILE).reshape(-1, TILE)
    scales = tiles[:, :2].copy().view("<f2").astype(np.float32)
    return grouped(_nibbles(tiles[:, 2:], room(shape, out)), scales)


def _q4tp(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    """`[nibbles][rows × (f16 lo, f16 step)][codes, 5 bits LSB-first, each row padded to a byte]`;
    scale = 2^(lo + code·step)."""
    rows, cols = shape
    per_row = groups(cols)
    stride = ceil_div(per_row * CODE_BITS, 8)
    exact("DIR-020", payload, _q4tp_size(rows * cols, rows, cols))
    weights = _nibbles(u8(payload, 0, rows * per_row * HALF).reshape(-1, HALF), room(shape, out))
    params = f16(payload, rows * per_row * HALF, 2 * rows).reshape(rows, 2)
    packed = u8(payload, rows * (per_row * HALF + 4), rows * stride).reshape(rows, stride)
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : per_row * CODE_BITS].reshape(rows, per_row, CODE_BITS)
    codes = bits @ (1 << np.arange(CODE_BITS))
    scales = np.take_along_axis(ladder(params), codes, axis=1)
    return grouped(weights, scales)


def ladder(params: F32) -> F32:
    """[rows, 2] of (lo, step) to [rows, 32] scales, each rung the one below times 2^step."""
    rungs = np.empty((len(params), RUNGS), np.float32)
    rungs[:, 0] = np.exp2(params[:, 0])
    ratio = np.exp2(params[:, 1])
    for rung in range(1, RUNGS):
        rungs[:, rung] = rungs[:, rung - 1] * ratio
    return rungs


def _q4tp_size(n: int, rows: int, cols: int) -> int:
    size: int = n // 2 + rows * (4 + ceil_div(groups(cols) * CODE_BITS, 8))
    return size


def _q4_block_fast(payload: memoryview, shape: tuple[int, ...], by_row: bool) -> Stored:
    """In lines, or in rows if those are whole groups; the formula does what is less than a line."""
    n = math.prod(shape)
    count = ceil_div(n, GROUP)
    exact("DIR-020", payload, count * TILE)
    rest = None
    if by_row and len(shape) == 2 and shape[1] % GROUP == 0:
        rows, cols = shape
    else:
        rows, cols = n // LINE, LINE
        done = rows * groups(LINE)
        left = payload[done * HALF : count * HALF], payload[count * HALF + 2 * done :]
        rest = _q4_block(memoryview(b"".join(left)), (n % LINE,))
    per_row = groups(cols)
    starts, scales = places(rows, per_row * HALF), places(rows, 2 * per_row, count * HALF)
    return Stored(payload, shape, rows, cols, ("q4_block",), starts, scales, rest=rest)


def _q4_tiled_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    rows, cols = shape
    exact("DIR-020", payload, rows * groups(cols) * TILE)
    starts = places(rows, groups(cols) * TILE)
    return Stored(payload, shape, rows, cols, ("q4_tiled",), starts, starts)


def _q4tp_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    """The powers of two are numpy's, as in the formula; only the rungs between are climbed by a kernel."""
    from cmfspec.kernels import ladders

    rows, cols = shape
    per_row = groups(cols)
    stride, params_at = ceil_div(per_row * CODE_BITS, 8), rows * per_row * HALF
    exact("DIR-020", payload, _q4tp_size(rows * cols, rows, cols))
    powers = np.exp2(f16(payload, params_at, 2 * rows))
    codes = u8(payload, params_at + 4 * rows, rows * stride)
    codes.flags.writeable = False
    scales = np.empty((rows, per_row), np.float32)
    spread(lambda low, high: ladders.climb(codes, stride, powers, scales, low, high), rows, 4 * cols)
    return Stored(payload, shape, rows, cols, ("q4tp",), places(rows, per_row * HALF), places(rows, 0), field=scales)


CODECS = (
    Codec(
        DTYPE_IDS["q4_block"],
        "q4_block",
        lambda n, rows, cols: ceil_div(n, GROUP) * TILE,  # noqa: ARG005
        _q4_block,
        _q4_block_fast,
    ),
    Codec(
        DTYPE_IDS["q4_tiled"],
        "q4_tiled",
        lambda n, rows, cols: n // GROUP * TILE,  # noqa: ARG005
        _q4_tiled,
        _q4_tiled_fast,
        matrix=True,
        multiple=GROUP,
    ),
    Codec(DTYPE_IDS["q4tp"], "q4tp", _q4tp_size, _q4tp, _q4tp_fast, matrix=True, multiple=GROUP),
)
