"""Reports of streams: each in a form that its readers accept, none greener than the stream.

Law: a failing rule is one failing test case; a skip has its reason; a run that did not end is an error in every format.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import xmlschema
from click.testing import CliRunner

from runner.cli import cli
from runner.reports.github import command
from runner.reports.markdown import plain
from runner.verbs.judging import FORMATS
from tests.hostile.judged import accepts_all
from tests.streams import lines, verdicts, written

DATA = Path(__file__).parent / "data"
PATTERN = "VAL-*"
ODD = "a\x1b[2J\x00\ufffe|`<b>&amp;%0A\r\n::error::x ]]> @all {case} 键\u2028[red]"
SARIF = json.loads((DATA / "sarif-used.schema.json").read_text())


def report(form: str, *paths: str, code: int = 1) -> str:
    """A report."""
    result = CliRunner().invoke(cli, ["report", *paths, "--format", form])
    assert result.exit_code == code, result.output
    return result.output


def junit(text: str) -> ElementTree.Element:
    """A document that the schema allows, with counts that are right."""
    xmlschema.XMLSchema(DATA / "junit.xsd").validate(text)
    root = ElementTree.fromstring(text.encode())  # noqa: S314 - our own
    for suite in (root, *root):
        for count, tag in (("tests", ""), ("failures", "/failure"), ("errors", "/error"), ("skipped", "/skipped")):
            assert int(suite.get(count, "-1")) == len(suite.findall(f".//testcase{tag}"))
    return root


def sarif(text: str) -> dict[str, Any]:
    """A document that the schema allows, whose indices are right."""
    log: dict[str, Any] = json.loads(text)
    jsonschema.validate(log, SARIF, format_checker=jsonschema.FormatChecker())
    for run in log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    return log


def states(root: ElementTree.Element) -> dict[str, str]:
    """Rule to `passed` or the tag of what it is instead."""
    return {case.get("name", "").split()[0]: (case[0].tag if len(case) else "passed") for case in root.iter("testcase")}


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    """A stream with a rule in each state, and with odd texts."""
    failing = {
        "VAL-004": "CRASH",
        "VAL-005": "WRONG_ACCEPT",
        "VAL-006": "TIMEOUT",
        "VAL-007": "NOT_APPLICABLE",
        "VAL-009": "BEYOND",
    }
    found = []
    for verdict in verdicts(PATTERN, failing, stderr=ODD, reproducer="out/a b%"):
        marks = {"VAL-005": {"waived": ODD}, "VAL-006": {"known": True}}
        found.append(type(verdict)(**{**vars(verdict), "got": ODD, **marks.get(verdict.rule.id, {})}))
    extra = {"baseline": {"file": ODD, "new": [], "known": 0, "better": [ODD], "lost": [], "unasked": 0}}
    return written(tmp_path / "s.jsonl", lines(PATTERN, found, command=f"./r {ODD}", **extra))


def test_junit_has_a_test_case_for_each_rule(mixed: str) -> None:
    root = junit(report("junit", mixed))
    found = states(root)
    rules = {verdict.rule.id: verdict.rule for verdict in verdicts(PATTERN)}
    assert found.keys() == rules.keys()
    assert {rule for rule, state in found.items() if state == "failure"} == {"VAL-004"}
    quiet = {"VAL-005", "VAL-006", "VAL-007", "VAL-009"} | {
        i for i, rule in rules.items() if rule.tier == "OBSERVATION"
    }
    assert {rule for rule, state in found.items() if state == "skipped"} == quiet
    messages = {c.get("name", "")[:7]: c[0].get("message", "") for c in root.iter("testcase") if len(c)}
    assert messages["VAL-005"].startswith("waived: ")
    assert messages["VAL-006"] == "as in the baseline"
    assert messages["VAL-007"].startswith("not applicable")
    assert messages["VAL-004"].startswith("CRASH: expected a refusal; got ")
    assert "again    cmfspec run --impl" in (root.find(".//failure").text or "")  # type: ignore[union-attr]


def test_a_failure_of_no_graded_rule_is_neither_green_nor_red(tmp_path: Path) -> None:
    should = next(verdict.rule.id for verdict in verdicts(PATTERN) if verdict.rule.tier == "SHOULD")
    path = written(tmp_path / "s.jsonl", lines(PATTERN, verdicts(PATTERN, {should: "WRONG_ACCEPT"})))
    assert states(junit(report("junit", path, code=0)))[should] == "skipped"
    assert "SHOULD is not graded" in report("junit", path, code=0)
    assert report("github", path, code=0).startswith("::warning ")
    assert sarif(report("sarif", path, code=0))["runs"][0]["results"][0]["level"] == "warning"
    assert "Failed, not graded" in report("markdown", path, code=0)


def test_sarif_has_a_result_for_each_outcome_of_a_rule_that_failed(mixed: str) -> None:
    run = sarif(report("sarif", mixed))["runs"][0]
    found = {result["ruleId"]: result for result in run["results"]}
    assert found.keys() == {"VAL-004", "VAL-005", "VAL-006"}
    assert len(found) == len(run["results"])
    assert found["VAL-004"]["level"] == "error"
    assert (found["VAL-004"]["baselineState"], found["VAL-006"]["baselineState"]) == ("new", "unchanged")
    assert found["VAL-005"]["suppressions"][0]["status"] == "accepted"
    assert "suppressions" not in found["VAL-004"]
    assert found["VAL-004"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "out/a%20b%25/file.cmf"
    assert run["invocations"][0]["executionSuccessful"] is True


INCOMPLETE = {
    "no footer": ({"ended": False}, 3, "the run did not end"),
    "stopped": ({"stopped": "--max-fail 1"}, 1, "stopped early: --max-fail 1"),
    "nothing judged": ({}, 1, "nothing was judged"),
    "preflight": (
        {"preflight": {"step": "open", "problem": "CRASH"}, "stopped": "preflight: open"},
        1,
        "fails at open",
    ),
}


@pytest.mark.parametrize(("end", "code", "text"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_run_that_did_not_end_is_an_error_everywhere(
    tmp_path: Path, end: dict[str, Any], code: int, text: str
) -> None:
    pattern = PATTERN if end else "VAL-004"
    found = verdicts(pattern, {} if "ended" in end else {"VAL-004": "CRASH" if end else "BEYOND"})
    path = written(tmp_path / "s.jsonl", lines(pattern, found[: 0 if "preflight" in end else 20], **end))
    root = junit(report("junit", path, code=code))
    assert [case.get("message", "").startswith(text) for case in root.iter("error")] == [True]
    run = sarif(report("sarif", path, code=code))["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert [r["level"] for r in run["results"] if r["ruleId"] == "RUN"] == ["error"]
    assert re.search(f"^::error title=[^:]*the run itself::{text}", report("github", path, code=code), re.MULTILINE)
    assert "✅" not in report("markdown", path, code=code)
    assert text.split(":")[0] in report("text", path, code=code)


def test_a_waiver_or_a_baseline_that_fails_the_run_is_a_failure_everywhere(tmp_path: Path) -> None:
    trouble = [{"where": "conf/w.yaml:7", "what": "rule VAL-004 CRASH", "why": "it expired on 2020-01-01"}]
    path = written(tmp_path / "s.jsonl", lines(PATTERN, verdicts(PATTERN), waivers=trouble))
    assert len(list(junit(report("junit", path)).iter("failure"))) == 1
    place = sarif(report("sarif", path))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "conf/w.yaml"}, "region": {"startLine": 7}}
    assert "::error file=conf/w.yaml,line=7,title=r%3A the run itself::waiver to be cut" in report("github", path)
    assert "it expired on 2020" in report("text", path)
    assert "✅" not in report("markdown", path)
    lost = {"file": "b", "new": [], "known": 0, "better": [], "lost": ["VAL-004/0634830f"], "unasked": 0}
    path = written(tmp_path / "l.jsonl", lines(PATTERN, verdicts(PATTERN), baseline=lost, exit=1))
    for form in FORMATS:
        assert "not judged now" in report(form, path).replace("&#45;", "-"), form


def test_the_text_is_what_the_run_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.target.reference", lambda: accepts_all)
    waivers = tmp_path / "w.yaml"
    waivers.write_text(
        "- {rule: VAL-00*, outcome: CRASH, reason: r, url: https://x, expires: 2020-01-01}\n- {rule: VAL-004, outcome: WRONG_ACCEPT, reason: r, url: https://x, expires: 2999-01-01}"
    )
    stream = str(tmp_path / "s.jsonl")
    for options in (
        ["-k", "VAL-00[345]*", "--waive", str(waivers)],
        ["-k", "VAL-003", "-v"],
        ["-k", PATTERN, "--max-fail", "2"],
    ):
        ran = CliRunner().invoke(cli, ["run", "--json", stream, "--out", str(tmp_path / "out"), *options])
        told = CliRunner().invoke(cli, ["report", stream, *(["-v"] if "-v" in options else [])])
        assert (told.exit_code, told.output) == (ran.exit_code, ran.output)
    for impl in ("true", "cat"):
        ran = CliRunner().invoke(cli, ["run", "--impl", impl, "--json", stream, "--out", str(tmp_path / "out")])
        told = CliRunner().invoke(cli, ["report", stream])
        assert (ran.exit_code, told.output) == (1, ran.output)


def test_nobodys_text_is_a_command_or_markup(mixed: str) -> None:
    github = report("github", mixed)
    assert "\x1b" not in github
    assert all(re.match(r"::(error|warning|notice) ", line) for line in github.splitlines())
    markdown = report("markdown", mixed)
    for text in ("\x1b", "<b>", "@all", "`", "[red]"):
        assert text not in markdown
    assert "\x1b" not in report("text", mixed)
    assert plain("a|b_c") == "a&#124;b&#95;c"
    assert command("error", "50%\r\n::x", title="a:b,c%") == "::error title=a%3Ab%2Cc%25::50%25%0D%0A::x"


def test_a_green_stream_is_green_everywhere(tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", lines(None, verdicts(None)))
    assert set(states(junit(report("junit", path, code=0))).values()) == {"passed", "skipped"}
    assert sarif(report("sarif", path, code=0))["runs"][0]["results"] == []
    assert report("github", path, code=0).startswith("::notice title=r::conformant: 0 rules failed")
    assert "## r: ✅ conformant" in report("markdown", path, code=0)
    assert "conformant: no graded rule failed" in report("text", path, code=0)


def test_several_implementations_have_a_part_each(tmp_path: Path) -> None:
    one = written(tmp_path / "1.jsonl", lines(PATTERN, verdicts(PATTERN), command="./one"))
    two = written(tmp_path / "2.jsonl", lines(PATTERN, verdicts(PATTERN, {"VAL-004": "CRASH"}), command="./two"))
    assert [suite.get("name") for suite in junit(report("junit", one, two))] == ["r #1", "r #2"]
    assert [len(run["results"]) for run in sarif(report("sarif", one, two))["runs"]] == [0, 1]
    ids = [run["automationDetails"]["id"] for run in sarif(report("sarif", one, two))["runs"]]
    assert len(set(ids)) == 2
    assert "| VAL-004/0634830f | <code>PASS</code> | <code>CRASH</code> |" in report("markdown", one, two)
    assert re.search(r"VAL-004/\w+ +PASS +CRASH", report("text", one, two))


@pytest.mark.parametrize("form", FORMATS)
def test_a_report_goes_into_a_file(tmp_path: Path, mixed: str, form: str) -> None:
    output = tmp_path / "report"
    result = CliRunner().invoke(cli, ["report", mixed, "--format", form, "-o", str(output)])
    assert (result.exit_code, result.output) == (1, "")
    assert output.read_text("utf-8") == report(form, mixed)
    result = CliRunner().invoke(cli, ["report", mixed, "--format", form, "-o", str(tmp_path / "no" / "x")])
    assert result.exit_code == 3
    assert "cannot write" in result.output
