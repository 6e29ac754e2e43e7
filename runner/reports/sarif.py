"""SARIF 2.1.0: a run for each implementation, a result for each outcome of a rule that failed.

Law: graded failures are errors, others warnings; what is waived is suppressed, what the baseline has is unchanged. A run
that did not end, or that something else fails, has a result that says so: no list of results is empty but a green one's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import cmfspec
from cmfspec.contract.rule import GRADED
from runner.judge import Verdict
from runner.reading import Section
from runner.reports.told import Problem, Told, again, excuse, line, problems_of, rules_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RUN = "RUN"  # the rule of what is wrong with the run itself


def render(sections: Sequence[Section]) -> str:
    """The document."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(section) for section in sections]}
    return json.dumps(log, ensure_ascii=False, indent=1) + "\n"


def _run(section: Section) -> dict[str, Any]:
    told, problems = rules_of(section), problems_of(section)
    rules = [*map(_rule, told), _run_rule()]
    at = {rule["id"]: place for place, rule in enumerate(rules)}
    results = [
        _result(section, rule, verdict, at[rule.rule.id])
        for rule in told
        for verdict in rule.shown
        if rule.state in ("failed", "excused", "ungraded")
    ]
    results += [_problem(problem, at[RUN]) for problem in problems]
    broken = any(problem.broken for problem in problems)
    return {
        "tool": {"driver": {"name": "cmfspec", "version": cmfspec.__version__, "rules": rules}},
        "automationDetails": {
            "id": f"cmfspec/{line(section.header.profile)}/{line(section.header.implementation.command)}/"
        },
        "invocations": [
            {
                "executionSuccessful": not broken,
                "commandLine": line(" ".join(["cmfspec", *section.header.argv])),
                "exitCode": section.exit,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": problem.text}} for problem in problems if problem.broken
                ],
            }
        ],
        "results": results,
        "columnKind": "utf16CodeUnits",
    }


def _rule(told: Told) -> dict[str, Any]:
    rule = told.rule
    level = "error" if rule.tier in GRADED else "warning"
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.norm.rule},
        "fullDescription": {"text": " ".join(rule.quote.split())},
        "help": {"text": f"{rule.why}\n\nThe ruling: {rule.norm.ruling}\n\ncmfspec explain {rule.id}"},
        "defaultConfiguration": {"level": level},
        "properties": {"section": rule.section, "tier": rule.tier, "tags": [rule.norm.area, rule.tier]},
    }


def _run_rule() -> dict[str, Any]:
    return {
        "id": RUN,
        "name": "the run itself",
        "shortDescription": {"text": "The run ended, and neither a baseline nor a waiver fails it."},
        "defaultConfiguration": {"level": "error"},
    }


def _result(section: Section, told: Told, verdict: Verdict, index: int) -> dict[str, Any]:
    text = (
        f"{told.rule.name}: {verdict.outcome}: expected {line(verdict.expected)}; got {line(verdict.got)}. "
        f"Again: {again(section, verdict)}"
    )
    found: dict[str, Any] = {
        "ruleId": told.rule.id,
        "ruleIndex": index,
        "kind": "fail",
        "level": "error" if told.rule.tier in GRADED else "warning",
        "message": {"text": text},
        "locations": [_location(verdict)],
        "partialFingerprints": {"cmfspec/v1": f"{told.rule.id} {verdict.outcome}"},
        "properties": {"case": verdict.case.id, "failing": told.failing, "asked": told.asked},
    }
    if section.footer and section.footer.baseline:
        found["baselineState"] = "unchanged" if verdict.known else "new"
    if verdict.waived:
        found["suppressions"] = [{"kind": "external", "status": "accepted", "justification": excuse(verdict)}]
    return found


def _location(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": verdict.case.id, "kind": "case"}]}
    if verdict.reproducer:
        path = PurePosixPath(verdict.reproducer) / "file.cmf"
        found["physicalLocation"] = {"artifactLocation": {"uri": _uri(path)}}
    return found


def _uri(path: PurePosixPath) -> str:
    return ("file://" if path.is_absolute() else "") + quote(str(path), errors="replace")


def _problem(problem: Problem, index: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ruleId": RUN, "ruleIndex": index, "kind": "fail", "level": "error", "message": {"text": problem.text},
        "locations": [{"logicalLocations": [{"fullyQualifiedName": RUN}]}],
    }  # fmt: skip
    if problem.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": _uri(PurePosixPath(problem.file))}}
        found["locations"][0]["physicalLocation"] = place | (
            {"region": {"startLine": problem.line}} if problem.line else {}
        )
    return found
