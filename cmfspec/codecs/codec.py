"""What an encoding is (§3.1, §3.2): one frozen record, and the few helpers that every family shares.

Law: `formula` is the text's own sentence in numpy, exact in float32, evaluated left to right. Every length and offset in a
payload is checked before it is used; what is wrong there is a `Refusal`, never a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.errors import Fault, Refusal, refusal
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F32 = NDArray[np.float32]
    Formula = Callable[[memoryview, tuple[int, ...]], F32]


@dataclass(frozen=True, slots=True)
class Codec:
    """One encoding.

    id, name: as §3.1 numbers and names them.
    nbytes: (n, rows, cols) -> payload size in bytes, from the element count and, for matrices, the shape; written with
        `+ - * // |` only, so that it takes arrays of uint64 too. None where the payload's length varies.
    formula: (payload, shape) -> float32 of that shape. Raises Bounds or Parse.
    matrix: exists for `[out, in]` only. multiple: `in` is a multiple of it.
    feature: the bit of `required_features` that a file with it sets (§1.1).
    weight: False for what is carried as bytes and decodes to no weight (`u8`, §12).
    """

    id: int
    name: str
    nbytes: Callable[[Any, Any, Any], Any] | None
    formula: Formula
    matrix: bool = False
    multiple: int = 1
    feature: int | None = None
    weight: bool = True

    def decode(self, payload: memoryview, shape: tuple[int, ...]) -> F32:
        """The formula, silent about the infinities and NaNs that a scale may hold. Raises Bounds or Parse."""
        with np.errstate(all="ignore"):
            return self.formula(payload, shape)

    def shape_fault(self, ndim: int, cols: int) -> str | None:
        """What the encoding wants of a shape that it can't have, in words; None if it can."""
        if self.matrix and ndim != 2:
            return "2 dimensions"
        if self.multiple > 1 and cols % self.multiple:
            return f"columns in multiples of {self.multiple}"
        return None


def bad(rule: str, field: str, offset: int, found: object, wanted: object, kind: str = "Bounds") -> Refusal:
    """The refusal of a payload; `offset` counts from the payload's first byte."""
    return refusal(Fault(kind, rule, field, offset, str(found), str(wanted)))


def exact(rule: str, payload: memoryview, size: int) -> None:
    """Refuse a payload that isn't exactly `size` bytes."""
    if len(payload) != size:
        raise bad(rule, "payload", 0, f"{len(payload)} bytes", f"{size} bytes")


def f16(payload: memoryview, offset: int, count: int) -> F32:
    """`count` halves from `offset` on, as float32."""
    return np.frombuffer(payload, "<f2", count, offset).astype(np.float32)


def u8(payload: memoryview, offset: int, count: int) -> NDArray[np.uint8]:
    """`count` bytes from `offset` on."""
    return np.frombuffer(payload, np.uint8, count, offset)


def grouped(values: F32, scales: F32, shape: tuple[int, ...]) -> F32:
    """`values` [groups, 32] times the scale of each group, in `shape`."""
    return (values * scales.reshape(-1, 1)).reshape(shape)


def ceil_div(a: Any, b: int) -> Any:
    """⌈a/b⌉ for non-negative integers or arrays of them."""
    return (a + (b - 1)) // b


def groups(cols: Any) -> Any:
    """Groups of 32 in a row."""
    return cols // GROUP
