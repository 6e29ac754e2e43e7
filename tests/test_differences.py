"""Several implementations in one run, side by side.

Law: each has its section and its summary as if it were alone; where two answer differently is told once more. The worst decides.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runner.cli import cli
from runner.differences import answer, disagreements, labels
from runner.judge import Verdict
from runner.reading import Who, read
from tests.streams import lines, read_lines, verdicts, written

JUDGED = Path(__file__).parent / "hostile" / "judged.py"
Run = Callable[..., tuple[int, list[list[dict[str, Any]]], str]]


def impl(vice: str) -> str:
    return shlex.join([sys.executable, str(JUDGED), vice])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run on several vices: (exit code, the sections of the stream, output)."""

    def judge(vices: list[str], *options: str) -> tuple[int, list[list[dict[str, Any]]], str]:
        stream = tmp_path / "s.jsonl"
        words = [word for vice in vices for word in ("--impl", vice if vice.startswith("/") else impl(vice))]
        words += ["--json", str(stream), "--out", str(tmp_path / "out"), *options]
        result = CliRunner().invoke(cli, ["run", *words])
        sections: list[list[dict[str, Any]]] = []
        for line in read_lines(stream) if stream.exists() else []:
            if line["type"] == "header":
                sections.append([])
            sections[-1].append(line)
        return result.exit_code, sections, result.output

    return judge


def row(case: str, *answers: str) -> str:
    return rf"{case}/\w+ +" + " +".join(answers)


def test_each_has_a_section_of_its_own_and_the_worst_decides(run: Run, tmp_path: Path) -> None:
    code, sections, output = run(["honest", "accepts_all", "declares_little"], "-k", "VAL-00[34]*")
    assert code == 1
    assert [section[0]["implementation"]["command"] for section in sections] == [
        impl(vice) for vice in ("honest", "accepts_all", "declares_little")
    ]
    assert [section[-1]["exit"] for section in sections] == [0, 1, 0]
    assert len({len(section) for section in sections}) == 1
    assert output.count(", profile certify: ") == 3
    assert re.search(row("VAL-004", "PASS", "WRONG_ACCEPT", "PASS"), output)
    assert CliRunner().invoke(cli, ["report", str(tmp_path / "s.jsonl")]).output == output


def test_two_that_agree_have_nothing_to_show(run: Run) -> None:
    code, _, output = run(["honest", "declares_little"], "-k", "VAL-004")
    assert code == 0
    assert "0 cases on which two implementations disagree" in output


def test_one_that_fails_the_preflight_does_not_keep_the_others_from_being_judged(run: Run) -> None:
    code, sections, output = run(["refuses_all", "honest"], "-k", "VAL-004")
    assert code == 1
    assert [section[-1]["cases"] for section in sections] == [0, len(verdicts("VAL-004"))]
    assert "fails at open" in output


def test_one_that_cannot_be_started_breaks_the_run(run: Run) -> None:
    code, sections, output = run(["honest", "/nonexistent/reader", "honest2"], "-k", "VAL-004")
    assert code == 3
    assert len(sections) == 1
    assert "cannot run /nonexistent/reader" in output


def test_the_same_twice_is_a_usage_error(run: Run) -> None:
    code, sections, output = run(["honest", "honest"])
    assert (code, sections) == (2, [])
    assert "is given twice" in " ".join(output.split())


def test_doctor_sees_each() -> None:
    result = CliRunner().invoke(cli, ["doctor", "--impl", "true", "--impl", impl("honest")])
    assert result.exit_code == 1
    assert result.output.count("ok ") == 4


@pytest.mark.parametrize("place", [0.25, 0.5, 0.75])
def test_a_run_of_several_goes_on_where_it_was_cut(run: Run, tmp_path: Path, place: float) -> None:
    vices = ["honest", "accepts_all"]
    code, whole, _ = run(vices, "-k", "VAL-00[45]*")
    stream = tmp_path / "s.jsonl"
    content = stream.read_bytes()
    kept = content[: int(len(content) * place)]
    stream.write_bytes(kept)
    again, sections, _ = run(vices, "-k", "VAL-00[45]*", "--resume")
    assert again == code == 1
    assert stream.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert stream.read_bytes() == (tmp_path / "out" / "last.jsonl").read_bytes()

    def told(found: list[list[dict[str, Any]]]) -> list[set[tuple[str, str]]]:
        return [{(line["case"], line["outcome"]) for line in section[1:-1]} for section in found]

    assert told(sections) == told(whole)
    assert [len(section) for section in sections] == [len(section) for section in whole]


def test_a_waiver_that_one_needs_is_not_stale_for_the_other(run: Run, tmp_path: Path) -> None:
    waivers = tmp_path / "w.yaml"
    waivers.write_text("- {rule: VAL-004, outcome: WRONG_ACCEPT, reason: r, url: https://x, expires: 2999-01-01}")
    assert run(["accepts_all", "honest"], "-k", "VAL-004", "--waive", str(waivers))[0] == 0
    code, sections, _ = run(["honest"], "-k", "VAL-004", "--waive", str(waivers))
    assert code == 1
    assert sections[-1][-1]["waivers"][0]["why"].startswith("nothing that it matches fails")


def verdict(outcome: str, got: str = "") -> Verdict:
    known = verdicts("VAL-004")[0]
    return Verdict(known.rule, known.case, outcome, "", got, 0.0)


SAME = [
    (("PASS", ""), ("PASS", "")),
    (("CRASH", "killed by SIGSEGV"), ("CRASH", "killed by SIGABRT")),
    (("OBSERVED", "open: refused Bounds, 'too short'"), ("OBSERVED", "open: refused Bounds, 'dir\nends'")),
    (("NOT_APPLICABLE", "a"), ("PASS", "")),
    (("WRONG_ACCEPT", "x"), ("BEYOND", "")),
]
DIFFERENT = [
    (("PASS", ""), ("WRONG_ACCEPT", "")),
    (("OBSERVED", "open: accepted"), ("OBSERVED", "open: refused Parse")),
    (("OBSERVED", "open: refused Bounds, 'x'"), ("OBSERVED", "open: refused Parse, 'x'")),
    (("WRONG_VALUE", "3 tensors"), ("WRONG_VALUE", "4 tensors")),
]


@pytest.mark.parametrize(("one", "two"), SAME + DIFFERENT)
def test_answers_are_compared_and_words_are_not(one: tuple[str, str], two: tuple[str, str]) -> None:
    found = disagreements([(Who("a"), [verdict(*one)]), (Who("b"), [verdict(*two)])])
    assert bool(found) == ((one, two) in DIFFERENT)


def test_who_does_not_name_kinds_is_not_held_to_them() -> None:
    one, two = verdict("OBSERVED", "open: refused Bounds"), verdict("OBSERVED", "open: refused")
    assert disagreements([(Who("a"), [one]), (Who("b", kinds=False), [two])]) == []
    assert answer(one) != answer(two)


def test_names_are_told_apart() -> None:
    assert labels([Who("./a", "r"), Who("./b"), Who("./c", "r")]) == ["r #1", "./b", "r #3"]


def test_a_stream_of_one_is_read_as_ever(tmp_path: Path) -> None:
    found = read(written(tmp_path / "s.jsonl", lines("VAL-004", verdicts("VAL-004"))))
    assert len(found.sections) == 1
