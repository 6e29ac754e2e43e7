"""What all commands that ask an implementation share: does it answer at all, and what ends the work before its end.

Law: who fails the plainest questions is not asked others (exit 1, with the hint); a command that can't be started, and an
interruption, are a broken run (exit 3), never an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from cmfspec.contract.protocol import Hello
from runner import summary
from runner.driver import CannotStart
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.preflight import preflight, stop_of
from runner.target import Target
from runner.terminal import safe

SHOWN = 20  # lines of a list that are printed


class NotJudged(Exception):
    """The implementation did not get as far as to be judged; why is said already."""


def hello_of(target: Target, console: Console) -> Hello:
    """What it declares, if it answers hello, ping and the plainest file. Raises NotJudged, CannotStart."""
    link = target.new_link()
    try:
        step = list(preflight(link))[-1]
        if step.problem:
            summary.show_stop(console, target.name, stop_of(step))
            raise NotJudged
        return link.hello
    finally:
        link.close()


def to_its_end(work: Callable[[], int], target: Target) -> int:
    """The exit code of `work`, or of what ended it."""
    try:
        return work()
    except NotJudged:
        return EXIT_FAILED
    except CannotStart as error:
        say(f"cannot run {target.name}: {error}")
    except KeyboardInterrupt:
        say("interrupted: nothing above is a verdict")
    return EXIT_BROKEN


def say(text: str, rows: Sequence[str] = ()) -> None:
    """A remark on stderr, with a list below it."""
    print(safe(text), file=sys.stderr)
    for row in rows[:SHOWN]:
        print(f"  {safe(row)}", file=sys.stderr)
    if len(rows) > SHOWN:
        print(f"  and {len(rows) - SHOWN} more", file=sys.stderr)
