"""Decoding a matrix of every encoding into an array that is there, on two threads.

Law: nothing is faster than writing the weights, so `fill` of the same array is the other way. The bound is the same kernel
on the same payload, each row written over the one before, in the first cache: what is left where writing costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from bench.matrices import SIDE, THREADS, few_cores, stored
from bench.measure import Row, Ways
from cmfspec.codecs.stored import Stored
from cmfspec.kernels.threads import spread

AIMS = {
    **dict.fromkeys(("q8_row", "q4_block", "q4_tiled", "q1", "vbit"), 0.8),
    **dict.fromkeys(("q8_2f", "q1t", "q4tp", "q1s", "vbit_ro"), 0.45),
}


def in_place(matrix: Stored) -> None:
    """Decode, all rows of a piece into one."""
    from cmfspec.kernels import runs

    given = matrix._given()

    def piece(low: int, high: int) -> None:
        runs.decode(*given, np.empty(SIDE, np.float32), 0, low, high)

    spread(piece, SIDE, 4 * SIDE, THREADS)


@contextmanager
def decoding(name: str) -> Iterator[Ways]:
    """Decode, beside filling the same array."""
    matrix, out = stored(name), np.empty((SIDE, SIDE), np.float32)
    fill: Any = partial(out.fill, 1)
    yield Ways([partial(matrix.decode, out, THREADS)], [fill], out.nbytes / 1e6, [partial(in_place, matrix)])


ROWS = tuple(
    Row(
        f"decode-{name}", f"{name} {SIDE} × {SIDE} decoded, two threads", "`fill` of the same array", "MB", aim,
        partial(decoding, name), few_cores, "every row of a piece written over the one before, in cache", 2.0,
    )
    for name, aim in AIMS.items()
)  # fmt: skip
