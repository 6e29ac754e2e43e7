"""Streams as strangers hand them over: garbage, torn, doctored, another suite's.

Law: what is wrong is one sentence with file and line and exit 2; nothing that is done to a failing stream makes it a success.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runner.cli import cli
from runner.reading import read
from tests.streams import lines, verdicts, written

PATTERN = "VAL-00*"
Lines = list[dict[str, Any]]


def failing() -> Lines:
    """A section in which VAL-004 fails."""
    return lines(PATTERN, verdicts(PATTERN, {"VAL-004": "CRASH"}))


def report(path: str, *options: str) -> tuple[int, str]:
    """(exit code, output) of `cmfspec report`; an exception of ours is raised."""
    result = CliRunner().invoke(cli, ["report", path, *options])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def changed(place: int, **members: Any) -> Callable[[Lines], None]:
    """A change of one line; a member that is None is taken away."""

    def change(found: Lines) -> None:
        for name, value in members.items():
            if value is None:
                del found[place][name]
            else:
                found[place][name] = value

    return change


def without(place: int) -> Callable[[Lines], None]:
    return lambda found: found.__delitem__(place)


def better(found: Lines) -> None:
    """Each failure called a pass, as the footer does not know."""
    for line in found[1:-1]:
        line["outcome"] = "PASS" if line["outcome"] == "CRASH" else line["outcome"]


def waived(found: Lines) -> None:
    for line in found[1:-1]:
        line["waived"] = "so"


DOCTORED: dict[str, tuple[Callable[[Lines], None], str]] = {
    "newer suite": (changed(0, suite="99.0"), ":1: found the stream of another suite, suite 99.0, wanted 0."),
    "other cases": (changed(0, cases_sha256="0" * 64), "cases_sha256 0000"),
    "other rules": (changed(0, rules_sha256=None), "rules_sha256 None"),
    "other protocol": (changed(0, protocol=[2]), "protocol [2]"),
    "header without rerun": (changed(0, rerun=None), ":1: found something else"),
    "no moment": (changed(0, started="yesterday"), "RFC3339"),
    "negative time": (changed(1, seconds=-1), "Expected `float` >= 0"),
    "header of wrong types": (changed(0, cases="many"), "Expected `int`"),
    "implementation of wrong type": (changed(0, implementation=[]), "Expected `object`"),
    "no header": (without(0), ":1: found a case outside of a run"),
    "case after footer": (lambda found: found.append(found[1]), "a case outside of a run"),
    "second footer": (lambda found: found.append(found[-1]), "a footer outside of a run"),
    "no type": (changed(2, type=None), ":3: found type 'None'"),
    "odd type": (changed(2, type=["case"]), "found type"),
    "unknown rule": (changed(1, rule="VAL-999"), ":2: found rule 'VAL-999'"),
    "unknown case": (changed(1, case="VAL-001/00000000"), "case 'VAL-001/00000000' of VAL-001"),
    "case of another rule": (changed(1, rule="VAL-002", case="VAL-001/1f695f92"), "of VAL-002"),
    "drawn case with another id": (changed(1, drawn="{}"), "wanted a case of this suite"),
    "unknown outcome": (changed(1, outcome="FINE"), "outcome 'FINE'"),
    "outcome of wrong type": (changed(1, outcome=7), "Expected `str`"),
    "case twice": (lambda found: found.insert(2, found[1]), "twice, wanted each case once"),
    "a case less": (without(1), "an end after"),
    "a failure less": (lambda found: found.remove(next(x for x in found if x.get("outcome") == "CRASH")), "an end after"),
    "failures called passes": (better, "a footer with"),
    "failures called waived": (waived, "a footer with"),
    "footer that forgets": (changed(-1, failed_rules=[]), "a footer with failed_rules []"),
    "footer that says conformant": (changed(-1, conformant=True), "a footer with conformant True"),
    "footer that says complete": (changed(-1, complete=True), "a complete run without all cases"),
    "footer with exit 0": (changed(-1, exit=0), "a footer with exit 0"),
    "footer that stopped and fails nothing": (changed(-1, stopped="--max-fail 1", exit=0), "a footer with exit 0"),
    "footer that says judged": (changed(-1, judged=False), "a footer with judged False"),
    "after an unknown case": (changed(1, after=["VAL-001/1f695f92", "x"]), "after 'x', wanted after cases of this suite"),
    "footer without exit": (changed(-1, exit=None), "something else"),
    "footer of wrong types": (changed(-1, rules=[1]), "Expected `object`"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "found"), DOCTORED.values(), ids=DOCTORED)
def test_a_doctored_stream_is_refused_with_its_line(
    tmp_path: Path, change: Callable[[Lines], None], found: str
) -> None:
    section = failing()
    change(section)
    code, output = report(written(tmp_path / "s.jsonl", section))
    assert code == 2
    assert "s.jsonl:" in output
    assert found in " ".join(output.split())


GARBAGE = {
    "empty": (b"", "no header"),
    "text": (b"hello\n", ":1: found hello"),
    "half a line": (b'{"type":"hea', "no header"),
    "bytes": (b"\xff\xfe\x00\n", "wanted a line of JSON"),
    "bad UTF-8 in a string": (b'{"type":"\xff"}\n', "wanted a line of JSON"),
    "a list": (b"[1]\n", "found [1], wanted an object"),
    "deep": (b"[" * 100_000 + b"\n", "wanted a line of JSON"),
    "deep and whole": (b'{"type":' + b"[" * 3000 + b"]" * 3000 + b"}\n", "found"),
    "NUL": (b"\x00" * 4096, "no header"),
    "escapes": (b"\x1b[2J\n", "\\x1b[2J"),
    "empty lines": (b"\n\n", "wanted a line of JSON"),
    "endless line": (b"x" * (17 << 20), "a line of more than"),
}


@pytest.mark.parametrize(("content", "found"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    for words in (["report", str(path)], ["run", "--baseline", str(path), "--out", str(tmp_path)]):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 2, result.output
        assert found in " ".join(result.output.split())
        assert "\x1b" not in result.output


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("missing", "fifo", "."):
        assert CliRunner().invoke(cli, ["report", str(tmp_path / name)]).exit_code == 2


def test_stdin_is_read_once_and_by_report_alone() -> None:
    for words in (["report", "-", "-"], ["run", "--baseline", "-"], ["run", "--waive", "-"]):
        result = CliRunner().invoke(cli, words, input=b"")
        assert result.exit_code == 2
        assert "stdin" in result.output


def test_a_stream_comes_from_stdin_too(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "s.jsonl", failing()))
    result = CliRunner().invoke(cli, ["report", "-"], input=path.read_bytes())
    assert result.exit_code == 1
    assert "VAL-004" in result.output


@pytest.mark.parametrize(
    "tail", ["", '{"type":"case","ru', '{"type":"footer","complete":true,"conformant":true}', "\0\0\0"]
)
def test_a_stream_without_its_end_is_an_incomplete_run(tmp_path: Path, tail: str) -> None:
    section = lines(PATTERN, verdicts(PATTERN), ended=False)
    path = written(tmp_path / "s.jsonl", section, tail=tail)
    found = read(path)
    assert found.torn is bool(tail)
    assert found.whole == os.path.getsize(path) - len(tail)
    code, output = report(path)
    assert code == 3
    assert "did not end" in output


def test_an_unfinished_section_is_incomplete_though_another_follows(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s.jsonl", lines(PATTERN, verdicts(PATTERN), ended=False), lines(PATTERN, verdicts(PATTERN))
    )
    assert report(path)[0] == 3


def test_several_streams_are_one(tmp_path: Path) -> None:
    one = written(tmp_path / "1.jsonl", lines(PATTERN, verdicts(PATTERN), command="./one"))
    two = written(tmp_path / "2.jsonl", lines(PATTERN, verdicts(PATTERN, {"VAL-004": "CRASH"}), command="./two"))
    both = tmp_path / "both.jsonl"
    both.write_text(Path(one).read_text() + Path(two).read_text())
    apart = CliRunner().invoke(cli, ["report", one, two])
    assert (apart.exit_code, apart.output) == report(str(both))
    assert apart.exit_code == 1


@pytest.mark.parametrize("seed", range(8))
def test_no_damage_makes_a_failing_stream_a_success(tmp_path: Path, seed: int) -> None:
    """Bits flipped, bytes cut or doubled, lines lost or swapped: 1, 2 or 3, and never an exception."""
    path, dice = tmp_path / "s.jsonl", random.Random(seed)
    whole = Path(written(path, failing())).read_bytes()
    codes = set()
    for _ in range(40):
        content = bytearray(whole)
        at, much = dice.randrange(len(content)), dice.choice((1, 1, 9, 400))
        kind = dice.randrange(5)
        if kind == 0:
            content[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del content[at : at + much]
        elif kind == 2:
            content[at:at] = content[at : at + much]
        elif kind == 3:
            pieces = bytes(content).splitlines(keepends=True)
            pieces.pop(dice.randrange(len(pieces)))
            content = bytearray(b"".join(pieces))
        else:
            del content[at:]
        path.write_bytes(content)
        codes.add(report(str(path))[0])
    assert codes <= {1, 2, 3}
    assert 2 in codes


def test_what_a_reader_said_survives_the_way_through_the_stream(tmp_path: Path) -> None:
    odd = 'a\n"b"\t\x00\x1b\u2028 é 键 \\ </x> {case}'
    after = tuple(verdict.case for verdict in verdicts("VAL-005"))
    found = verdicts("VAL-004", {"VAL-004": "CRASH"}, stderr=odd, reproducer=odd, after=after)
    section = read(written(tmp_path / "s.jsonl", lines("VAL-004", found))).sections[0]
    assert section.verdicts == found
    assert json.loads(json.dumps(section.raw)) == section.raw
