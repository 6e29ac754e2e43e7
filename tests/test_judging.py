"""Whole runs against readers with a vice: no lie is believed, in either direction.

Law: a crash, a hang, noise, a caught exception and a warning are not refusals; a skip is not a pass; nothing judged is not
success; and a reader that refuses or accepts everything fails.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cmfspec
from runner.cli import cli
from tests.processes import left_over

JUDGED = Path(__file__).parent / "hostile" / "judged.py"
Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`cmfspec run` on a vice: (exit code, lines of the stream, terminal output)."""

    def judge(vice: str, *options: str) -> tuple[int, list[dict[str, Any]], str]:
        impl = shlex.join([sys.executable, str(JUDGED), vice])
        stream = tmp_path / "results.jsonl"
        words = ["run", "--impl", impl, "--json", str(stream), "--out", str(tmp_path / "out"), *options]
        result = CliRunner().invoke(cli, words)
        lines = [json.loads(line) for line in stream.read_text().splitlines()] if stream.exists() else []
        return result.exit_code, lines, result.output

    return judge


def outcomes(lines: list[dict[str, Any]], tiers: tuple[str, ...] = ("LITERAL", "DERIVED")) -> set[str]:
    """The outcomes of the graded cases."""
    return {line["outcome"] for line in lines if line["type"] == "case" and line["tier"] in tiers}


def test_an_honest_reader_over_the_pipe_is_judged_as_in_process(run: Run, tmp_path: Path) -> None:
    """Case by case the same outcome, expected and got."""
    code, outside, _ = run("honest", "-j", "2")
    stream = tmp_path / "inside.jsonl"
    inside = CliRunner().invoke(cli, ["run", "--json", str(stream)])
    assert (code, inside.exit_code) == (0, 0)

    def told(lines: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
        return {x["case"]: (x["outcome"], x["expected"], x["got"]) for x in lines if x["type"] == "case"}

    here = told([json.loads(line) for line in stream.read_text().splitlines()])
    there = told(outside)
    assert here.keys() == there.keys()
    differing = {case: (here[case], there[case]) for case in here if here[case] != there[case]}
    assert all("/cmfspec-" in str(pair) for pair in differing.values()), differing  # a missing path names its folder


def test_a_reader_that_refuses_everything_fails_before_any_rule(run: Run) -> None:
    """The plainest file is the first control."""
    code, lines, output = run("refuses_all")
    assert code == 1
    assert lines[-1]["conformant"] is False
    assert lines[-1]["cases"] == 0
    assert "fails at open" in output


def test_a_reader_that_accepts_everything_is_not_conformant(run: Run) -> None:
    """Every rule that has a wrong file sees it (loopdive/js2#3600)."""
    code, lines, _ = run("accepts_all")
    assert code == 1
    assert lines[-1]["conformant"] is False
    assert {"ENV-002", "ENV-015", "FEAT-001", "VAL-005", "VAL-009"} <= set(lines[-1]["failed_rules"])
    assert "WRONG_ACCEPT" in outcomes(lines)
    shown = [line["reproducer"] for line in lines if line["type"] == "case" and line["rule"].startswith("VAL-00")]
    files = [Path(folder) / "file.cmf" for folder in shown if folder]
    assert files
    assert all(list(cmfspec.faults(file)) for file in files)  # made smaller, they are still wrong


LIES = {
    "dies": "CRASH",
    "hangs": "TIMEOUT",
    "shouts": "PROTOCOL",
    "raises": "ERROR",
    "only_warns": "WRONG_ACCEPT",
}


@pytest.mark.parametrize(("vice", "outcome"), LIES.items())
def test_what_is_not_a_refusal_is_not_taken_for_one(run: Run, vice: str, outcome: str) -> None:
    """Each of these has been counted as a rejection, or not ended, by some suite (just95/toml.dart#60, toml-f/toml-f#75)."""
    code, lines, output = run(vice, "-k", "VAL-004", "--timeout-scale", "0.15")
    assert code == 1
    assert lines[-1]["failed_rules"] == ["VAL-004"]
    assert outcomes(lines) == {outcome}
    assert outcome in output
    assert lines[-1]["conformant"] is None  # cut short by -k
    folder = Path(next(line["reproducer"] for line in lines if line["type"] == "case"))
    assert (folder / "file.cmf").stat().st_size > 0
    assert "VAL-004" in (folder / "README.md").read_text()
    assert "cmfspec run --impl" in (folder / "README.md").read_text()


def test_what_a_reader_says_cannot_drive_the_terminal(run: Run) -> None:
    """Escape sequences on its stderr are shown, not obeyed."""
    _, _, output = run("whispers", "-k", "VAL-004")
    assert "\x1b" not in output
    assert "\\x1b[2Jgone" in output


def test_a_reader_that_answers_the_previous_question_fails(run: Run) -> None:
    """Right answers, one question late."""
    code, lines, _ = run("previous", "--profile", "smoke", "-k", "ENV-0*")
    assert code == 1
    assert len(lines[-1]["failed_rules"]) > 10


def test_what_is_declared_and_then_unsupported_fails(run: Run) -> None:
    """Declare, then hold."""
    code, lines, _ = run("unsupported", "-k", "HASH-00*", "--profile", "smoke")
    assert code == 1
    assert outcomes(lines) <= {"ERROR", "NOT_APPLICABLE", "PASS"}
    assert "HASH-003" in lines[-1]["failed_rules"]


def test_what_is_not_declared_is_counted_and_not_passed(run: Run) -> None:
    """A reader that undertakes little is told how little was judged (ARMmbed/mbed-os#8088, HarnessRouter/harnessrouter#7)."""
    code, lines, output = run("declares_little")
    rules = lines[-1]["rules"]
    assert code == 0
    assert rules["not_applicable"] >= 10
    assert rules["beyond"] >= 1
    assert rules["passed"] + rules["not_applicable"] + rules["beyond"] + rules["observed"] == sum(
        line["type"] == "case" and line["case"] is not None
        for line in {x["rule"]: x for x in lines if x["type"] == "case"}.values()
    )
    assert "not applicable" in output


def test_a_reader_that_tires_has_a_state_leak(run: Run) -> None:
    """It passes alone and fails after others."""
    code, lines, _ = run("remembers", "-k", "ENV-0*", "-j", "1", "--profile", "smoke")
    assert code == 1
    assert "STATE_LEAK" in outcomes(lines)


def test_a_stray_child_that_holds_the_pipe_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged as if it were not there, and gone afterwards."""
    monkeypatch.setenv("CMFSPEC_TEST_MARK", "stray-of-a-run")
    code, lines, _ = run("strays", "-k", "ENV-002")
    assert code == 0
    assert outcomes(lines) == {"PASS"}
    assert left_over("stray-of-a-run") == []


def test_a_reader_that_never_reads_fails_the_preflight(run: Run) -> None:
    """One message, not a thousand timeouts (bowtie-json-schema/bowtie#403)."""
    code, lines, output = run("never_reads", "--timeout-scale", "0.05")
    assert code == 1
    assert lines[-1]["stopped"] == "preflight: hello"
    assert "TIMEOUT" in output


def test_a_command_that_cannot_run_is_a_broken_run() -> None:
    """Not a failed case: nothing was tested (streem/pbandk#106)."""
    result = CliRunner().invoke(cli, ["run", "--impl", "/nonexistent/reader"])
    assert result.exit_code == 3
    assert "cannot run" in result.output


def test_zero_cases_are_not_a_success() -> None:
    """A typo in -k must not turn a build green (modelcontextprotocol/conformance#300)."""
    result = CliRunner().invoke(cli, ["run", "-k", "no-such-rule"])
    assert result.exit_code == 3
    assert "no case is selected" in result.output


def test_the_stream_has_a_header_a_line_for_each_case_and_a_footer(tmp_path: Path) -> None:
    """One truth, in order."""
    stream = tmp_path / "out.jsonl"
    assert CliRunner().invoke(cli, ["run", "--profile", "smoke", "--json", str(stream)]).exit_code == 0
    lines = [json.loads(line) for line in stream.read_text().splitlines()]
    assert [lines[0]["type"], lines[-1]["type"]] == ["header", "footer"]
    assert {line["type"] for line in lines[1:-1]} == {"case"}
    assert lines[0]["cases"] == len(lines) - 2 == lines[-1]["cases"]
    assert set(lines[1]) >= {"rule", "case", "level", "tier", "outcome", "expected", "got", "seconds", "reproducer"}
    assert lines[-1]["complete"] is False
    assert lines[-1]["conformant"] is None
    assert sum(lines[-1]["rules"].values()) == 412
