"""One row of the bench: two ways to do the same work, timed in turns.

Law: what is kept is a *ratio of minima*, other seconds / our seconds: a machine that is busy for a while slows both, and a
minimum is what the work costs when nothing else runs. The two are interleaved in one run, piece by piece, so that a piece is
short enough to be left alone now and then; medians stand beside the minima; absolute numbers are shown, never compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

ROUNDS = 5  # turns at least
SECONDS = 10.0  # turns go on until then
MOST = 200  # turns at most

Work = Sequence[Callable[[], object]]
Turns = tuple[tuple[float, ...], ...]  # for each piece, the seconds of each turn


@dataclass(frozen=True)
class Ways:
    """Two ways to do one work, both in the same number of pieces; amount: how much all of it is, in the row's unit."""

    ours: Work
    other: Work
    amount: float


@dataclass(frozen=True)
class Row:
    """name: also that of its baseline; ours, other: what each does, in words; unit: of the amount (`cases`, `MB`);
    aim: the ratio that is wanted; open: makes the ways ready and cleans up after; lacks: why it can't be measured here."""

    name: str
    ours: str
    other: str
    unit: str
    aim: float
    open: Callable[[], AbstractContextManager[Ways]]
    lacks: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class Measured:
    """What came of a row."""

    row: Row
    amount: float
    ours: Turns
    other: Turns

    @property
    def turns(self) -> int:
        """How often each piece was timed."""
        return len(self.ours[0])

    @property
    def ratio(self) -> float:
        """How many times as fast as the other way: minimum to minimum."""
        return best(self.other) / best(self.ours)

    @property
    def median_ratio(self) -> float:
        """The same of the medians."""
        middle, others = (sum(map(statistics.median, turns)) for turns in (self.ours, self.other))
        return others / middle

    def rate(self, turns: Turns) -> float:
        """Amount in a second, at best."""
        return self.amount / best(turns)


def best(turns: Turns) -> float:
    """Seconds of the whole work, each piece at its fastest."""
    return sum(map(min, turns))


def measure(
    row: Row,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Time both ways in turns, once unmeasured before. Raises whatever a way raises; ValueError for unequal pieces."""
    with row.open() as ways:
        pairs = list(zip(ways.ours, ways.other, strict=True))
        if not pairs:
            raise ValueError(f"{row.name} has no work")
        for pair in pairs:
            for piece in pair:
                piece()
        found: list[tuple[list[float], list[float]]] = [([], []) for _ in pairs]
        until, turn = clock() + seconds, 0
        while turn < rounds or (turn < MOST and clock() < until):
            turn += 1
            for pair, times in zip(pairs, found, strict=True):
                for piece, kept in zip(pair, times, strict=True):
                    started = clock()
                    piece()
                    kept.append(clock() - started)
    ours, other = (tuple(tuple(times[side]) for times in found) for side in (0, 1))
    return Measured(row, ways.amount, ours, other)
