"""Work in pieces, on all cores.

Law: a piece's result depends on the piece alone, so the bits are the same on one thread and on many. Kernels run without the
interpreter's lock; whoever is free takes the next piece, so a core that is busy elsewhere delays only the piece it holds.
Plain threads, and none of numba's: a fork after those dies, a fork after these makes new ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import count as counting
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
PIECE = 2**20  # bytes of work: long beside handing a piece over, short beside the whole


def cores() -> int:
    """Those that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # it loads logging: not for a small file

    return ThreadPoolExecutor(workers, "cmfspec-kernel")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads stayed behind


def spread(work: Callable[[int, int], T], count: int, each: int, threads: int | None = None) -> list[T]:
    """`work(from, to)` over `count` units of about `each` bytes, in pieces; the results in order of the pieces.

    threads: None for one a core. Raises what a piece raises.
    """
    step = max(1, PIECE // max(1, each))
    pieces = -(-count // step)
    results: dict[int, T] = {}
    numbers = counting()  # `next` of it is atomic

    def pull() -> None:
        while (piece := next(numbers)) < pieces:
            results[piece] = work(piece * step, min((piece + 1) * step, count))

    workers = min(cores() if threads is None else threads, pieces) - 1
    helpers = [_pool(workers).submit(pull) for _ in range(workers)]
    try:
        pull()
    finally:
        for helper in helpers:
            helper.cancel() or helper.result()  # one that hasn't started is not waited for
    return [results[piece] for piece in range(pieces)]
