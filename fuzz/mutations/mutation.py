"""A named mutation: a valid file with one lie, as data, and the short ways to write many of them.

Law: see the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cmfspec.format.build import Edit
from golden.files import File

PAGE = 4096
Table = Mapping[str, tuple[Edit, ...]]


@dataclass(frozen=True)
class Mutation:
    """One lie. name: unique; breaks: a rule id; recipe: the valid file; edits: what makes it wrong.

    kinds: the refusals that §1.2 names for it; empty where it names none.
    index: the tensor that can't be decoded, where the file opens and the lie is inside a payload; else None.
    """

    name: str
    breaks: str
    kinds: tuple[str, ...]
    recipe: str
    edits: tuple[Edit, ...]
    index: int | None = None

    @property
    def file(self) -> File:
        """The wrong file; its `base` is the right one."""
        return File(self.recipe, self.edits)


def family(breaks: str, kind: str, recipe: str, table: Table, index: int | None = None) -> Iterator[Mutation]:
    """Mutations of one recipe that break one rule, by what is done to it."""
    for name, edits in table.items():
        yield Mutation(f"{breaks}.{name}", breaks, (kind,) if kind else (), recipe, edits, index)


def one(path: str, values: Mapping[str, Any]) -> dict[str, tuple[Edit, ...]]:
    """A table of single edits at one path."""
    return {name: ((path, value),) for name, value in values.items()}
