"""Workflow commands of GitHub Actions: an annotation for each rule that failed, and for what is wrong with the run.

Law: a message is one line; `%`, CR and LF are escaped in it, and `:` and `,` too in a property, so that nobody's text is a
command.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.differences import labels
from runner.reading import Section
from runner.reports.told import headline, line, lines, problems_of, rules_of

DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
PROPERTY = (*DATA, (":", "%3A"), (",", "%2C"))
LEVELS = {"failed": "error", "excused": "notice", "ungraded": "warning"}


def render(sections: Sequence[Section]) -> str:
    """The commands, a line each; the last of each implementation says what came of it."""
    found: list[str] = []
    names = labels([section.header.implementation for section in sections])
    for section, name in zip(sections, map(line, names), strict=True):
        for told in rules_of(section):
            if told.state in LEVELS:
                text = told.reason if told.state != "failed" else "\n".join([headline(told), *lines(section, told)])
                found.append(command(LEVELS[told.state], text, title=f"{name}: {told.rule.id} {told.rule.name}"))
        for problem in problems_of(section):
            place = {"file": problem.file, "line": str(problem.line)} if problem.file else {}
            found.append(command("error", problem.text, **place, title=f"{name}: the run itself"))
        failed = sum(told.state == "failed" for told in rules_of(section))
        end = section.footer
        came = (
            "conformant"
            if end and end.conformant
            else "not conformant"
            if end and end.conformant is False
            else "cut short"
        )
        level = "error" if section.exit else "notice"
        found.append(command(level, f"{came}: {failed} rules failed of {len(rules_of(section))} asked", title=name))
    return "".join(f"{each}\n" for each in found)


def command(level: str, message: str, **properties: str) -> str:
    """A workflow command."""
    given = ",".join(f"{name}={_escaped(value, PROPERTY)}" for name, value in properties.items())
    return f"::{level} {given}::{_escaped(message, DATA)}"


def _escaped(text: str, table: Sequence[tuple[str, str]]) -> str:
    for plain, escape in table:
        text = text.replace(plain, escape)
    return text
