"""Which of the cases before it make a case fail: the shortest sequence of predecessors that brings a state leak back.

Law: whatever is returned was seen to bring it back. First the shortest tail of what went before is looked for, since most
leaks are near; then single cases and runs of cases are left out. Each look costs a fresh process and a replay, so their
number and the time are bounded; where the bound ends the search, the sequence says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

LOOKS = 40  # replays for one leak
SECONDS = 30.0  # for one leak

T = TypeVar("T")


@dataclass(frozen=True)
class Shortest(Generic[T]):
    """items: in their order. minimal: none of them can be left out; else the search was cut off."""

    items: tuple[T, ...]
    minimal: bool


class _Spent(Exception):
    """The bound is reached."""


def shortest(
    before: Sequence[T],
    brings_back: Callable[[Sequence[T]], bool],
    looks: int = LOOKS,
    seconds: float = SECONDS,
) -> Shortest[T]:
    """The shortest subsequence of `before` found for which `brings_back` holds. `brings_back(before)` is taken as given,
    and that nothing does not bring it back."""
    deadline = time.monotonic() + seconds
    best, left = tuple(before), looks

    def still(items: tuple[T, ...]) -> bool:
        nonlocal best, left
        if left <= 0 or time.monotonic() > deadline:
            raise _Spent
        left -= 1
        found = brings_back(items)
        if found:
            best = items
        return found

    try:
        _shortest_tail(best, still)
        while _left_out_some(lambda: best, still):
            continue
    except _Spent:
        return Shortest(best, minimal=len(best) == 1)
    return Shortest(best, minimal=True)


def _shortest_tail(items: tuple[T, ...], still: Callable[[tuple[T, ...]], bool]) -> None:
    """Tails of 1, 2, 4 … items up to one that still does it; then halving between that and the one before."""
    too_short, enough = 0, 1
    while enough < len(items) and not still(items[-enough:]):
        too_short, enough = enough, 2 * enough
    enough = min(enough, len(items))
    while enough - too_short > 1:
        middle = (too_short + enough) // 2
        if still(items[-middle:]):
            enough = middle
        else:
            too_short = middle


def _left_out_some(best: Callable[[], tuple[T, ...]], still: Callable[[tuple[T, ...]], bool]) -> bool:
    """Try to leave out runs of items, the longest first. False when a round of single items left nothing out."""
    size = len(best()) // 2
    shortened = False
    while size:
        at, shortened = 0, False
        while at < len(now := best()) and len(now) > 1:
            shorter = now[:at] + now[at + size :]
            if shorter and still(shorter):
                shortened = True
            else:
                at += size
        size //= 2
    return shortened
