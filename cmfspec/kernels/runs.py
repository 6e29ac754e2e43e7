"""Decoding, and products with vectors, of tensors that lie in runs (see `vector`), row by row.

Law: a row is one run, then its overlay, later entries over earlier ones. Each kernel does the rows from `low` to `high` and
writes only what is theirs, so any cut into pieces gives the same bits.

Arguments that all share: kinds, ats, scale_ats i64[rows]: of each row's run; field f32[:], field_step: floats from row to
row; count: groups in a row; width: floats from row to row of the output; pointers i64[rows + 1], columns i64[:], values
f32[:]: the overlay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmfspec.kernels.compiled import inlined, kernel
from cmfspec.kernels.vector import dot, dot_floats, put
from cmfspec.layout import GROUP


@inlined
def overlaid(out: Any, at: int, pointers: Any, columns: Any, values: Any, row: int) -> None:
    """Put the overlay of a row over what lies in `out` from `at` on."""
    for entry in range(pointers[row], pointers[row + 1]):
        out[at + columns[entry]] = values[entry]


@kernel
def decode(
    data: Any, kinds: Any, ats: Any, scale_ats: Any, field: Any, field_step: int, count: int, pointers: Any, columns: Any,
    values: Any, out: Any, width: int, low: int, high: int,
) -> None:  # fmt: skip
    """out f32[:]: every row, `width` floats apart."""
    for row in range(low, high):
        put(kinds[row], data, ats[row], scale_ats[row], field, row * field_step, out, row * width, count)
        overlaid(out, row * width, pointers, columns, values, row)


@kernel
def matvec(
    data: Any, kinds: Any, ats: Any, scale_ats: Any, field: Any, field_step: int, count: int, pointers: Any, columns: Any,
    values: Any, x: Any, y: Any, low: int, high: int,
) -> None:  # fmt: skip
    """y f32[rows]: the sum of each row times x f32[:]."""
    weights = np.empty(count * GROUP, np.float32)
    for row in range(low, high):
        if pointers[row] == pointers[row + 1]:
            y[row] = dot(kinds[row], data, ats[row], scale_ats[row], field, row * field_step, x, count)
        else:
            put(kinds[row], data, ats[row], scale_ats[row], field, row * field_step, weights, 0, count)
            overlaid(weights, 0, pointers, columns, values, row)
            y[row] = dot_floats(weights, x, 0, count)


@kernel
def matmat(
    data: Any, kinds: Any, ats: Any, scale_ats: Any, field: Any, field_step: int, count: int, pointers: Any, columns: Any,
    values: Any, xs: Any, stride: int, ys: Any, low: int, high: int,
) -> None:  # fmt: skip
    """ys f32[m, rows]: the same for each of m vectors, which lie `stride` floats apart in xs f32[:]."""
    weights = np.empty(count * GROUP, np.float32)
    for row in range(low, high):
        put(kinds[row], data, ats[row], scale_ats[row], field, row * field_step, weights, 0, count)
        overlaid(weights, 0, pointers, columns, values, row)
        for vector in range(ys.shape[0]):
            ys[vector, row] = dot_floats(weights, xs, vector * stride, count)
