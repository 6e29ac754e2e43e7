"""The one interface between a question and whoever answers it: in this process, over a pipe, or as a command.

Law: a `Link` asks and hands back a checked `Reply`, or raises an outcome (Crash, Timeout, Resource, Protocol). It knows
nothing of rules. Files are placed under fresh names that say nothing and are never reused.
"""

from __future__ import annotations

from typing import Any, Protocol

from cmfspec.contract.protocol import Hello, Reply


class Link(Protocol):
    """What a `Subject` needs of an implementation."""

    transcript: Any  # a bounded sequence of (request, reply or outcome), as text, the last last

    @property
    def hello(self) -> Hello:
        """What it declares; starts it if need be, with all that `ask` may raise."""
        ...

    def place(self, content: bytes, hole: tuple[int, int] | None = None) -> str:
        """Write `content` to a fresh file and return its path. It must still be the same at `settle`.

        hole: (where, how long), zeros to be left out sparsely in the middle of the content."""
        ...

    def new_out(self) -> str:
        """A path that does not exist yet, for an answer that goes to a file."""
        ...

    def ask(self, op: str, file: str = "", **members: Any) -> Reply:
        """Ask one question. Raises Crash, Timeout, Resource or Protocol; NotApplicable for what it can't be asked."""
        ...

    def settle(self) -> None:
        """End of a case: check that no placed file changed (else Protocol), delete what was placed and written. Raises
        Resource and Crash too, for what shows only now."""
        ...

    def reset_peak(self) -> None:
        """Start measuring the peak of resident memory anew."""
        ...

    def peak(self) -> int | None:
        """Peak of resident memory since `reset_peak`, in bytes; None where it can't be measured."""
        ...

    def renew(self) -> None:
        """Answer from a fresh process from now on. A no-op in process."""
        ...

    def close(self) -> None:
        """Say bye and leave nothing running."""
        ...
