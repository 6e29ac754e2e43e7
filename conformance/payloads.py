"""The parts of a payload as a judge of encoders needs them: scales, quants, codes and outliers, in float64 (§3.1, §3.2).

Law: it reads a payload that is known to decode, says what stands there, and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmfspec.codecs.codec import f16, u8
from cmfspec.codecs.encode_vbit import BUDGET
from cmfspec.codecs.q1 import POWERS, Q1_TILE, Q1T_TILE
from cmfspec.codecs.q4 import CODE_BITS, HALF, RUNGS, TILE, ladder
from cmfspec.codecs.vbit import WIDTHS
from cmfspec.contract import compare
from cmfspec.layout import GROUP

__all__ = ["BUDGET", "RUNGS", "WIDTHS"]

TOP_8, TOP_4 = 127, 7
QUIET = 1e-12  # the amplitude of a row that has none


@dataclass(frozen=True)
class Units:
    """What shares a scale. weights: [units, size]; scales, tops (the largest quant): [units]; fold: an array of the tensor's
    shape to [units, size], float64."""

    weights: Any
    scales: Any
    tops: Any
    fold: Callable[[Any], Any]


def _by(size: int) -> Callable[[Any], Any]:
    """Fold by that size, the end filled up with zeros."""

    def fold(array: Any) -> Any:
        count = -(-array.size // size) if size else 0
        flat = np.zeros(count * size)
        flat[: array.size] = array.reshape(-1)
        return flat.reshape(count, size)

    return fold


def _tile_scales(payload: bytes, count: int, tile: int) -> Any:
    tiles = u8(memoryview(payload), 0, count * tile).reshape(count, tile)
    return tiles[:, :2].copy().view("<f2").astype(np.float64).reshape(-1)


def _halves(payload: bytes, offset: int, count: int) -> Any:
    return f16(memoryview(payload), offset, count).astype(np.float64)


def units(name: str, weights: Any, payload: bytes) -> Units:
    """Of q8_row, q4_block, q4_tiled, q4tp, vbit and vbit_ro."""
    fold = _by(weights.shape[1] if name == "q8_row" else GROUP)
    blocks = fold(weights)
    count = len(blocks)
    if name == "q8_row":
        return Units(blocks, _halves(payload, weights.size, count), np.full(count, TOP_8), fold)
    if name == "q4_block":
        return Units(blocks, _halves(payload, count * HALF, count), np.full(count, TOP_4), fold)
    if name == "q4_tiled":
        return Units(blocks, _tile_scales(payload, count, TILE), np.full(count, TOP_4), fold)
    if name == "q4tp":
        return Units(blocks, ladders(weights, payload).scales.reshape(-1), np.full(count, TOP_4), fold)
    rows = len(weights)
    tops = np.repeat(2.0 ** (widths(payload, rows).astype(np.float64) - 1) - 1, weights.shape[1] // GROUP)
    return Units(blocks, _halves(payload, rows, count), tops, fold)


def nibbles(payload: bytes, groups: int) -> Any:
    """[groups, 32] of the nibbles that lie first."""
    pairs = u8(memoryview(payload), 0, groups * HALF)
    return np.stack((pairs & 15, pairs >> 4), axis=1).reshape(groups, GROUP)


def two_fields(shape: tuple[int, ...], payload: bytes) -> tuple[Any, Any, Any]:
    """(quants, row scales, column field) of q8_2f."""
    rows, cols = shape
    quants = np.frombuffer(payload, np.int8, rows * cols).reshape(shape).astype(np.int64)
    return quants, _halves(payload, rows * cols, rows), _halves(payload, rows * cols + 2 * rows, cols)


@dataclass(frozen=True)
class Ladders:
    """q4tp. blocks, quants (q − 8): [rows, groups, 32]; lo, step: [rows]; rungs: [rows, 32]; codes, scales: [rows, groups];
    logs: log2 of absmax/7, live: where there is one; span: octaves from the row's smallest to its largest; slack: octaves
    that rounding lo, step and a scale may move an end of the ladder."""

    blocks: Any
    quants: Any
    lo: Any
    step: Any
    rungs: Any
    codes: Any
    scales: Any
    logs: Any
    live: Any
    span: Any
    slack: Any


def ladders(weights: Any, payload: bytes) -> Ladders:
    """The parts of q4tp. A ladder that begins no lower than the floor is not held to groups below it."""
    rows, cols = weights.shape
    groups = cols // GROUP
    blocks = weights.astype(np.float64).reshape(rows, groups, GROUP)
    at = rows * groups * HALF
    params = f16(memoryview(payload), at, 2 * rows).reshape(rows, 2)
    bits = np.unpackbits(
        u8(memoryview(payload), at + 4 * rows, len(payload) - at - 4 * rows).reshape(rows, -1),
        axis=1,
        bitorder="little",
    )
    codes = bits[:, : groups * CODE_BITS].reshape(rows, groups, CODE_BITS) @ (1 << np.arange(CODE_BITS))
    rungs = ladder(params).astype(np.float64)
    top = np.abs(blocks).max(axis=2, initial=0)
    live = top > 0
    logs = np.log2(np.where(live, top, 1) / TOP_4)
    lo, step = params.astype(np.float64).T
    floored = np.maximum(logs, np.minimum(np.log2(compare.SCALE_FLOOR), lo)[:, None])
    high = np.where(live, floored, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(live, floored, np.inf).min(axis=1, initial=np.inf)
    places = np.spacing(np.abs(params).astype(np.float16)).astype(np.float64)
    return Ladders(
        blocks=blocks,
        quants=nibbles(payload, rows * groups).reshape(blocks.shape).astype(np.float64) - 8,
        lo=lo,
        step=step,
        rungs=rungs,
        codes=codes,
        scales=np.take_along_axis(rungs, codes, axis=1),
        logs=logs,
        live=live,
        span=np.where(live.any(axis=1), high - low, 0),
        slack=((RUNGS - 1) * places[:, 1] + places[:, 0]) / 2 + compare.LOG_ROUNDING,
    )


def widths(payload: bytes, rows: int) -> Any:
    """The first byte of each row of vbit and vbit_ro: as many as there are."""
    return np.frombuffer(payload[:rows], np.uint8)


def loudness(weights: Any, amplify: Any = None) -> Any:
    """log2 of the largest magnitude of each row, times its amplification."""
    logs = np.log2(np.maximum(np.abs(weights.astype(np.float64)).max(axis=1, initial=0), QUIET))
    return logs if amplify is None else logs + np.log2(np.asarray(amplify, np.float64))


@dataclass(frozen=True)
class SignGroups:
    """q1 and q1s. weights, inside (no outlier): [groups, 32]; scales: [groups]; outliers: flat places, as they stand."""

    weights: Any
    inside: Any
    scales: Any
    outliers: Any


def sign_groups(name: str, weights: Any, payload: bytes) -> SignGroups:
    """The parts of q1 and q1s."""
    count = weights.size // GROUP
    inside = np.ones(weights.size, np.bool_)
    outliers = np.zeros(0, np.int64)
    if name == "q1s":
        at = count * Q1_TILE
        entries = u8(memoryview(payload), at + 4, 6 * int.from_bytes(payload[at : at + 4], "little")).reshape(-1, 6)
        outliers = entries[:, :4].copy().view("<u4").reshape(-1).astype(np.int64)
        inside[outliers] = False
    blocks = weights.astype(np.float64).reshape(count, GROUP)
    return SignGroups(blocks, inside.reshape(blocks.shape), _tile_scales(payload, count, Q1_TILE), outliers)


def ternary(shape: tuple[int, ...], payload: bytes) -> tuple[Any, Any, Any]:
    """(row of each outlier, its column, codes [rows, cols]) of q1t."""
    rows, cols = shape
    base = rows * cols // GROUP * Q1T_TILE
    tiles = u8(memoryview(payload), 0, base).reshape(-1, Q1T_TILE)
    codes = (tiles[:, 2:, None] // POWERS % 3).reshape(len(tiles), -1)[:, :GROUP].reshape(shape)
    pointers = np.frombuffer(payload, "<u4", rows + 1, base).astype(np.int64)
    entries = np.frombuffer(payload, "<u2", 2 * int(pointers[-1]), base + 4 * (rows + 1)).reshape(-1, 2)
    return np.repeat(np.arange(rows), np.diff(pointers)), entries[:, 0].astype(np.int64), codes
