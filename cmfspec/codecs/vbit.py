"""vbit and vbit_ro: three to eight bits a weight, chosen row by row (§3.2).

Law: `[u8 bits: rows][f16 scales: rows·in/32][vbit_ro only: u32 offsets: rows + 1][rows, MSB-first]`,
`w = (u − L)·scale[r,g]`, `L = 2^(b−1) − 1`, b of {3, 4, 5, 6, 8}. The payload has exactly that length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.codec import Codec, bad, exact, f16, grouped, groups, room, u8
from cmfspec.codecs.stored import Stored, places
from cmfspec.layout import DTYPE_IDS, GROUP, QUANT_2F

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

WIDTHS = (3, 4, 5, 6, 8)


def _widths(payload: memoryview, rows: int, cols: int, table: int) -> NDArray[np.int64]:
    """The width of each row, once they and the payload's length are known to be right. table: bytes of offsets."""
    fixed = rows + 2 * rows * groups(cols) + table
    if len(payload) < fixed:
        raise bad("Q-VBIT-004", "payload", 0, f"{len(payload)} bytes", f"at least {fixed} bytes")
    widths = u8(payload, 0, rows).astype(np.int64)
    wrong = ~np.isin(widths, WIDTHS)
    if wrong.any():
        row = int(wrong.argmax())
        raise bad("Q-VBIT-002", f"bits[{row}]", row, widths[row], "one of 3, 4, 5, 6, 8", kind="Parse")
    exact("Q-VBIT-004", payload, fixed + int(widths.sum()) * cols // 8)
    return widths


def _unpack(payload: memoryview, shape: tuple[int, ...], table: int, out: F32 | None) -> F32:
    rows, cols = shape
    widths = _widths(payload, rows, cols, table)
    scales = f16(payload, rows, rows * groups(cols))
    weights = room(shape, out)
    start = rows + 2 * rows * groups(cols) + table
    for row in range(rows):
        width = int(widths[row])
        size = cols * width // 8
        codes = np.unpackbits(u8(payload, start, size)).reshape(cols, width) @ (1 << np.arange(width)[::-1])
        weights[row] = codes - (2 ** (width - 1) - 1)
        start += size
    return grouped(weights, scales)


def _vbit(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    return _unpack(payload, shape, 0, out)


def _vbit_ro(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    rows, cols = shape
    table = _offsets(payload, shape, _widths(payload, rows, cols, 4 * (rows + 1)))
    return _unpack(payload, shape, table, out)


def _offsets(payload: memoryview, shape: tuple[int, ...], widths: NDArray[np.int64]) -> int:
    """The size of the table of offsets, which count from the first packed byte and must say what the widths say."""
    rows, cols = shape
    at = rows + 2 * rows * groups(cols)
    offsets = np.frombuffer(payload, "<u4", rows + 1, at).astype(np.int64)
    wanted = np.concatenate(([0], np.cumsum(widths * (cols // 8))))
    wrong = offsets != wanted
    if wrong.any():
        row = int(wrong.argmax())
        raise bad("Q-VBITRO-002", f"offsets[{row}]", at + 4 * row, offsets[row], wanted[row])
    return 4 * (rows + 1)


def _vbit_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    rows, cols = shape
    return _rows(payload, shape, _widths(payload, rows, cols, 0), 0)


def _vbit_ro_fast(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
    rows, cols = shape
    widths = _widths(payload, rows, cols, 4 * (rows + 1))
    return _rows(payload, shape, widths, _offsets(payload, shape, widths))


def _rows(payload: memoryview, shape: tuple[int, ...], widths: NDArray[np.int64], table: int) -> Stored:
    rows, cols = shape
    sizes = widths * (cols // 8)
    starts = rows + 2 * rows * groups(cols) + table + np.cumsum(sizes) - sizes
    kinds, which = tuple(f"vbit{width}" for width in WIDTHS), np.searchsorted(WIDTHS, widths).astype(np.int64)
    return Stored(payload, shape, rows, cols, kinds, starts, places(rows, 2 * groups(cols), rows), which)


CODECS = (
    Codec(DTYPE_IDS["vbit"], "vbit", None, _vbit, _vbit_fast, matrix=True, multiple=GROUP, feature=QUANT_2F),
    Codec(DTYPE_IDS["vbit_ro"], "vbit_ro", None, _vbit_ro, _vbit_ro_fast, matrix=True, multiple=GROUP),
)
