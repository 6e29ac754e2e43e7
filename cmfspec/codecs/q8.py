"""q8_row and q8_2f: eight bits a weight (§3.2).

Law: `w = q[o,i]·scale[o]`, and with the second field `w = q·row[o]·col[i]`; the quants come first, then the scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.codec import Codec, exact, f16, room
from cmfspec.codecs.stored import Stored, places
from cmfspec.layout import DTYPE_IDS, GROUP, QUANT_2F

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32, Fast, Formula


def _q8_row(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    """`[int8 : out·in][f16 : out]`."""
    rows, cols = shape
    exact("DIR-020", payload, rows * cols + 2 * rows)
    weights = room(shape, out)
    weights[...] = np.frombuffer(payload, np.int8, rows * cols).reshape(shape)
    weights *= f16(payload, rows * cols, rows)[:, None]
    return weights


def _q8_2f(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    """`[int8][f16 row-scale][f16 col-field]`."""
    rows, cols = shape
    exact("DIR-020", payload, rows * cols + 2 * rows + 2 * cols)
    weights = room(shape, out)
    weights[...] = np.frombuffer(payload, np.int8, rows * cols).reshape(shape)
    weights *= f16(payload, rows * cols, rows)[:, None]
    weights *= f16(payload, rows * cols + 2 * rows, cols)
    return weights


def _fast(name: str, formula: Formula) -> Fast:
    """Rows of whole groups; the formula does the columns that are left."""

    def stored(payload: memoryview, shape: tuple[int, ...], _: bool) -> Stored:
        rows, cols = shape
        size, whole = rows * cols, cols // GROUP * GROUP
        field = name == "q8_2f"
        exact("DIR-020", payload, size + 2 * rows + (2 * cols if field else 0))
        tail = None
        if cols % GROUP:
            quants = np.frombuffer(payload, np.uint8, size).reshape(shape)[:, whole:].tobytes()
            scales, columns = payload[size : size + 2 * rows], payload[size + 2 * rows + 2 * whole :]
            tail = formula(memoryview(b"".join((quants, scales, columns))), (rows, cols % GROUP))
        return Stored(
            payload, shape, rows, cols, (name,), places(rows, cols), places(rows, 2, size), tail=tail,
            field=f16(payload, size + 2 * rows, cols)[None] if field else None,
        )  # fmt: skip

    return stored


CODECS = (
    Codec(
        DTYPE_IDS["q8_row"],
        "q8_row",
        lambda n, rows, cols: n + 2 * rows,  # noqa: ARG005
        _q8_row,
        _fast("q8_row", _q8_row),
        matrix=True,
    ),
    Codec(
        DTYPE_IDS["q8_2f"],
        "q8_2f",
        lambda n, rows, cols: n + 2 * rows + 2 * cols,
        _q8_2f,
        _fast("q8_2f", _q8_2f),
        matrix=True,
        feature=QUANT_2F,
    ),
)
