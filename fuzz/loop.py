"""The plain loop: mutate, check, keep what is new. No instrumentation, so it runs everywhere.

Law: what comes follows from the seed and the number of executions alone. Novelty is what the target says that it saw. An
exception of any kind that leaves a target, a hang past `HANG` seconds included, is an escape; the input that made it is
handed back with it, and the loop ends there.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any

from fuzz.targets import Escape, Seen, Target

HANG = 10.0  # seconds of one execution
KEPT = 4096  # inputs of the corpus
LOOK = 256  # executions between looks at the clock


@dataclass
class Tally:
    """What a loop has done so far. seconds: since it began; escape: (input, what left the target)."""

    executions: int = 0
    accepted: int = 0
    corpus: list[bytes] = field(default_factory=list)
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    seconds: float = 0.0
    escape: tuple[bytes, BaseException] | None = None

    @property
    def share(self) -> float:
        """The part of the executions that were accepted."""
        return self.accepted / self.executions if self.executions else 0.0


def fuzz(
    target: Target,
    *,
    executions: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    told: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Fuzz a target until so many executions or seconds have passed, or until something escapes. told: now and then."""
    dice, tally = Random(seed), Tally()
    started = time.monotonic()
    with _guarded():
        for raw in _inputs(target, dice, tally):
            if executions is not None and tally.executions >= executions:
                break
            if tally.executions % LOOK == 0:
                tally.seconds = time.monotonic() - started
                if seconds is not None and tally.seconds >= seconds:
                    break
                told(tally)
            seen = _checked(target, raw, tally)
            if seen is None:
                break
            if (seen.accepted, seen.what) not in tally.seen and len(tally.corpus) < KEPT:
                tally.seen.add((seen.accepted, seen.what))
                tally.corpus.append(raw)
    tally.seconds = time.monotonic() - started
    return tally


def _inputs(target: Target, dice: Random, tally: Tally) -> Iterator[bytes]:
    """The seeds, then mutants of them and of what was kept; of the refused, one in four, lest few be accepted."""
    seeds = list(target.seeds())
    yield from seeds
    while True:
        parent = dice.choice(tally.corpus if tally.corpus and dice.randrange(3) == 0 else seeds)
        yield target.mutate(dice, parent, seeds)


def _checked(target: Target, raw: bytes, tally: Tally) -> Seen | None:
    tally.executions += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, HANG)
        seen = target.check(raw)
    except KeyboardInterrupt:
        raise
    except BaseException as escaped:  # whatever it is, it should not have left
        tally.escape = (raw, escaped)
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    tally.accepted += seen.accepted
    return seen


@contextmanager
def _guarded() -> Iterator[None]:
    """An execution that hangs is interrupted."""

    def late(_: int, __: FrameType | None) -> None:
        raise Escape(f"no end within {HANG:g} s")

    before = signal.signal(signal.SIGALRM, late)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
