"""What an encoding is (§3.1, §3.2): one frozen record, and the few helpers that every family shares.

Law: `formula` is the text's own sentence in numpy, exact in float32, evaluated left to right. Every length and offset in a
payload is checked before it is used; what is wrong there is a `Refusal`, never a value. A formula works in the array that
it returns, so that a tensor can be decoded where it is wanted, with no second copy of that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cmfspec.errors import Fault, Refusal, refusal
from cmfspec.kernels.worth import DECODE_ALONE, worth
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.stored import Stored

    F32 = NDArray[np.float32]


NARROW = 256  # columns: below, rows are too many and too short for what a kernel must be told of each


class Formula(Protocol):
    """(payload, shape, where the values go: a new array if None) -> those values."""

    def __call__(self, payload: memoryview, shape: tuple[int, ...], out: F32 | None = None, /) -> F32:
        """Raises Bounds or Parse."""
        ...


class Fast(Protocol):
    """(payload, shape, whether a matrix must lie in its own rows) -> the tensor, checked and ready for kernels."""

    def __call__(self, payload: memoryview, shape: tuple[int, ...], by_row: bool, /) -> Stored:
        """Raises Bounds or Parse."""
        ...


@dataclass(frozen=True, slots=True)
class Codec:
    """One encoding.

    id, name: as §3.1 numbers and names them.
    nbytes: (n, rows, cols) -> payload size in bytes, from the element count and, for matrices, the shape; written with
        `+ - * // |` only, so that it takes arrays of uint64 too. None where the payload's length varies.
    formula: (payload, shape, out) -> float32 of that shape, `out` if that is given. Raises Bounds or Parse.
    fast: the same for kernels; None for what has no values.
    matrix: exists for `[out, in]` only. multiple: `in` is a multiple of it.
    feature: the bit of `required_features` that a file with it sets (§1.1).
    weight: False for what is carried as bytes and decodes to no weight (`u8`, §12).
    """

    id: int
    name: str
    nbytes: Callable[[Any, Any, Any], Any] | None
    formula: Formula
    fast: Fast | None
    matrix: bool = False
    multiple: int = 1
    feature: int | None = None
    weight: bool = True

    def decode(self, payload: memoryview, shape: tuple[int, ...], out: F32 | None = None) -> F32:
        """What the formula says, silent about the infinities and NaNs that a scale may hold; by a kernel if that is worth it.

        out: the array to decode into and return: float32, of this shape, C-contiguous, writable. Raises ValueError for
        another; Bounds or Parse, after which `out` may hold anything.
        """
        if out is not None and not _fits(out, shape):
            raise ValueError(f"out: {_described(out)}, wanted a writable C-contiguous float32 array of {list(shape)}")
        with np.errstate(all="ignore"):
            size = 4 * math.prod(shape)
            if self.fast and worth(size, DECODE_ALONE) and not (self.matrix and shape[1] < NARROW):
                return self.fast(payload, shape, False).decode(out)
            return self.formula(payload, shape, out)

    def stored(self, payload: memoryview, shape: tuple[int, ...]) -> Stored:
        """The tensor ready to be multiplied, all that is in its payload checked. Raises Bounds or Parse."""
        if self.fast is None:
            self.formula(payload, shape)
            raise bad("DT-004", "dtype", 0, self.name, "an encoding of weights", kind="Parse")
        with np.errstate(all="ignore"):
            return self.fast(payload, shape, True)

    def matvec(self, payload: memoryview, shape: tuple[int, ...], x: F32, threads: int | None = None) -> F32:
        """float32 [out]: the matrix [out, in] times x, float32 [in] (see `Stored.matvec`). For many x keep `stored`."""
        return self.stored(payload, shape).matvec(x, threads)

    def matmat(self, payload: memoryview, shape: tuple[int, ...], xs: F32, threads: int | None = None) -> F32:
        """float32 [m, out] of xs, float32 [m, in] (see `Stored.matmat`)."""
        return self.stored(payload, shape).matmat(xs, threads)

    def shape_fault(self, ndim: int, cols: int) -> str | None:
        """What the encoding wants of a shape that it can't have, in words; None if it can."""
        if self.matrix and ndim != 2:
            return "2 dimensions"
        if self.multiple > 1 and cols % self.multiple:
            return f"columns in multiples of {self.multiple}"
        return None


def _fits(out: F32, shape: tuple[int, ...]) -> bool:
    same: bool = isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == tuple(shape)
    return same and out.flags.c_contiguous and out.flags.writeable


def _described(out: object) -> str:
    if not isinstance(out, np.ndarray):
        return f"a {type(out).__name__}"
    how = [
        name
        for name, is_so in (("read-only", not out.flags.writeable), ("strided", not out.flags.c_contiguous))
        if is_so
    ]
    return " ".join((*how, f"{out.dtype} {list(out.shape)}"))


def room(shape: tuple[int, ...], out: F32 | None) -> F32:
    """Where the values go. To be asked for once the payload's length is known to be right: a shape alone proves nothing.

    Raises Other for a shape of no elements whose other dimensions are more than an array can have."""
    if out is not None:
        return out
    try:
        return np.empty(shape, np.float32)
    except ValueError:
        if 0 not in shape:
            raise
    raise bad("DIR-017", "shape", 0, list(shape), "dimensions that an array can have", kind="Other")


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


def grouped(weights: F32, scales: F32) -> F32:
    """`weights`, each group of 32 multiplied in place by its scale."""
    by_group = weights.reshape(-1, GROUP)
    by_group *= scales.reshape(-1, 1)
    return weights


def ceil_div(a: Any, b: int) -> Any:
    """⌈a/b⌉ for non-negative integers or arrays of them."""
    return (a + (b - 1)) // b


def groups(cols: Any) -> Any:
    """Groups of 32 in a row."""
    return cols // GROUP
