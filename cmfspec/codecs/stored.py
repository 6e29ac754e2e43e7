"""A tensor as it lies in its payload, ready for kernels: to be decoded, or multiplied without being decoded (§3.2).

Law: whoever makes a `Stored` has checked every length, offset and width that stands in it; kernels check nothing. What is
decoded is the formula's, bit for bit. A product is that of those weights, summed in float32 in an order that depends on the
number of columns alone: the same bits on any number of threads, and for a vector alone or among others. NaN and infinities
survive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.kernels.threads import spread
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F32 = NDArray[np.float32]
    Places = NDArray[np.int64]

LINE = 128 * GROUP  # elements in a row of a tensor that is taken as one long line


@dataclass(frozen=True, slots=True)
class Overlay:
    """Values that replace weights: pointers i64[rows + 1] into columns i64[:] and values f32[:]. Of two for one weight the
    later counts."""

    pointers: Places
    columns: Places
    values: F32


NONE = Overlay(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that lies in rows of whole groups of 32, and what is left over.

    shape: of the tensor. rows, cols: of the rows as they lie. kinds: names in `kernels.vector.KINDS`; which: i64[rows], the
    place of a row's in those, the first if None. starts, scales: i64[rows], the byte of a row's first group and of its first
    scale in `payload`. field: f32[rows or 1, floats], for the kinds that want one. tail: f32[rows, cols % 32], the last
    columns, decoded. rest: f32[:], what comes after all rows.
    """

    payload: memoryview
    shape: tuple[int, ...]
    rows: int
    cols: int
    kinds: tuple[str, ...]
    starts: Places
    scales: Places
    which: Places | None = None
    field: F32 | None = None
    tail: F32 | None = None
    rest: F32 | None = None
    overlay: Overlay = NONE

    def decode(self, out: F32 | None = None, threads: int | None = None) -> F32:
        """The weights, float32 of the tensor's shape; in `out` if given, which has been checked."""
        from cmfspec.kernels import runs

        weights = np.empty(self.shape, np.float32) if out is None else out
        flat, given = weights.reshape(-1), self._given()
        spread(lambda low, high: runs.decode(*given, flat, self.cols, low, high), self.rows, 4 * self.cols, threads)
        if self.tail is not None:
            flat.reshape(self.rows, self.cols)[:, self.cols // GROUP * GROUP :] = self.tail
        if self.rest is not None:
            flat[self.rows * self.cols :] = self.rest
        return weights

    def matvec(self, x: F32, threads: int | None = None) -> F32:
        """float32 [out]: the matrix [out, in] times x, float32 [in]. Raises ValueError for another x or no matrix."""
        self._must_take(x, 1)
        if not self._in_rows():
            return self._floats().matvec(x, threads)
        from cmfspec.kernels import runs

        y, vector, given = np.empty(self.rows, np.float32), _still(x), self._given()
        spread(lambda low, high: runs.matvec(*given, vector, y, low, high), self.rows, self.cols, threads)
        products: F32 = self._with_tail(x[None], y[None])[0]
        return products

    def matmat(self, xs: F32, threads: int | None = None) -> F32:
        """float32 [m, out]: for each row of xs, float32 [m, in], the bits of its `matvec`. Raises ValueError likewise."""
        self._must_take(xs, 2)
        if not self._in_rows():
            return self._floats().matmat(xs, threads)
        from cmfspec.kernels import runs

        ys, vectors, given = np.empty((len(xs), self.rows), np.float32), _still(xs).reshape(-1), self._given()
        each = self.cols * max(1, len(xs))
        spread(lambda low, high: runs.matmat(*given, vectors, self.cols, ys, low, high), self.rows, each, threads)
        return self._with_tail(xs, ys)

    def _given(self) -> tuple[Any, ...]:
        """What every kernel is given first."""
        from cmfspec.kernels.vector import NUMBERS

        numbers = np.array([NUMBERS[kind] for kind in self.kinds], np.int64)
        which = np.zeros(self.rows, np.int64) if self.which is None else self.which
        field = np.zeros((1, 0), np.float32) if self.field is None else self.field
        pointers = self.overlay.pointers if len(self.overlay.pointers) else np.zeros(self.rows + 1, np.int64)
        return (
            _still(np.frombuffer(self.payload, np.uint8, len(self.payload))), numbers[which], self.starts, self.scales,
            field.reshape(-1), field.shape[1] if len(field) > 1 else 0, self.cols // GROUP, pointers,
            self.overlay.columns, self.overlay.values,
        )  # fmt: skip

    def _must_take(self, x: F32, ndim: int) -> None:
        if len(self.shape) != 2:
            raise ValueError(f"a tensor of shape {list(self.shape)} is no matrix")
        if x.ndim != ndim or x.shape[-1] != self.shape[1] or x.dtype != np.float32:
            wanted = ["m", self.shape[1]][2 - ndim :]
            raise ValueError(f"{x.dtype} {list(x.shape)}, wanted float32 [{', '.join(map(str, wanted))}]")

    def _in_rows(self) -> bool:
        return (self.rows, self.cols) == self.shape

    def _floats(self) -> Stored:
        """The same, decoded."""
        weights = self.decode()
        rows, cols = weights.shape
        starts = places(rows, 4 * cols)
        tail = weights[:, cols // GROUP * GROUP :] if cols % GROUP else None
        return Stored(
            weights.reshape(-1).view(np.uint8).data, (rows, cols), rows, cols, ("f32",), starts, starts, tail=tail
        )

    def _with_tail(self, xs: F32, ys: F32) -> F32:
        """Column by column, so that a vector alone and among others has the same bits."""
        if self.tail is not None:
            with np.errstate(all="ignore"):
                for column, weights in enumerate(self.tail.T, self.cols // GROUP * GROUP):
                    ys += xs[:, column, None] * weights
        return ys


def _still(array: NDArray[Any]) -> Any:
    """Contiguous, and read-only: one compiled kernel for all."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def places(rows: int, step: int, first: int = 0) -> Places:
    """Of things that follow each other."""
    return first + step * np.arange(rows, dtype=np.int64)
