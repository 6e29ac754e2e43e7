"""Markdown, as for a job's summary: the verdict, a table of areas, each rule that failed.

Law: nobody's text is markup: it stands in a code span or has its special characters escaped. A summary has a limit of size
where it is used, so that only so many rules are shown; how many are not is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import cmfspec
from runner.differences import disagreements, labels
from runner.reading import Section
from runner.reports.told import Told, excuse, headline, line, lines, problems_of, rules_of

COLUMNS = ("passed", "failed", "excused", "ungraded", "not_applicable", "beyond", "observed")
SHOWN = 50  # rules, and rows of a table
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&@:$])")


def render(sections: Sequence[Section]) -> str:
    """The document."""
    names = labels([section.header.implementation for section in sections])
    parts = [_section(section, line(name)) for section, name in zip(sections, names, strict=True)]
    if len(sections) > 1:
        parts.append(_differences(sections, names))
    return "\n".join(parts)


def _section(section: Section, name: str) -> str:
    told, end = rules_of(section), section.footer
    found = [f"## {plain(name)}: {_verdict(section)}", ""]
    found.append(f"cmfspec {cmfspec.__version__}, profile {plain(section.header.profile)}, ")
    found[-1] += (
        f"{len(section.verdicts)} cases of {len(told)} rules: {code(line(section.header.implementation.command))}"
    )
    found += ["", *(f"- **{plain(problem.text)}**" for problem in problems_of(section)), ""]
    found += _areas(told)
    for title, state in (("Failed", "failed"), ("Failed, not graded", "ungraded")):
        found += _failures(section, [rule for rule in told if rule.state == state], title)
    excused = [rule for rule in told if rule.state == "excused"]
    if excused:
        found += ["", "### Failed, excused", ""]
        found += [
            f"- {rule.rule.id} {plain(rule.rule.name)}: {plain(excuse(rule.shown[0]))}" for rule in excused[:SHOWN]
        ]
        found += _more(len(excused))
    if end and end.baseline and end.baseline.better:
        found += ["", f"Better than the baseline: {', '.join(map(plain, map(line, end.baseline.better[:SHOWN])))}"]
        found += _more(len(end.baseline.better))
    return "\n".join(found) + "\n"


def _verdict(section: Section) -> str:
    end = section.footer
    if end is None:
        return "❌ the run did not end"
    if end.exit:
        return "❌ not conformant" if end.conformant is False else "❌ failed"
    return (
        "✅ conformant"
        if end.conformant
        else "✅ nothing fails the run" + ("" if end.complete else ", which was cut short")
    )


def _areas(told: Sequence[Told]) -> list[str]:
    counts: dict[str, Counter[str]] = {}
    for rule in told:
        counts.setdefault(rule.rule.norm.area, Counter())[rule.state] += 1
    shown = [column for column in COLUMNS if any(count[column] for count in counts.values())]
    if not shown:
        return []
    head = ["area", *(column.replace("_", " ") for column in shown)]
    rows = [[area, *(str(count[column] or "·") for column in shown)] for area, count in counts.items()]
    return [_row(head), _row(["---", *["---:"] * len(shown)]), *map(_row, rows)]


def _failures(section: Section, told: Sequence[Told], title: str) -> list[str]:
    if not told:
        return []
    found = ["", f"### {title}", ""]
    for rule in told[:SHOWN]:
        found += [
            f"- **{rule.rule.id}** {plain(rule.rule.name)}, {rule.failing} of {rule.asked} cases",
            "",
            "  <details><summary>",
        ]
        found[-1] += (
            f"{plain(headline(rule))}</summary><pre>{plain(chr(10).join(lines(section, rule)))}</pre></details>"
        )
        found[-1] = found[-1].replace("\n", "&#10;")  # one line: a blank one would end the block
        found.append("")
    return found + _more(len(told))


def _differences(sections: Sequence[Section], names: Sequence[str]) -> str:
    rows = disagreements([(section.header.implementation, section.verdicts) for section in sections])
    found = [f"## {len(rows)} cases on which two implementations disagree", ""]
    if rows:
        found += [_row(["case", *(plain(line(name)) for name in names)]), _row(["---"] * (len(names) + 1))]
        found += [
            _row([case, *("" if a is None else code(line(a)) for a in answers)]) for case, answers in rows[:SHOWN]
        ]
        found += _more(len(rows))
    return "\n".join(found) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _more(count: int) -> list[str]:
    return ["", f"and {count - SHOWN} more"] if count > SHOWN else []


def plain(text: str) -> str:
    """Text that is no markup and mentions nobody."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[1])};", text)


def code(text: str) -> str:
    """A code span; it holds entities, so that no backtick or bar can end it."""
    return f"<code>{plain(text)}</code>"
