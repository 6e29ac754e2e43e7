"""Matrices in every encoding, for the rows that decode them and multiply with them.

Law: the encodings of one noise, by our encoders, so that outliers and widths are as they are in files; copies of a matrix
are made until together they are larger than any cache.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs import CODECS, encode
from cmfspec.codecs.stored import Stored
from cmfspec.kernels.threads import cores
from cmfspec.layout import DTYPE_IDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F32 = NDArray[np.float32]

SIDE = 4096  # rows and columns
BEYOND = 160 * 2**20  # bytes: past every cache
THREADS = 2


def few_cores() -> str:
    """Why two threads can't be measured."""
    return "" if cores() >= THREADS else "one core"


@cache
def floats() -> F32:
    """The weights before they are encoded."""
    return np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32) / np.float32(64)


def stored(name: str, rows: int = SIDE) -> Stored:
    """The first rows of the matrix, in that encoding."""
    shape = (rows, SIDE)
    return CODECS[DTYPE_IDS[name]].stored(memoryview(encode(name, floats()[:rows])), shape)


def copies(size: int) -> int:
    """How many things of that size are larger than the caches."""
    return max(3, -(-BEYOND // size))
