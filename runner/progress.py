"""A bar for whoever waits.

Law: on a terminal only, on stderr, and gone when the work is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Advance(Protocol):
    """Moves the bar by `steps`; note: what is being done, in the place of the title (strangers' text made safe)."""

    def __call__(self, steps: int = 1, note: str = "") -> None: ...


@contextmanager
def bar(console: Console, title: str, total: int) -> Iterator[Advance]:
    """A bar of `total` steps on the console if it is a terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)

        def advance(steps: int = 1, note: str = "") -> None:
            progress.update(task, advance=steps, description=note or title)

        yield advance
