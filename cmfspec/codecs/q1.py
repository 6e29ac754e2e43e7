"""q1, q1s and q1t: one bit, one bit with outliers, three states with outliers (§3.1).

Law: q1 tiles are `[f16 scale][4B sign bits]`, bit k of byte j is weight 8j + k, `w = s·(2·bit − 1)`; q1t tiles are
`[f16 scale][7B base-3]`, digit k of byte j (the least significant first) is weight 5j + k, 0 → 0, 1 → +s, 2 → −s. An
overlay's values replace what the tiles say; one that is short or points outside is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.codec import Codec, bad, exact, grouped, groups, room, u8
from cmfspec.codecs.stored import NONE, Overlay, Stored, places
from cmfspec.layout import DTYPE_IDS, GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

Q1_TILE, Q1T_TILE = 6, 9
POWERS = np.array([1, 3, 9, 27, 81], np.uint8)  # of the digits in a byte: 3^5 = 243


def _at_least(rule: str, payload: memoryview, size: int) -> None:
    if len(payload) < size:
        raise bad(rule, "payload", 0, f"{len(payload)} bytes", f"at least {size} bytes")


def _tiles(payload: memoryview, shape: tuple[int, ...], rule: str, out: F32 | None) -> F32:
    count = shape[0] * groups(shape[1])
    _at_least(rule, payload, count * Q1_TILE)
    tiles = u8(payload, 0, count * Q1_TILE).reshape(-1, Q1_TILE)
    scales = tiles[:, :2].copy().view("<f2").astype(np.float32)
    weights = room(shape, out)
    weights.reshape(-1, GROUP)[...] = np.unpackbits(tiles[:, 2:], axis=1, bitorder="little")
    weights *= np.float32(2)
    weights -= np.float32(1)
    return grouped(weights, scales)


def _q1(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    exact("DIR-020", payload, shape[0] * groups(shape[1]) * Q1_TILE)
    return _tiles(payload, shape, "DIR-020", out)


def _q1s(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    weights = _tiles(payload, shape, "Q-Q1S-003", out)
    where, values = _outliers(payload, shape)
    weights.reshape(-1)[where] = values
    return weights


def _outliers(payload: memoryview, shape: tuple[int, ...]) -> tuple[NDArray[np.uint32], F32]:
    """Flat indices and values: base, then `[u32 count]` and `count × { [u32 flat index][f16 value] }`."""
    at = shape[0] * groups(shape[1]) * Q1_TILE
    if len(payload) < at + 4:
        raise bad("Q-Q1S-003", "count", at, f"{len(payload) - at} bytes", "4 bytes")
    count = int.from_bytes(payload[at : at + 4], "little")
    if count > (len(payload) - at - 4) // 6:
        raise bad("Q-Q1S-003", "count", at, count, f"at most {(len(payload) - at - 4) // 6}")
    entries = u8(payload, at + 4, 6 * count).reshape(-1, 6)
    where = entries[:, :4].copy().view("<u4").reshape(-1)
    size = shape[0] * shape[1]
    outside = where >= size
    if outside.any():
        entry = int(outside.argmax())
        raise bad("Q-Q1S-005", f"index[{entry}]", at + 4 + 6 * entry, where[entry], f"below {size}")
    return where, entries[:, 4:].copy().view("<f2").astype(np.float32).reshape(-1)


def _q1t(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    rows, cols = shape
    base = rows * groups(cols) * Q1T_TILE
    _at_least("Q-Q1T-010", payload, base + 4 * (rows + 1))
    tiles = u8(payload, 0, base).reshape(-1, Q1T_TILE)
    scales = tiles[:, :2].copy().view("<f2").astype(np.float32)
    digits = tiles[:, 2:, None] // POWERS
    digits %= np.uint8(3)
    digits = digits.reshape(len(tiles), (Q1T_TILE - 2) * len(POWERS))[:, :GROUP]
    weights = room(shape, out)
    by_tile = weights.reshape(-1, GROUP)
    by_tile[...] = digits
    np.copyto(by_tile, np.float32(-1), where=digits == 2)
    by_tile *= scales
    np.copyto(by_tile, np.float32(0), where=digits == 0)  # 0 is 0, whatever the scale
    pointers, columns, values = _listed(payload, shape)
    weights[np.repeat(np.arange(rows), np.diff(pointers)), columns] = values
    return weights


def _listed(payload: memoryview, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.uint16], F32]:
    """(row pointers, columns, values): base, then `[u32 row_ptr[rows+1]]` and `{ [u16 col][f16 value] }`."""
    rows, cols = shape
    base = rows * groups(cols) * Q1T_TILE
    at = base + 4 * (rows + 1)
    pointers = np.frombuffer(payload, "<u4", rows + 1, base).astype(np.int64)
    present = (len(payload) - at) // 4
    wrong = (pointers < np.concatenate(([0], pointers[:-1]))) | (pointers > present)
    wrong[0] = pointers[0] != 0
    if wrong.any():
        row = int(wrong.argmax())
        raise bad(
            "Q-Q1T-004", f"row_ptr[{row}]", base + 4 * row, pointers[row], f"0 first, then rising to at most {present}"
        )
    entries = np.frombuffer(payload, "<u2", 2 * int(pointers[-1]), at).reshape(-1, 2)
    outside = entries[:, 0] >= cols
    if outside.any():
        entry = int(outside.argmax())
        raise bad("Q-Q1T-005", f"col[{entry}]", at + 4 * entry, entries[entry, 0], f"below {cols}")
    return pointers, entries[:, 0], entries[:, 1].copy().view("<f2").astype(np.float32)


def _q1_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    exact("DIR-020", payload, shape[0] * groups(shape[1]) * Q1_TILE)
    return _stored(payload, shape, "q1", Q1_TILE, None)


def _q1s_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    """The outliers by row, those of a row in the order in which they stand."""
    rows, cols = shape
    _at_least("Q-Q1S-003", payload, rows * groups(cols) * Q1_TILE)
    where, values = _outliers(payload, shape)
    if (where[1:] < where[:-1]).any():
        order = np.argsort(where, kind="stable")
        where, values = where[order], values[order]
    pointers = np.searchsorted(where, cols * np.arange(rows + 1)).astype(np.int64)
    columns = where.astype(np.int64) - np.repeat(cols * np.arange(rows), np.diff(pointers))
    return _stored(payload, shape, "q1", Q1_TILE, Overlay(pointers, columns, values))


def _q1t_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    rows, cols = shape
    _at_least("Q-Q1T-010", payload, rows * groups(cols) * Q1T_TILE + 4 * (rows + 1))
    pointers, columns, values = _listed(payload, shape)
    return _stored(payload, shape, "q1t", Q1T_TILE, Overlay(pointers, columns.astype(np.int64), values))


def _stored(payload: memoryview, shape: tuple[int, ...], kind: str, tile: int, overlay: Overlay | None) -> Stored:
    rows, cols = shape
    starts = places(rows, groups(cols) * tile)
    return Stored(payload, shape, rows, cols, (kind,), starts, starts, overlay=overlay or NONE)


CODECS = (
    Codec(
        DTYPE_IDS["q1"],
        "q1",
        lambda n, rows, cols: n // GROUP * Q1_TILE,  # noqa: ARG005
        _q1,
        _q1_fast,
        matrix=True,
        multiple=GROUP,
    ),
    Codec(DTYPE_IDS["q1s"], "q1s", None, _q1s, _q1s_fast, matrix=True, multiple=GROUP),
    Codec(DTYPE_IDS["q1t"], "q1t", None, _q1t, _q1t_fast, matrix=True, multiple=GROUP),
)
