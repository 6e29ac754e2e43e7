"""Plain text: the run's own summary, made again from its stream.

Law: the same functions print it, so it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console

from runner import differences, summary
from runner.reading import Section
from runner.reports.told import problems_of


def render(console: Console, sections: Sequence[Section], observations: bool) -> None:
    """Print it."""
    for section in sections:
        header, who = section.header, section.header.implementation
        if section.footer is None or section.footer.preflight is None:
            console.print(summary.title(header.profile, who.command, who), soft_wrap=True)
        if section.footer is None:
            for problem in problems_of(section):
                console.print(f"[bold red]{problem.text}[/]", soft_wrap=True)
            continue
        end = msgspec.to_builtins(section.footer)
        summary.show_end(console, who.command, section.verdicts, end, header.rerun, observations=observations)
    differences.show(console, [(section.header.implementation, section.verdicts) for section in sections])
