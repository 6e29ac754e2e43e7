"""A run's memory: the last stream, going on after a stop, and a runner that is killed at any moment.

Law: what was judged is never lost and never asked twice, and what is resumed is the same run or nothing.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runner.cli import cli
from runner.stream import Stream
from tests.hostile.judged import accepts_all
from tests.processes import MARK, left_over
from tests.streams import read_lines, verdicts

JUDGED = Path(__file__).parent / "hostile" / "judged.py"
PATTERN = "VAL-00*"


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded reader accepts everything."""
    monkeypatch.setattr("runner.target.reference", lambda: accepts_all)


def run(tmp_path: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """(exit code, the remembered stream, output)."""
    result = CliRunner().invoke(cli, ["run", "--out", str(tmp_path / "out"), *options])
    last = tmp_path / "out" / "last.jsonl"
    return result.exit_code, read_lines(last) if last.exists() and result.exit_code != 2 else [], result.output


def told(lines: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """What came of each case, without times and places."""
    return {(x["case"], x["outcome"], x["expected"], x["got"]) for x in lines if x["type"] == "case"}


def cut(path: Path, cases: int, tail: bytes = b"") -> None:
    """Leave a header and so many cases of a stream."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: cases + 1]) + tail)


def test_every_run_is_remembered_beside_the_stream_that_was_asked_for(tmp_path: Path) -> None:
    stream = tmp_path / "s.jsonl"
    _, last, _ = run(tmp_path, "-k", "VAL-004", "--json", str(stream))
    assert last == read_lines(stream)
    assert last[-1]["type"] == "footer"


def test_a_memory_that_cannot_be_written_is_a_remark(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    result = CliRunner().invoke(cli, ["run", "-k", "VAL-004", "--out", str(tmp_path / "out" / "x")])
    assert result.exit_code == 0
    assert "this run is not remembered" in result.output


def test_two_runs_do_not_write_one_stream(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    other = Stream(str(path))
    other.write({"type": "header"})
    code, _, output = run(tmp_path, "-k", "VAL-004", "--json", str(path))
    other.close()
    assert code == 3
    assert "another run is writing it" in output
    assert read_lines(path) == [{"type": "header"}]
    assert run(tmp_path, "-k", "VAL-004", "--json", str(path))[0] == 0


def test_a_stream_that_cannot_be_written_is_a_broken_run(tmp_path: Path) -> None:
    code, _, output = run(tmp_path, "-k", "VAL-004", "--json", str(tmp_path / "no" / "s.jsonl"))
    assert code == 3
    assert "No such file" in output


@pytest.mark.usefixtures("wrong")
def test_a_run_stops_after_enough_failures_and_says_so(tmp_path: Path) -> None:
    code, lines, output = run(tmp_path, "-k", PATTERN, "--max-fail", "3")
    assert code == 1
    assert sum(line.get("outcome") == "WRONG_ACCEPT" for line in lines) == 3
    assert lines[-1]["stopped"] == "--max-fail 3"
    assert (lines[-1]["complete"], lines[-1]["conformant"]) == (False, None)
    assert "stopped early: --max-fail 3" in output
    assert len(run(tmp_path, "-k", PATTERN, "--max-fail", "3000")[1]) == len(verdicts(PATTERN)) + 2


@pytest.mark.usefixtures("wrong")
def test_after_enough_failures_nothing_is_drawn(tmp_path: Path) -> None:
    options = ("--profile", "soak", "--examples", "5", "-k", "VAL-00[45]*", "--max-fail")
    assert not any("drawn" in line for line in run(tmp_path, *options, "1")[1])
    stored = sum(
        line.get("outcome") == "WRONG_ACCEPT" for line in run(tmp_path, *options, "999")[1] if "drawn" not in line
    )
    _, lines, _ = run(tmp_path, *options, str(stored + 1))
    assert sum("drawn" in line for line in lines) == 1
    assert lines[-1]["stopped"]


@pytest.mark.usefixtures("wrong")
def test_a_waived_failure_is_not_one_of_enough(tmp_path: Path) -> None:
    waivers = tmp_path / "w.yaml"
    waivers.write_text("- {rule: VAL-004, outcome: WRONG_ACCEPT, reason: r, url: https://x, expires: 2999-01-01}")
    code, lines, _ = run(tmp_path, "-k", "VAL-004", "--max-fail", "1", "--waive", str(waivers))
    assert (code, lines[-1]["stopped"]) == (0, "")


def test_several_workers_stop_soon(tmp_path: Path) -> None:
    impl = shlex.join([sys.executable, str(JUDGED), "accepts_all"])
    code, lines, _ = run(tmp_path, "--impl", impl, "-k", "VAL-00[45]*", "--max-fail", "1", "-j", "2")
    assert code == 1
    assert 1 <= sum(line.get("outcome") == "WRONG_ACCEPT" for line in lines) <= 2


@pytest.mark.usefixtures("wrong")
def test_the_last_failures_are_asked_again_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, before, _ = run(tmp_path, "-k", PATTERN)
    failed = {line["case"] for line in before if line.get("outcome") == "WRONG_ACCEPT"}
    _, again, _ = run(tmp_path, "--last-failed")
    assert {line["case"] for line in again[1:-1]} == failed
    assert again[-1]["complete"] is False
    monkeypatch.undo()
    assert run(tmp_path, "--last-failed", "-k", "VAL-004")[0] == 0
    code, _, output = run(tmp_path, "--last-failed")
    assert code == 3
    assert "nothing that is stored failed in the last run" in output


def test_without_a_memory_nothing_is_asked_again(tmp_path: Path) -> None:
    code, _, output = run(tmp_path, "--last-failed")
    assert code == 2
    assert "no run is remembered" in output
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "last.jsonl").write_text("garbage\n")
    code, _, output = run(tmp_path, "--last-failed")
    assert (code, "last.jsonl:1: found garbage" in " ".join(output.split())) == (2, True)


@pytest.mark.parametrize("tail", [b"", b'{"type":"case","rule":"VAL'], ids=["whole", "torn"])
@pytest.mark.parametrize("left", [0, 1, 17])
def test_a_resumed_run_asks_only_what_is_missing_and_counts_all(tmp_path: Path, left: int, tail: bytes) -> None:
    _, whole, _ = run(tmp_path, "-k", PATTERN)
    path = tmp_path / "out" / "last.jsonl"
    cut(path, left, tail)
    kept = read_lines(path)[: left + 1] if not tail else [json.loads(x) for x in path.read_text().splitlines()[:-1]]
    code, lines, output = run(tmp_path, "-k", PATTERN, "--resume")
    assert code == 0
    assert f"resumed: {left} cases are judged" in output
    assert lines[: left + 1] == kept
    assert told(lines) == told(whole)
    assert len(lines) == len(whole)
    assert {**lines[-1], "seconds": 0} == {**whole[-1], "seconds": 0}


@pytest.mark.usefixtures("wrong")
def test_what_failed_before_the_stop_still_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "-k", PATTERN)
    cut(tmp_path / "out" / "last.jsonl", len(verdicts(PATTERN)))  # only the footer is missing
    code, lines, _ = run(tmp_path, "-k", PATTERN, "--resume")
    assert code == lines[-1]["exit"] == 1


def test_a_stream_that_ended_is_told_again_and_left_alone(tmp_path: Path) -> None:
    _, whole, _ = run(tmp_path, "-k", "VAL-004")
    code, lines, output = run(tmp_path, "-k", "VAL-004", "--resume")
    assert code == 0
    assert lines == whole
    assert "nothing was missing" in output


def test_with_nothing_to_go_on_with_a_run_begins(tmp_path: Path) -> None:
    stream = tmp_path / "s.jsonl"
    stream.write_bytes(b'{"type":"head')
    for options in (["--json", str(tmp_path / "missing.jsonl")], ["--json", str(stream)], []):
        code, lines, _ = run(tmp_path, "-k", "VAL-004", "--resume", *options)
        assert (code, lines[-1]["type"]) == (0, "footer")
        (tmp_path / "out" / "last.jsonl").unlink()
    assert len(read_lines(stream)) == len(verdicts("VAL-004")) + 2


def other(**members: Any) -> Any:
    """A change of the header."""
    return lambda header: header.update(members)


STRANGE = {
    "argv": (other(argv=["run", "-k", "x"]), "is the stream of `run -k x`"),
    "implementation": (lambda h: h["implementation"].update(version="0.0.9"), "another run's: implementation was"),
    "artifacts": (other(artifacts={"/usr/bin/r": "0" * 64}), "another run's: artifacts was"),
    "waivers": (other(inputs={"waive": "0" * 64}), "another run's: inputs was"),
    "cases": (other(cases_sha256="0" * 64), "another suite"),
    "suite": (other(suite="0.0.1"), "another suite"),
    "selection": (lambda h: h["selection"].update(cap=3), "another run's: selection was"),
}


@pytest.mark.parametrize(("change", "found"), STRANGE.values(), ids=STRANGE)
def test_another_run_is_not_gone_on_with(tmp_path: Path, change: Any, found: str) -> None:
    run(tmp_path, "-k", "VAL-004")
    path = tmp_path / "out" / "last.jsonl"
    cut(path, 1)
    header, *rest = read_lines(path)
    change(header)
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *rest]))
    before = path.read_bytes()
    code, _, output = run(tmp_path, "-k", "VAL-004", "--resume")
    assert code == 2
    assert found in " ".join(output.split())
    assert path.read_bytes() == before


def test_a_reader_that_was_built_anew_is_another(tmp_path: Path) -> None:
    reader = tmp_path / "reader.py"
    reader.write_text(JUDGED.read_text())
    impl = shlex.join([sys.executable, str(reader), "honest"])
    run(tmp_path, "--impl", impl, "-k", "VAL-004")
    cut(tmp_path / "out" / "last.jsonl", 1)
    reader.write_text(JUDGED.read_text() + "\n# other\n")
    code, _, output = run(tmp_path, "--impl", impl, "-k", "VAL-004", "--resume")
    assert code == 2
    assert "artifacts was" in " ".join(output.split())


def test_what_does_not_answer_any_more_is_not_judged(tmp_path: Path) -> None:
    """The stream stays as it was: what is missing may yet be asked."""
    reader = tmp_path / "reader.py"
    reader.write_text(JUDGED.read_text())
    impl = shlex.join([sys.executable, str(reader), "honest"])
    run(tmp_path, "--impl", impl, "-k", "VAL-004")
    cut(tmp_path / "out" / "last.jsonl", 1)
    reader.write_text("raise SystemExit(1)")
    code, lines, output = run(tmp_path, "--impl", impl, "-k", "VAL-004", "--resume")
    assert (code, len(lines)) == (3, 2)
    assert "fails at hello" in output


def test_a_sequence_may_ask_a_case_twice_and_is_told_as_it_was(tmp_path: Path) -> None:
    sequence = tmp_path / "sequence.txt"
    case = verdicts("VAL-004")[0].case.id
    sequence.write_text(f"{case}\n{case}\n")
    code, lines, output = run(tmp_path, "--sequence", str(sequence))
    assert (code, [line["case"] for line in lines[1:-1]]) == (0, [case, case])
    told_again = CliRunner().invoke(cli, ["report", str(tmp_path / "out" / "last.jsonl")])
    assert (told_again.exit_code, told_again.output) == (0, output)
    for option in ("--resume", "--last-failed"):
        assert run(tmp_path, "--sequence", str(sequence), option)[0] == 2


@pytest.mark.parametrize("options", [["--json", "-"], ["--last-failed"]], ids=" ".join)
def test_some_options_do_not_go_with_resuming(tmp_path: Path, options: list[str]) -> None:
    assert run(tmp_path, "--resume", *options)[0] == 2


def test_the_soak_goes_on_with_the_rules_that_are_missing(tmp_path: Path) -> None:
    options = ("--profile", "soak", "--examples", "5", "-k", "ENV-02*")
    _, whole, _ = run(tmp_path, *options)
    drawn = [line for line in whole if "drawn" in line]
    assert len(drawn) > 1
    cut(tmp_path / "out" / "last.jsonl", len(whole) - 3)  # without the last drawn one and the footer
    code, lines, _ = run(tmp_path, *options, "--resume")
    assert code == 0
    assert told(lines) == told(whole)
    assert [line["rule"] for line in lines if "drawn" in line] == [line["rule"] for line in drawn]


KILLS = [("honest", "ENV-0*", 120, 0), ("honest", "ENV-0*", 120, 1), ("only_warns", "VAL-00[4-7]*", 6, 2)]


@pytest.mark.parametrize(("vice", "pattern", "step", "seed"), KILLS)
def test_a_runner_killed_at_any_moment_loses_no_case_and_leaves_no_process(
    tmp_path: Path, vice: str, pattern: str, step: int, seed: int
) -> None:
    """Killed and resumed, and at last let through; then the verdicts are those of a run that nobody killed."""
    dice, mark = random.Random(seed), uuid.uuid4().hex
    stream, remarks = tmp_path / "s.jsonl", tmp_path / "said"
    impl = shlex.join([sys.executable, str(JUDGED), vice])
    words = ["run", "--impl", impl, "-k", pattern, "-j", "2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "cmfspec", *words, "--json", str(stream), "--resume"]
    kept: list[str] = []
    moments = [0, *(dice.randrange(1, step) for _ in range(4)), None]  # killed after so many verdicts; 0: at its start
    for moment in moments:
        with (
            remarks.open("w") as said,
            subprocess.Popen(command, env={**os.environ, MARK: mark}, stdout=said, stderr=said) as runner,
        ):
            until = time.monotonic() + 120
            time.sleep(dice.uniform(0, 0.5) if moment == 0 else 0)
            while moment and runner.poll() is None and len(complete(stream)) < len(kept) + moment:
                assert time.monotonic() < until
                time.sleep(0.001)
            if moment is not None:
                runner.kill()
            runner.wait(120)
        assert left_over(mark) == []
        found = complete(stream)
        assert found[: len(kept)] == kept  # nothing that was written is lost
        kept = found
        assert runner.returncode == -signal.SIGKILL or moment is None
    code, whole, _ = run(tmp_path, *words[1:], "--json", str(tmp_path / "whole.jsonl"))
    assert runner.returncode == code, remarks.read_text()
    assert told(read_lines(stream)) == told(whole)
    assert len(kept) == len(whole)
    assert read_lines(stream)[-1]["outcomes"] == whole[-1]["outcomes"]


def complete(stream: Path) -> list[str]:
    """The whole lines of a stream that may be torn."""
    return stream.read_text().split("\n")[:-1] if stream.exists() else []
