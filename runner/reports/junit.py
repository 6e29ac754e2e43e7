"""JUnit XML: a test suite for each implementation, a test case for each rule that was asked.

Law: passed is a bare test case, failed has `failure`, all else is `skipped` with its reason; what is wrong with the run
itself is a test case with `error`, or with `failure` where only a baseline or a waiver fails it.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import cmfspec
from runner.differences import labels
from runner.reading import Section
from runner.reports.told import Problem, Told, headline, line, lines, problems_of, rules_of


def render(sections: Sequence[Section]) -> str:
    """The document."""
    root = Element("testsuites", name="cmfspec")
    names = labels([section.header.implementation for section in sections])
    for section, name in zip(sections, names, strict=True):
        root.append(_suite(section, line(name)))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


def _suite(section: Section, name: str) -> Element:
    told = rules_of(section)
    started = section.header.started.replace(tzinfo=None, microsecond=0).isoformat()
    suite = Element("testsuite", name=name, timestamp=started)
    properties = SubElement(suite, "properties")
    for key, value in _properties(section):
        SubElement(properties, "property", name=key, value=value)
    for rule in told:
        _case(suite, section, rule)
    for number, problem in enumerate(problems_of(section), 1):
        _problem(suite, problem, number)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(rule.seconds for rule in told):.3f}")
    return suite


def _properties(section: Section) -> list[tuple[str, str]]:
    end = section.footer
    found = [
        ("suite", cmfspec.__version__),
        ("profile", line(section.header.profile)),
        ("implementation", line(section.header.implementation.command)),
        ("complete", str(bool(end and end.complete)).lower()),
        ("conformant", "unknown" if end is None or end.conformant is None else str(end.conformant).lower()),
    ]
    if end:
        found += [(f"rules.{line(state)}", str(count)) for state, count in end.rules.items()]
    return found


def _case(suite: Element, section: Section, told: Told) -> None:
    case = SubElement(
        suite, "testcase", classname=f"cmfspec.{told.rule.norm.area}", name=f"{told.rule.id} {told.rule.name}",
        time=f"{told.seconds:.3f}",
    )  # fmt: skip
    if told.state == "failed":
        failure = SubElement(case, "failure", message=headline(told), type=told.shown[0].outcome)
        failure.text = "\n".join(lines(section, told))
    elif told.state != "passed":
        SubElement(case, "skipped", message=told.reason)


def _problem(suite: Element, problem: Problem, number: int) -> None:
    case = SubElement(suite, "testcase", classname="cmfspec.run", name=f"the run itself, {number}", time="0")
    SubElement(case, "error" if problem.broken else "failure", message=problem.text, type="RUN").text = problem.text
