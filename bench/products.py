"""A matrix of every encoding times a vector, on two threads, from memory.

Law: BLAS on the same weights in float32 is the other way, on as many threads as it likes. Both go round copies that are
together larger than the caches. The bound is the same product with its rows' bytes in cache: what the arithmetic alone takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice

import numpy as np

from bench.matrices import SIDE, THREADS, copies, few_cores, floats, stored
from bench.measure import Row, Ways
from cmfspec.codecs.stored import Stored

CALLS = 12  # in a piece, so that what the way before left in the caches is little of it
PAUSE = 0.05  # seconds: the threads of BLAS wait busily for about half of it
NEAR = 32  # rows of which the bound makes all others
AIMS = {
    **dict.fromkeys(("q8_row", "q4_tiled"), 2.3),
    **dict.fromkeys(("f32", "f16", "bf16", "q8_2f", "q4_block", "q4tp", "q1", "q1s", "q1t", "vbit", "vbit_ro"), 1.0),
}


def near(matrix: Stored) -> Stored:
    """All rows where the first few are."""
    which = np.arange(SIDE) % NEAR
    kinds = None if matrix.which is None else matrix.which[which]
    return replace(matrix, starts=matrix.starts[which], scales=matrix.scales[which], which=kinds)


def afresh(matrix: Stored) -> Stored:
    """The same, its payload elsewhere in memory; numpy asks for large pages there, as it does for the floats of BLAS."""
    return replace(matrix, payload=np.array(matrix.payload).data)


def round_and_round(products: list[Callable[[], object]]) -> Callable[[], object]:
    """A piece: the next few of them each time."""
    turn = cycle(products)

    def piece() -> None:
        for product in islice(turn, CALLS):
            product()

    return piece


@contextmanager
def products(name: str) -> Iterator[Ways]:
    """Our product of the encoding, beside that of BLAS with its weights."""
    matrix, x = stored(name), np.random.default_rng(2).standard_normal(SIDE).astype(np.float32)
    ours = [afresh(matrix) for _ in range(copies(len(matrix.payload)))]
    theirs = [floats().copy() for _ in range(copies(floats().nbytes))]
    yield Ways(
        [round_and_round([partial(each.matvec, x, THREADS) for each in ours])],
        [round_and_round([partial(np.dot, each, x) for each in theirs])],
        CALLS * SIDE * SIDE / 1e6,
        [round_and_round([partial(near(matrix).matvec, x, THREADS)])],
        PAUSE,
    )


ROWS = tuple(
    Row(
        f"matvec-{name}", f"{name} {SIDE} × {SIDE} times a vector, two threads, from memory", "float32 by BLAS, from memory",
        "million weights", aim, partial(products, name), few_cores, "the same product, its rows' bytes in cache", 3.0,
    )
    for name, aim in AIMS.items()
)  # fmt: skip
