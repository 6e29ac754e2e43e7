"""Against a stored stream: only what is worse fails.

Law: a known failure is the same case with the same outcome; what passed and is no longer judged is worse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runner.baseline import baseline_for
from runner.cli import cli
from runner.reading import read_whole
from tests.hostile.judged import accepts_all, declares_little, honest
from tests.streams import lines, read_lines, verdicts, written

PATTERN = "VAL-004"
COMMAND = "the embedded reference"


def run(tmp_path: Path, baseline: str, *options: str, reader: Any = None) -> tuple[int, list[dict[str, Any]], str]:
    """A run against a baseline: (exit code, stream, output)."""
    stream = tmp_path / "now.jsonl"
    words = ["run", "--json", str(stream), "--out", str(tmp_path / "out"), "--baseline", baseline, *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runner.target.reference", lambda: reader or honest)
        result = CliRunner().invoke(cli, words)
    return result.exit_code, read_lines(stream) if stream.exists() else [], result.output


def stored(tmp_path: Path, failing: dict[str, str] | None = None, pattern: str = PATTERN, **more: Any) -> str:
    return written(tmp_path / "then.jsonl", lines(pattern, verdicts(pattern, failing), command=COMMAND, **more))


def test_what_failed_before_does_not_fail_the_run(tmp_path: Path) -> None:
    code, found, output = run(tmp_path, stored(tmp_path, {PATTERN: "WRONG_ACCEPT"}), "-k", PATTERN, reader=accepts_all)
    assert code == found[-1]["exit"] == 0
    assert found[-1]["failed_rules"] == [PATTERN]
    assert all(line["known"] for line in found[1:-1])
    assert "0 worse, 0 better" in output
    assert "as in the baseline" in output


@pytest.mark.parametrize("before", [{}, {PATTERN: "CRASH"}], ids=["passed", "failed otherwise"])
def test_what_fails_anew_or_otherwise_fails_the_run(tmp_path: Path, before: dict[str, str]) -> None:
    code, found, output = run(tmp_path, stored(tmp_path, before), "-k", PATTERN, reader=accepts_all)
    assert code == 1
    assert found[-1]["baseline"]["new"] == [line["case"] for line in found[1:-1]]
    assert f"worse:  fails now {found[1]['case']}" in output


def test_a_failure_that_the_baseline_never_asked_fails_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, stored(tmp_path, pattern="VAL-005"), "-k", PATTERN, reader=accepts_all)[0] == 1


def test_what_got_better_is_told(tmp_path: Path) -> None:
    code, found, output = run(tmp_path, stored(tmp_path, {PATTERN: "CRASH"}), "-k", PATTERN)
    assert code == 0
    assert found[-1]["baseline"]["better"] == [line["case"] for line in found[1:-1]]
    assert f"better: passes now {found[1]['case']}" in output


def test_what_passed_and_is_not_judged_any_more_is_worse(tmp_path: Path) -> None:
    """A capability that is no longer declared must not turn a build green."""
    pattern = "*-001"
    code, found, output = run(tmp_path, stored(tmp_path, pattern=pattern), "-k", pattern, reader=declares_little)
    assert found[-1]["failed_rules"] == []
    assert code == 1
    unjudged = [line["case"] for line in found[1:-1] if line["outcome"] in ("NOT_APPLICABLE", "BEYOND")]
    graded = [case for case in found[-1]["baseline"]["lost"] if case in unjudged]
    assert graded == found[-1]["baseline"]["lost"]
    assert any(case.startswith("FEAT-001/") for case in graded)
    assert found[-1]["judged"] is True  # it is not for want of verdicts that it fails
    assert "passed, and is not judged now" in output
    path = str(tmp_path / "now.jsonl")
    assert CliRunner().invoke(cli, ["report", path]).exit_code == 1


def test_cases_that_are_not_asked_are_counted(tmp_path: Path) -> None:
    _, found, output = run(tmp_path, stored(tmp_path, {"VAL-004": "CRASH"}, "VAL-00*"), "-k", "VAL-005")
    assert found[-1]["baseline"]["unasked"] == len(verdicts("VAL-00*")) - len(verdicts("VAL-005"))
    assert found[-1]["baseline"]["better"] == []
    assert "of its cases not asked" in output


def test_drawn_failures_are_known_by_rule_and_outcome(tmp_path: Path) -> None:
    drawn = verdicts(PATTERN, {PATTERN: "CRASH"}, drawn=True)[:1]
    stream = written(tmp_path / "s.jsonl", lines(PATTERN, [*verdicts(PATTERN), *drawn], command="./r"))
    known = baseline_for(read_whole(stream), "./r", alone=True)
    other, otherwise = (verdicts(PATTERN, {PATTERN: outcome}, drawn=True)[1] for outcome in ("CRASH", "TIMEOUT"))
    assert known.knows(other)
    assert not known.knows(otherwise)
    assert not known.knows(verdicts(PATTERN, {PATTERN: "CRASH"})[1])


def test_a_baseline_of_several_is_read_by_command(tmp_path: Path) -> None:
    one = lines(PATTERN, verdicts(PATTERN), command="./one")
    two = lines(PATTERN, verdicts(PATTERN, {PATTERN: "CRASH"}), command="./two")
    stream = read_whole(written(tmp_path / "s.jsonl", one, two))
    failing = verdicts(PATTERN, {PATTERN: "CRASH"})[0]
    assert not baseline_for(stream, "./one", alone=False).knows(failing)
    assert baseline_for(stream, "./two", alone=False).knows(failing)


def test_a_baseline_of_whom_is_a_question_with_an_answer(tmp_path: Path) -> None:
    """With one on either side the command may differ; else it decides, and must."""
    one = lines(PATTERN, verdicts(PATTERN), command="./one")
    two = lines(PATTERN, verdicts(PATTERN), command="./two")
    assert run(tmp_path, written(tmp_path / "a.jsonl", one), "-k", PATTERN)[0] == 0
    code, found, output = run(tmp_path, written(tmp_path / "b.jsonl", one, two), "-k", PATTERN)
    assert (code, found == read_lines(tmp_path / "now.jsonl")) == (2, True)
    assert "no runs of 'the embedded reference' among ./one, ./two" in " ".join(output.split())
    assert (
        "2 runs of"
        in run(
            tmp_path,
            written(
                tmp_path / "c.jsonl",
                lines(PATTERN, verdicts(PATTERN), command=COMMAND),
                lines(PATTERN, verdicts(PATTERN), command=COMMAND),
            ),
        )[2]
    )


def test_a_run_that_did_not_end_is_no_baseline(tmp_path: Path) -> None:
    code, _, output = run(tmp_path, stored(tmp_path, ended=False), "-k", PATTERN)
    assert code == 2
    assert "a run without a footer" in output


def test_a_preflight_that_fails_fails_the_run_whatever_was_before(tmp_path: Path) -> None:
    baseline = stored(tmp_path, {PATTERN: "WRONG_REJECT"})
    words = ["run", "--impl", "true", "--baseline", baseline, "--out", str(tmp_path), "-k", PATTERN]
    assert CliRunner().invoke(cli, words).exit_code == 1
