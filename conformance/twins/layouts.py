"""Twins that decode one encoding wrongly, or believe what a payload says of itself (§3.1, §3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.layout import DTYPE_IDS, GROUP
from conformance.twins.twin import Twin, decoding, forgiving, shapeless

Shape = tuple[int, ...]
HALF = GROUP // 2


def _halves(raw: bytes, at: int, count: int) -> Any:
    return np.frombuffer(raw, "<f2", count, at).astype(np.float32)


def row_in_a_byte(raw: bytes, shape: Shape, right: Any) -> Any:
    rows, cols = shape
    quants = np.frombuffer(raw, np.int8, rows * cols).reshape(shape).astype(np.float32)
    return quants * _halves(raw, rows * cols, rows)[np.arange(rows) & 0xFF][:, None]


def clamped_quants(raw: bytes, shape: Shape, right: Any) -> Any:
    rows, cols = shape
    quants = np.frombuffer(raw, np.int8, rows * cols).reshape(shape).astype(np.float32)
    return np.maximum(quants, -127) * _halves(raw, rows * cols, rows)[:, None]


def zeros_are_ones(raw: bytes, shape: Shape, right: Any) -> Any:
    rows, cols = shape
    empty = ~np.frombuffer(raw, np.int8, rows * cols).reshape(shape).any(axis=1)
    right[empty] = _halves(raw, rows * cols, rows)[empty][:, None]
    return right


def zero_scale_is_one(raw: bytes, shape: Shape, right: Any) -> Any:
    rows, cols = shape
    quants = np.frombuffer(raw, np.int8, rows * cols).reshape(shape).astype(np.float32)
    scales = _halves(raw, rows * cols, rows)
    return quants * np.where(scales == 0, 1, scales)[:, None]


def swapped_when_square(raw: bytes, shape: Shape, right: Any) -> Any:
    rows, cols = shape
    if rows != cols:
        return right
    quants = np.frombuffer(raw, np.int8, rows * cols).reshape(shape).astype(np.float32)
    row, col = _halves(raw, rows * cols, rows), _halves(raw, rows * cols + 2 * rows, cols)
    return quants * col[:, None] * row


def _nibbles(packed: Any) -> Any:
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(-1, GROUP).astype(np.float32) - 8


def group_in_a_byte(raw: bytes, shape: Shape, right: Any) -> Any:
    count = -(-right.size // GROUP)
    quants = _nibbles(np.frombuffer(raw, np.uint8, count * HALF))
    scales = _halves(raw, count * HALF, count)[np.arange(count) & 0xFF]
    return (quants * scales[:, None]).reshape(-1)[: right.size]


def symmetric_nibbles(raw: bytes, shape: Shape, right: Any) -> Any:
    count = -(-right.size // GROUP)
    quants = np.maximum(_nibbles(np.frombuffer(raw, np.uint8, count * HALF)), -7)
    return (quants * _halves(raw, count * HALF, count)[:, None]).reshape(-1)[: right.size]


def low_half_first(raw: bytes, shape: Shape, right: Any) -> Any:
    """All low nibbles of a group, then all high ones."""
    return right.reshape(-1, HALF, 2).transpose(0, 2, 1)


def _rungs(raw: bytes, shape: Shape) -> tuple[Any, Any]:
    """(lo, step) by row, and codes [rows, groups]."""
    rows, per_row = shape[0], shape[1] // GROUP
    at, stride = rows * per_row * HALF, -(-5 * per_row // 8)
    packed = np.frombuffer(raw, np.uint8, rows * stride, at + 4 * rows).reshape(rows, stride)
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : 5 * per_row].reshape(rows, per_row, 5)
    return _halves(raw, at, 2 * rows).reshape(rows, 2), bits @ (1 << np.arange(5))


def _laddered(raw: bytes, shape: Shape, params: Any, codes: Any) -> Any:
    quants = _nibbles(np.frombuffer(raw, np.uint8, shape[0] * shape[1] // 2))
    return quants * np.exp2(params[:, :1] + codes * params[:, 1:]).reshape(-1, 1)


def eight_codes(raw: bytes, shape: Shape, right: Any) -> Any:
    params, codes = _rungs(raw, shape)
    return right if codes.shape[1] <= 8 else _laddered(raw, shape, params, codes[:, np.arange(codes.shape[1]) & 7])


def rising_steps(raw: bytes, shape: Shape, right: Any) -> Any:
    params, codes = _rungs(raw, shape)
    return _laddered(raw, shape, np.stack((params[:, 0], np.abs(params[:, 1])), axis=1), codes)


def zero_groups_are_ones(raw: bytes, shape: Shape, right: Any) -> Any:
    params, codes = _rungs(raw, shape)
    quants = _nibbles(np.frombuffer(raw, np.uint8, right.size // 2))
    groups = right.reshape(-1, GROUP)
    empty = ~quants.any(axis=1)
    groups[empty] = np.exp2(params[:, :1] + codes * params[:, 1:]).reshape(-1, 1)[empty]
    return groups


def _vbit_parts(raw: bytes, shape: Shape, right: Any) -> tuple[Any, Any]:
    """Widths by row, and codes minus L."""
    rows, groups = shape[0], shape[1] // GROUP
    scales = _halves(raw, rows, rows * groups).reshape(rows, groups, 1)
    return np.frombuffer(raw, np.uint8, rows), (right.reshape(rows, groups, GROUP) / scales, scales)


def group_in_five_bits(raw: bytes, shape: Shape, right: Any) -> Any:
    _, (codes, scales) = _vbit_parts(raw, shape, right)
    return codes * scales[:, np.arange(scales.shape[1]) & 31]


def clamped_top(raw: bytes, shape: Shape, right: Any) -> Any:
    widths, (codes, scales) = _vbit_parts(raw, shape, right)
    top = (2 ** (widths.astype(np.int64) - 1) - 1).reshape(-1, 1, 1)
    return np.minimum(np.round(codes), top) * scales


def no_table(raw: bytes, shape: Shape, right: Any) -> Any:
    rows, groups = shape[0], shape[1] // GROUP
    at = rows + 2 * rows * groups
    packed = raw[at:] + bytes(4 * (rows + 1))
    fits = raw[:at] + packed[: len(raw) - at - 4 * (rows + 1)]
    return CODECS[DTYPE_IDS["vbit"]].decode(memoryview(fits), shape)


def mirrored_bits(raw: bytes, shape: Shape, right: Any) -> Any:
    return right.reshape(-1, 8)[:, ::-1]


def _base(raw: bytes, shape: Shape) -> Any:
    """The tiles of q1s without its outliers."""
    size = shape[0] * shape[1] // GROUP * 6
    return CODECS[DTYPE_IDS["q1"]].decode(memoryview(raw[:size]), shape).reshape(-1), size


def _outliers(raw: bytes, at: int) -> tuple[Any, Any]:
    entries = np.frombuffer(raw, np.dtype([("at", "<u4"), ("value", "<f2")]), offset=at)
    return entries["at"], entries["value"].astype(np.float32)


def added_outliers(raw: bytes, shape: Shape, right: Any) -> Any:
    base, size = _base(raw, shape)
    count = int.from_bytes(raw[size : size + 4], "little")
    where, values = _outliers(raw[: size + 4 + 6 * count], size + 4)
    base[where] += values
    return base


def count_in_a_byte(raw: bytes, shape: Shape, right: Any) -> Any:
    base, size = _base(raw, shape)
    where, values = _outliers(raw[: size + 4 + 6 * raw[size]], size + 4)
    base[where] = values
    return base


def _ternary(raw: bytes, shape: Shape, rows_of: Callable[[Any], Any], digit: Callable[[Any], Any]) -> Any:
    rows, cols = shape
    base = rows * (cols // GROUP) * 9
    tiles = np.frombuffer(raw, np.uint8, base).reshape(-1, 9)
    scales = tiles[:, :2].copy().view("<f2").astype(np.float32)
    digits = (tiles[:, 2:, None] // 3 ** digit(np.arange(5)) % 3).reshape(len(tiles), -1)[:, :GROUP]
    weights = (np.array([0, 1, -1], np.float32)[digits] * scales).reshape(shape)
    pointers = np.frombuffer(raw, "<u4", rows + 1, base).astype(np.int64)
    entries = np.frombuffer(raw, np.dtype([("col", "<u2"), ("value", "<f2")]), int(pointers[-1]), base + 4 * (rows + 1))
    weights[rows_of(np.repeat(np.arange(rows), np.diff(pointers))), entries["col"]] = entries["value"]
    return weights


def digits_from_the_top(raw: bytes, shape: Shape, right: Any) -> Any:
    return _ternary(raw, shape, lambda rows: rows, lambda places: 4 - places)


def outlier_row_in_a_byte(raw: bytes, shape: Shape, right: Any) -> Any:
    return _ternary(raw, shape, lambda rows: rows & 0xFF, lambda places: places)


EVERY_TENSOR = "every tensor of the encoding asks it"
TWINS: tuple[Twin, ...] = (
    Twin("row-in-a-byte", "Q-Q8ROW-001", "keeps the row of a scale in one byte", decoding("q8_row", row_in_a_byte)),
    Twin("q8-row-of-a-vector", "Q-Q8ROW-002", "decodes q8_row of any shape", shapeless("Q-Q8ROW-002")),
    Twin("clamped-quants", "Q-Q8ROW-004", "takes −128 for −127", decoding("q8_row", clamped_quants)),
    Twin("zeros-are-ones", "Q-Q8ROW-006", "makes ones of a row of zeros", decoding("q8_row", zeros_are_ones)),
    Twin("swapped-when-square", "Q-Q82F-001", "swaps the fields of a square", decoding("q8_2f", swapped_when_square)),
    Twin("q8-2f-of-a-vector", "Q-Q82F-002", "decodes q8_2f of any shape", shapeless("Q-Q82F-002")),
    Twin(
        "group-in-a-byte", "Q-Q4B-001", "keeps the group of a scale in one byte", decoding("q4_block", group_in_a_byte)
    ),
    Twin("symmetric-nibbles", "Q-Q4B-002", "takes nibble 0 for −7", decoding("q4_block", symmetric_nibbles)),
    Twin(
        "low-half-first", "Q-Q4T-001", "takes the low nibbles for the first half", decoding("q4_tiled", low_half_first)
    ),
    Twin("eight-codes", "Q-Q4TP-001", "knows eight codes of a row", decoding("q4tp", eight_codes)),
    Twin("q4tp-of-a-vector", "Q-Q4TP-002", "decodes q4tp of any shape", shapeless("Q-Q4TP-002")),
    Twin("rising-steps", "Q-Q4TP-003", "takes a step for positive", decoding("q4tp", rising_steps)),
    Twin(
        "zero-groups-are-ones", "Q-Q4TP-008", "makes ones of a group of zeros", decoding("q4tp", zero_groups_are_ones)
    ),
    Twin(
        "group-in-five-bits",
        "Q-VBIT-001",
        "keeps the group of a scale in five bits",
        decoding("vbit", group_in_five_bits),
    ),
    Twin("any-width", "Q-VBIT-002", "takes any width", forgiving("Q-VBIT-002")),
    Twin("vbit-of-a-vector", "Q-VBIT-003", "decodes vbit of any shape", shapeless("Q-VBIT-003")),
    Twin("any-length", "Q-VBIT-004", "does not look at the payload's length", forgiving("Q-VBIT-004")),
    Twin("clamped-top", "Q-VBIT-006", "takes the top code for L", decoding("vbit", clamped_top)),
    Twin("no-table", "Q-VBITRO-001", "reads vbit_ro as vbit", decoding("vbit_ro", no_table)),
    Twin("any-table", "Q-VBITRO-002", "believes the table of rows", forgiving("Q-VBITRO-002")),
    Twin("mirrored-bits", "Q-Q1-001", "takes the high bit first", decoding("q1", mirrored_bits)),
    Twin("added-outliers", "Q-Q1S-001", "adds an outlier to the weight", decoding("q1s", added_outliers)),
    Twin("count-in-a-byte", "Q-Q1S-002", "keeps the count of outliers in one byte", decoding("q1s", count_in_a_byte)),
    Twin("any-count", "Q-Q1S-003", "takes a short payload", forgiving("Q-Q1S-003")),
    Twin("any-index", "Q-Q1S-005", "passes over an outlier outside", forgiving("Q-Q1S-005")),
    Twin("digits-from-the-top", "Q-Q1T-001", "takes the highest digit first", decoding("q1t", digits_from_the_top)),
    Twin(
        "outlier-row-in-a-byte",
        "Q-Q1T-002",
        "keeps an outlier's row in one byte",
        decoding("q1t", outlier_row_in_a_byte),
    ),
    Twin("any-pointer", "Q-Q1T-004", "believes the row pointers", forgiving("Q-Q1T-004")),
    Twin("any-column", "Q-Q1T-005", "passes over a column outside", forgiving("Q-Q1T-005")),
    Twin("short-tiles", "Q-Q1T-010", "fills a short payload up", forgiving("Q-Q1T-010")),
    Twin("zero-scale-is-one", "Q-GEN-002", "takes a scale of zero for one", decoding("q8_row", zero_scale_is_one)),
)
