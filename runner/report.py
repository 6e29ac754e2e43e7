"""`cmfspec report`: streams in, a report out.

Law: it is made of the streams alone, and its exit code is the worst that they tell of; a run that did not end is no success.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence

import click
from rich.console import Console

from cmfspec.contract.rule import load_catalogue
from runner.exits import EXIT_BROKEN
from runner.reading import Section, read
from runner.reports import github, junit, markdown, sarif, text
from runner.strangers import BadFile
from runner.terminal import safe

RENDER: dict[str, Callable[[Sequence[Section]], str]] = {
    "junit": junit.render,
    "sarif": sarif.render,
    "markdown": markdown.render,
    "github": github.render,
}  # and `text`, which knows about terminals


def report_command(results: Sequence[str], form: str, output: str | None, observations: bool) -> int:
    """`cmfspec report`: the exit code."""
    if results.count("-") > 1:
        raise click.UsageError("stdin can be read once")
    load_catalogue()
    sections: list[Section] = []
    for path in results:
        try:
            found = read(path)
            if not found.sections:
                raise BadFile(path, 0, "no header", "the stream of a run")
        except BadFile as error:
            raise click.UsageError(str(error)) from None
        sections += found.sections
    try:
        _write(sections, form, output, observations)
    except OSError as error:
        print(f"cmfspec: cannot write {safe(output or 'to stdout')}: {error.strerror}", file=sys.stderr)
        return EXIT_BROKEN
    return max(section.exit for section in sections)


def _write(sections: Sequence[Section], form: str, output: str | None, observations: bool) -> None:
    if form == "text" and output is None:
        text.render(Console(highlight=False), sections, observations)
        return
    if form == "text":
        buffer = io.StringIO()
        text.render(Console(file=buffer, highlight=False), sections, observations)
        document = buffer.getvalue()
    else:
        document = RENDER[form](sections)
    if output is None:
        sys.stdout.write(document)
        sys.stdout.flush()
        return
    with open(output, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write(document)
