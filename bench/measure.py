"""One row of the bench: two ways to do the same work, timed in turns.

Law: what is kept is a *ratio of minima*, other seconds / our seconds: a machine that is busy for a while slows both, and a
minimum is what the work costs when nothing else runs. The two are interleaved in one run, piece by piece, so that a piece is
short enough to be left alone now and then; medians stand beside the minima; absolute numbers are shown, never compared.
What stops a row short of its aim is measured too, in the same turns: a third way, the bound, that does without it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

ROUNDS = 5  # turns at least
SECONDS = 10.0  # turns of a row go on until then, if it says no other
MOST = 200  # turns at most

Work = Sequence[Callable[[], object]]
Turns = tuple[tuple[float, ...], ...]  # for each piece, the seconds of each turn


@dataclass(frozen=True)
class Ways:
    """Two ways to do one work, both in the same number of pieces; amount: how much all of it is, in the row's unit.

    bound: the same work without what bounds it, in as many pieces, or none. pause: seconds after each piece of the other
    way, whose threads may wait busily for more."""

    ours: Work
    other: Work
    amount: float
    bound: Work = ()
    pause: float = 0.0


@dataclass(frozen=True)
class Row:
    """name: also that of its baseline; ours, other: what each does, in words; unit: of the amount (`cases`, `MB`);
    aim: the ratio that is wanted; open: makes the ways ready and cleans up after; lacks: why it can't be measured here;
    bound: what the third way is, in words; seconds: for how long."""

    name: str
    ours: str
    other: str
    unit: str
    aim: float
    open: Callable[[], AbstractContextManager[Ways]]
    lacks: Callable[[], str] = lambda: ""
    bound: str = ""
    seconds: float = SECONDS


@dataclass(frozen=True)
class Measured:
    """What came of a row."""

    row: Row
    amount: float
    ours: Turns
    other: Turns
    bound: Turns = ()

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

    @property
    def bound_ratio(self) -> float | None:
        """What the ratio would be at the bound; None without one."""
        return best(self.other) / best(self.bound) if self.bound else None

    def rate(self, turns: Turns) -> float:
        """Amount in a second, at best."""
        return self.amount / best(turns)


def best(turns: Turns) -> float:
    """Seconds of the whole work, each piece at its fastest."""
    return sum(map(min, turns))


def measure(
    row: Row,
    rounds: int = ROUNDS,
    seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Time all ways in turns, once unmeasured before; seconds: None for the row's.

    Raises whatever a way raises; ValueError for unequal pieces."""
    with row.open() as ways:
        sides = (ways.ours, ways.other, *([ways.bound] if ways.bound else []))
        pauses = (0.0, ways.pause, 0.0)
        together = list(zip(*sides, strict=True))
        if not together:
            raise ValueError(f"{row.name} has no work")
        for pieces in together:
            for piece in pieces:
                piece()
        found: list[tuple[list[float], ...]] = [tuple([] for _ in sides) for _ in together]
        until, turn = clock() + (row.seconds if seconds is None else seconds), 0
        while turn < rounds or (turn < MOST and clock() < until):
            turn += 1
            for pieces, times in zip(together, found, strict=True):
                for piece, kept, pause in zip(pieces, times, pauses, strict=False):
                    started = clock()
                    piece()
                    kept.append(clock() - started)
                    time.sleep(pause)
    return Measured(row, ways.amount, *(tuple(tuple(times[side]) for times in found) for side in range(len(sides))))
