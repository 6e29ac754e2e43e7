"""f32, f16, bf16 and the raw bytes of u8 (§3.1, §12).

Law: `n` elements of fixed width, little-endian, row-major, of any rank; what the widening to float32 makes of them is
exact, NaN payloads included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.codecs.codec import Codec, bad, exact, room
from cmfspec.codecs.stored import LINE, Stored, places
from cmfspec.layout import DTYPE_IDS, GROUP

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32, Fast, Formula


def _f32(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    exact("DT-001", payload, 4 * _count(shape))
    weights = room(shape, out)
    weights[...] = np.frombuffer(payload, "<f4").reshape(shape)
    return weights


def _f16(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    exact("DT-002", payload, 2 * _count(shape))
    weights = room(shape, out)
    weights[...] = np.frombuffer(payload, "<f2").reshape(shape)
    return weights


def _bf16(payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
    """The upper half of a float32."""
    exact("DT-003", payload, 2 * _count(shape))
    weights = room(shape, out)
    bits = weights.view(np.uint32)
    bits[...] = np.frombuffer(payload, "<u2").reshape(shape)
    bits <<= np.uint32(16)
    return weights


def _no_weight(_: memoryview, __: tuple[int, ...], ___: F32 | None = None) -> F32:
    raise bad("DT-004", "dtype", 0, "u8, raw bytes", "an encoding of weights", kind="Parse")


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for dim in shape:
        total *= dim
    return total


def _fast(name: str, rule: str, width: int, formula: Formula) -> Fast:
    """Elements of `width` bytes in lines, or in rows; whatever is less than a line or a group is left to the formula."""

    def stored(payload: memoryview, shape: tuple[int, ...], by_row: bool) -> Stored:
        count = _count(shape)
        exact(rule, payload, width * count)
        tail = rest = None
        if by_row and len(shape) == 2:
            rows, cols = shape
            if cols % GROUP:
                elements = np.frombuffer(payload, np.uint8).reshape(rows, cols * width)
                last = elements[:, cols // GROUP * GROUP * width :].tobytes()
                tail = formula(memoryview(last), (rows, cols % GROUP))
        else:
            rows, cols = count // LINE, LINE
            rest = formula(payload[rows * LINE * width :], (count % LINE,))
        starts = places(rows, cols * width)
        return Stored(payload, shape, rows, cols, (name,), starts, starts, tail=tail, rest=rest)

    return stored


def _times(width: int) -> Any:
    return lambda n, rows, cols: n * width  # noqa: ARG005


CODECS = (
    Codec(DTYPE_IDS["f32"], "f32", _times(4), _f32, _fast("f32", "DT-001", 4, _f32)),
    Codec(DTYPE_IDS["f16"], "f16", _times(2), _f16, _fast("f16", "DT-002", 2, _f16)),
    Codec(DTYPE_IDS["bf16"], "bf16", _times(2), _bf16, _fast("bf16", "DT-003", 2, _bf16)),
    Codec(DTYPE_IDS["u8"], "u8", _times(1), _no_weight, None, weight=False),
)
