"""Waivers: what is put up with, and that the list of it can't rot.

Law: a waiver excuses one outcome of what it names, until its day; one that excuses nothing fails the run.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from golden.cases import stored
from runner.cli import cli
from runner.strangers import BadFile
from runner.stream import footer
from runner.waivers import Waiver, Waivers, load, parse
from tests.hostile.judged import accepts_all
from tests.streams import read_lines, verdicts, whole

TODAY = datetime.date(2026, 6, 1)
SUITE = [(rule, case.id) for rule, cases in stored().items() for case in cases]
ALL = frozenset(case for _, case in SUITE)
Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


def entry(**changed: str | None) -> str:
    """An entry of a file of waivers; a key with None is left out."""
    given: dict[str, str | None] = {
        "rule": "VAL-004", "outcome": "WRONG_ACCEPT", "reason": "we still read version 1", "url": "https://x.test/1",
        "expires": "2999-12-31",
    }  # fmt: skip
    given |= changed
    return "- " + "\n  ".join(f"{key}: {value}" for key, value in given.items() if value is not None) + "\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of VAL-004 on a reader that accepts everything, with a file of waivers: (exit code, stream, output)."""

    def judge(text: str, *options: str) -> tuple[int, list[dict[str, Any]], str]:
        monkeypatch.setattr("runner.target.reference", lambda: accepts_all)
        (tmp_path / "waivers.yaml").write_text(text)
        stream = tmp_path / "results.jsonl"
        words = ["run", "-k", "VAL-004", "--json", str(stream), "--out", str(tmp_path / "out")]
        result = CliRunner().invoke(cli, [*words, "--waive", str(tmp_path / "waivers.yaml"), *options])
        return result.exit_code, read_lines(stream) if stream.exists() else [], result.output

    return judge


def troubles(waivers: str, found: Any, reach: frozenset[str] = ALL) -> list[str]:
    """Why waivers fail a run of these verdicts."""
    return [why for _, why in parse("w", waivers, TODAY).troubles([found], SUITE, reach)]


def test_a_waived_failure_fails_the_rule_and_not_the_run(run: Run) -> None:
    code, lines, output = run(entry())
    assert code == 0
    assert lines[-1]["failed_rules"] == ["VAL-004"]
    assert lines[-1]["waived"] == len(lines) - 2 > 0
    assert all(line["waived"] == "we still read version 1 (https://x.test/1)" for line in lines[1:-1])
    assert "failed, excused VAL-004" in output


def test_with_a_waived_failure_nobody_is_conformant() -> None:
    found = verdicts(None, {"VAL-004": "WRONG_ACCEPT"}, waived="known")
    end = footer(whole(found), found)
    assert (end["complete"], end["conformant"], end["waived"]) == (True, False, len(stored()["VAL-004"]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (entry(outcome="CRASH"), "nothing that it matches fails with CRASH any more"),
        (entry(expires="2020-01-01"), "it expired on 2020-01-01"),
        (entry() + entry(rule="VAL-9*"), "it matches no case of this suite"),
        (entry() + entry(rule=None, case="VAL-004/00000000"), "it matches no case of this suite"),
    ],
    ids=["another outcome", "expired", "no rule", "no case"],
)
def test_a_waiver_that_covers_nothing_fails_the_run(run: Run, text: str, why: str) -> None:
    code, lines, output = run(text)
    assert code == lines[-1]["exit"] == 1
    assert [trouble["why"] for trouble in lines[-1]["waivers"]] == [why]
    assert why in output


def test_a_case_can_be_waived_alone(run: Run) -> None:
    first, *others = (case.id for case in stored()["VAL-004"])
    code, lines, _ = run(entry(rule=None, case=first))
    assert code == 1
    assert [line["case"] for line in lines[1:-1] if "waived" in line] == [first]
    assert run(entry(rule=None, case=first) + "".join(entry(rule=None, case=other) for other in others))[0] == 0


def test_what_was_not_asked_does_not_make_a_waiver_stale() -> None:
    failing = {"VAL-004": "WRONG_ACCEPT"}
    assert troubles(entry(rule="VAL-*"), verdicts("VAL-004")) == []
    assert troubles(entry(rule="VAL-*"), verdicts("VAL-0*")) == [
        "nothing that it matches fails with WRONG_ACCEPT any more"
    ]
    assert troubles(entry(rule="VAL-*"), verdicts("VAL-0*", failing)) == []
    assert troubles(entry(), verdicts("VAL-005")) == []


def test_what_a_capped_run_never_asks_does_not_keep_a_waiver_alive() -> None:
    found = verdicts("VAL-004")[:1]
    reach = frozenset(verdict.case.id for verdict in found)
    assert troubles(entry(), found, reach) == ["nothing that it matches fails with WRONG_ACCEPT any more"]
    assert troubles(entry(), found) == []


def test_a_waiver_that_one_of_several_implementations_needs_is_not_stale() -> None:
    waivers = parse("w", entry(), TODAY)
    runs = [verdicts("VAL-004"), verdicts("VAL-004", {"VAL-004": "WRONG_ACCEPT"})]
    assert waivers.troubles(runs, SUITE, ALL) == []
    assert waivers.troubles(runs[:1], SUITE, ALL) != []
    assert waivers.troubles([runs[0], []], SUITE, ALL) == []  # the second never got as far


def test_the_last_day_of_a_waiver_counts() -> None:
    verdict = verdicts("VAL-004", {"VAL-004": "WRONG_ACCEPT"})[0]
    assert parse("w", entry(expires="2026-06-01"), TODAY).reason(verdict)
    assert not parse("w", entry(expires="2026-05-31"), TODAY).reason(verdict)


KEPT = entry().replace("- ", "- # the reason stands below\n  ", 1)
GONE = {
    "block": entry(outcome="CRASH"),
    "comment behind": entry(outcome="CRASH  # no more"),
    "folded": entry(outcome="CRASH", reason=">\n    two\n    lines\n"),
    "literal": entry(outcome="CRASH", reason="|\n    two\n\n    lines"),
    "literal at its end": entry(outcome="CRASH", reason=None) + "  reason: |\n    two\n    lines\n",
    "quoted": entry(outcome="CRASH", reason='"over\n    two lines"'),
    "flow": '- {case: "VAL-00*", outcome: CRASH, reason: r,\n   url: "https://x.test", expires: 2999-01-01}\n',
    "expired": entry(expires="2020-02-02"),
    "matches nothing": entry(rule="NO-SUCH"),
}


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_stale_entries_are_cut_and_every_other_byte_stays(tmp_path: Path, gone: str, newline: str) -> None:
    path = tmp_path / "waivers.yaml"
    text = "# ours\n\n{}# about the next\n{}  # indented\n\n{}# the end"
    path.write_bytes(text.format(gone, KEPT, gone).replace("\n", newline).encode())
    path.chmod(0o640)
    waivers = load(str(path), TODAY)
    found = waivers.troubles([verdicts("VAL-0*", {"VAL-004": "WRONG_ACCEPT"})], SUITE, ALL)
    waivers.cut(waiver for waiver, _ in found)
    assert path.read_bytes() == text.format("", KEPT, "").replace("\n", newline).encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["waivers.yaml"]


def test_all_entries_can_be_cut_and_an_empty_list_waives_nothing(run: Run, tmp_path: Path) -> None:
    code, lines, output = run("# none left\n" + entry(expires="2020-01-01"), "--update-waivers")
    assert code == 1  # the failure itself is still there
    assert lines[-1]["waivers"] == []
    assert "it expired on 2020-01-01" in output
    assert (tmp_path / "waivers.yaml").read_text() == "# none left\n"
    assert run("# none left\n")[1][-1]["waived"] == 0


def test_cutting_what_fails_the_run_mends_it(run: Run, tmp_path: Path) -> None:
    assert run(entry() + entry(rule="NO-SUCH"), "--update-waivers")[0] == 0
    assert (tmp_path / "waivers.yaml").read_text() == entry()


UNCUT = {
    "brackets": ("[{rule: A, outcome: CRASH, reason: r, url: https://x, expires: 2020-01-01}]", "brackets"),
    "alias": (entry(expires="2020-01-01").replace("- ", "- &a\n  ", 1) + "- *a\n", "alias"),
    "inner alias": (entry(reason="&r why", expires="2020-01-01") + entry(reason="*r"), "undefined alias"),
}


@pytest.mark.parametrize(("text", "found"), UNCUT.values(), ids=UNCUT)
def test_what_cannot_be_cut_by_lines_is_left_as_it_is(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_text(text)
    waivers = load(str(path), TODAY)
    with pytest.raises(BadFile, match=found):
        waivers.cut(waiver for waiver in waivers.entries if waiver.expires < TODAY)
    assert path.read_text() == text


def test_a_file_that_changed_during_the_run_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_text(entry(expires="2020-01-01"))
    waivers = load(str(path), TODAY)
    path.write_text(entry())
    with pytest.raises(BadFile, match="another text"):
        waivers.cut(waivers.entries)
    assert path.read_text() == entry()


BAD = {
    "no list": ("rule: VAL-004", ":1: found a mapping, wanted a list"),
    "a text": ("VAL-004", "the text 'VAL-004', wanted a list"),
    "entry is no mapping": ("- VAL-004", ":1: found the text 'VAL-004', wanted an entry with rule or case"),
    "no reason": (entry(reason=None), ":1: found an entry without reason"),
    "empty reason": (entry(reason=""), ":3: found reason with nothing"),
    "no url": (entry(url=None), "without url"),
    "url": (entry(url="javascript:x"), "wanted one that begins with https://"),
    "no day": (entry(expires=None), "without expires"),
    "day": (entry(expires="soon"), "expires 'soon', wanted a day such as"),
    "impossible day": (entry(expires="2026-02-30"), "2026-02-30"),
    "outcome": (entry(outcome="PASS"), "outcome 'PASS', wanted one of WRONG_ACCEPT"),
    "quiet outcome": (entry(outcome="OBSERVED"), "outcome 'OBSERVED'"),
    "neither": (entry(rule=None), "both or neither"),
    "both": (entry(case="VAL-004/*"), "both or neither"),
    "unknown key": (entry(until="never"), ":6: found 'until'"),
    "twice": (entry() + "  reason: again\n", ":6: found reason twice"),
    "merge key": ("- &a {rule: x}\n- <<: *a\n", "found an entry without"),
    "list for text": (entry(reason="[a, b]"), "reason with a list"),
    "broken": ("- rule: 'x\n", "wanted YAML"),
    "two documents": ("--- []\n--- []\n", "wanted YAML"),
    "no alias": ("- *a", "undefined alias"),
    "deep": ("[" * 5000, "wanted YAML"),
    "control": ("- \x1b[2J", "wanted YAML"),
    "escape": ('- "\\e[2J"', "\\\\x1b[2J"),
    "line separator": ("- a\u2028", "odd line break"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "found"), BAD.values(), ids=BAD)
def test_a_bad_file_of_waivers_is_a_usage_error_with_its_line(run: Run, text: str, found: str) -> None:
    code, lines, output = run(text)
    assert code == 2
    assert lines == []
    assert found.replace("\\\\", "\\") in " ".join(output.split())
    assert "\x1b" not in output


def test_what_is_no_file_of_text_is_a_usage_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bytes").write_bytes(b"- a\n- \xff\xfe\n")
    (tmp_path / "large").write_bytes(b"#" * (2 << 20))
    expected = {
        "missing": "No such file", "fifo": "no regular file", ".": "no regular file", "bytes": "bytes:2: found the byte 0xff",
        "large": "more than 1048576 bytes",
    }  # fmt: skip
    for name, text in expected.items():
        result = CliRunner().invoke(cli, ["run", "--waive", str(tmp_path / name)])
        assert result.exit_code == 2, name
        assert text in result.output


def test_updating_needs_a_file() -> None:
    assert CliRunner().invoke(cli, ["run", "--update-waivers"]).exit_code == 2


def test_a_waiver_says_what_it_is_about() -> None:
    waivers: Waivers = parse("w", entry(), TODAY)
    waiver: Waiver = waivers.entries[0]
    assert (str(waiver), waiver.line, waiver.last) == ("rule VAL-004 WRONG_ACCEPT", 1, 5)
