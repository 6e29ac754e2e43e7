"""What a rule's arguments are drawn from.

Law: a draw is described once and read three ways: its values (if it has few), a sample by our own dice (for stored cases,
the same for ever whatever version of anything is installed), and a Hypothesis strategy (for soaking). Values are scalars
or `File`s; everything is canonical JSON in a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuzz.grid import grid
from fuzz.mutations import breaking
from golden.dice import Dice
from golden.files import File
from golden.recipes import NAMES

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True)
class Draw:
    """values: all of them, or None where they are too many to write down; sample: one by dice; strategy: Hypothesis's."""

    values: tuple[Any, ...] | None
    sample: Callable[[Dice], Any]
    strategy: Callable[[], SearchStrategy[Any]]


def sampled_from(values: Iterable[Any]) -> Draw:
    """One of these values."""
    values = tuple(values)

    def strategy() -> SearchStrategy[Any]:
        from hypothesis import strategies

        return strategies.sampled_from(values)

    return Draw(values, lambda dice: dice.one_of(values), strategy)


def any_of(*draws: Draw) -> Draw:
    """A value of one of these draws."""

    def strategy() -> SearchStrategy[Any]:
        from hypothesis import strategies

        return strategies.one_of([draw.strategy() for draw in draws])

    values = None if any(draw.values is None for draw in draws) else [v for draw in draws for v in draw.values or ()]
    return Draw(None if values is None else tuple(values), lambda dice: dice.one_of(draws).sample(dice), strategy)


def files(*names: str) -> Draw:
    """Valid files: the recipes of these names, or all."""
    return sampled_from(File(name) for name in names or NAMES)


def edited(name: str, path: str, values: Iterable[Any]) -> Draw:
    """A recipe with one edit."""
    return sampled_from(File(name).edited(path, value) for value in values)


def lies(*rules: str) -> Draw:
    """Files with one lie that breaks one of these rules."""
    found = breaking(*rules)
    if not found:
        raise ValueError(f"no mutation breaks {rules}")
    return sampled_from(mutation.file for mutation in found)


def gridded(*names: str) -> Draw:
    """A field of one of these recipes set to a nasty value."""
    return sampled_from(file for name in names for file in grid(name))


def havoc(*names: str) -> Draw:
    """One of these recipes with up to eight bytes flipped anywhere, or cut short; hashes are not repaired."""

    def damage(name: str, hits: Iterable[tuple[int, int]], cut: int | None) -> File:
        size = len(File(name).content())
        edits = tuple(("flip", ["file", at % size, mask]) for at, mask in hits)
        return File(name, edits if cut is None else (*edits, ("cut", cut % size)))

    def sample(dice: Dice) -> File:
        # Half of the hits go where the structure is: envelope, header and directory.
        hits = [(dice.below(1200 if dice.below(2) else 1 << 16), 1 + dice.below(255)) for _ in range(1 + dice.below(8))]
        return damage(dice.one_of(names), hits, dice.below(1 << 16) if dice.below(4) == 0 else None)

    def strategy() -> SearchStrategy[Any]:
        from hypothesis import strategies as st

        hit = st.tuples(st.integers(0, 1 << 16), st.integers(1, 255))
        return st.builds(
            damage, st.sampled_from(names), st.lists(hit, min_size=1, max_size=8), st.none() | st.integers(0, 1 << 16)
        )

    return Draw(None, sample, strategy)
