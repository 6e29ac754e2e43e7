"""The gallery of hostile implementations: each vice, and the verdict that its user sees after a whole `cmfspec run`.

Law: the table below is the documentation. A vice passes for nothing else than what it is; after each run no process, no
descriptor and no folder of ours is left; only where the verdict is PASS is the exit code 0.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from golden.cases import stored
from runner import reproducer, scratch
from runner.cli import cli
from tests.processes import HOSTILE, PYTHON, mark

__all__ = ["mark"]  # fixture

RULE = "ENV-002"  # a file with another magic: first the right file is opened, then the wrong one
QUICK = ("--timeout-scale", "0.08")


class Seen(NamedTuple):
    """What a run left: exit code, stream, terminal."""

    code: int
    header: dict[str, Any]
    cases: list[dict[str, Any]]
    footer: dict[str, Any]
    output: str


Run = Callable[..., Seen]

# vice → verdict, and words that tell the user why
GALLERY: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("honest", "PASS", "", ()),
    # Hangs
    ("hangs", "TIMEOUT", "; nothing", QUICK),
    ("ignores_sigterm", "TIMEOUT", "; nothing", QUICK),
    ("late", "TIMEOUT", "; nothing", QUICK),
    ("half_a_line_for_ever", "TIMEOUT", "half a line", QUICK),
    ("floods_stderr_for_ever", "TIMEOUT", "; nothing", QUICK),
    ("stops_reading", "TIMEOUT", "; nothing", QUICK),
    # Deaths
    ("segfaults", "CRASH", "killed by SIGSEGV while a request was in flight", ()),
    ("aborts", "CRASH", "killed by SIGABRT", ()),
    ("kills_itself", "CRASH", "killed by SIGKILL", ()),
    ("exits_0", "CRASH", "exited with 0 while a request was in flight", ()),
    ("exits_1", "CRASH", "exited with 1 while a request was in flight", ()),
    ("raises", "CRASH", "exited with 1 while a request was in flight: ValueError: bad file", ()),
    ("half_a_line", "CRASH", "after half a line", ()),
    # Words that are no reply
    ("noise", "PROTOCOL", "DEBUG: parsing", ()),
    ("two_replies", "PROTOCOL", "two replies", ()),
    ("wrong_id", "PROTOCOL", "answers no request", ()),
    ("late_second_reply", "PROTOCOL", "", ()),
    ("invalid_utf8", "PROTOCOL", "utf-8", ()),
    ("modifies_the_input", "PROTOCOL", "the implementation changed its input: written to", ()),
    ("closes_stdin", "PROTOCOL", "it closed its stdin and lives", ()),
    # Greed
    ("gibibyte_line", "RESOURCE", "a line of at most 1048576 bytes", ()),
    ("balloons", "RESOURCE", "at most 67108864 bytes of memory", ("--mem-limit", "64")),
    ("fills_the_scratch", "RESOURCE", "in the scratch folder", ()),
    # Odd, and allowed
    ("crlf", "PASS", "", ()),
    ("floods_stderr", "PASS", "", ()),
    ("forks_a_child", "PASS", "", ()),
    ("setsids_a_child", "PASS", "", ()),
    # Answers that are no refusal
    ("error", "ERROR", "bad file", ()),
    ("unsupported", "ERROR", "unsupported", ()),
    ("warns_only", "WRONG_ACCEPT", "bad file", ()),
    ("answers_by_name", "WRONG_ACCEPT", "accepted", ()),
    ("answers_by_size", "WRONG_ACCEPT", "accepted", ()),
    # Not the same twice
    ("fails_every_other_time", "FLAKY", "WRONG_ACCEPT, then PASS, then WRONG_ACCEPT, when asked alone", ()),
    ("remembers_the_last_error", "STATE_LEAK", "WRONG_REJECT: open: refused", ("-k", RULE, "--cap", "2")),
]

# vice → the step of the preflight that it fails, and words: one message in the place of a thousand
BEFORE: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("hangs_at_start", "hello", "TIMEOUT", QUICK),
    ("never_reads", "hello", "TIMEOUT", QUICK),
    ("no_flush", "hello", "your adapter does not flush stdout", QUICK),
    ("exits_at_start", "hello", "CRASH", ()),
    ("banner", "hello", "Welcome!", ()),
    ("another_protocol", "hello", "protocol 2", ()),
    ("declares_nothing", "hello", "no hello, ping, open, tensor, bye", ()),
    ("declares_no_dtype", "hello", "at least one dtype", ()),
    ("declares_everything", "open", "unsupported", ()),
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`cmfspec run` on a vice. Reproducers are made smaller in few steps: how small is for other tests."""
    monkeypatch.setattr(reproducer, "TRIALS", 3)
    monkeypatch.setattr(reproducer, "SLOW_TRIALS", 1)
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(scratch, "SHM", str(tmp_path / "shm"))

    def judge(vice: str, *options: str) -> Seen:
        impl = shlex.join([*PYTHON, str(HOSTILE / "gallery.py"), vice, str(tmp_path / "count")])
        stream = tmp_path / "results.jsonl"
        which = () if "-k" in options else ("-k", stored()[RULE][0].id)
        words = [
            "run",
            "--impl",
            impl,
            "-j",
            "1",
            "--json",
            str(stream),
            "--out",
            str(tmp_path / "out"),
            *which,
            *options,
        ]
        result = CliRunner().invoke(cli, words)
        assert list((tmp_path / "shm").iterdir()) == []
        header, *cases, footer = [json.loads(line) for line in stream.read_text().splitlines()]
        return Seen(result.exit_code, header, cases, footer, result.output)

    return judge


@pytest.mark.parametrize(("vice", "outcome", "words", "options"), GALLERY, ids=[row[0] for row in GALLERY])
def test_a_vice_has_its_verdict(run: Run, vice: str, outcome: str, words: str, options: tuple[str, ...]) -> None:
    seen = run(vice, *options)
    passes = outcome == "PASS"
    assert {case["outcome"] for case in seen.cases} - {"PASS"} == ({outcome} if not passes else set()), seen.cases
    assert seen.code == (0 if passes else 1)
    assert seen.footer["failed_rules"] == ([] if passes else [RULE])
    assert seen.footer["conformant"] is None
    told = [case for case in seen.cases if case["outcome"] == outcome]
    assert words in (told[0]["expected"] + "; " + told[0]["got"])
    if not passes:
        assert outcome in seen.output
        assert (Path(told[0]["reproducer"]) / "README.md").is_file()


@pytest.mark.parametrize(("vice", "step", "words", "options"), BEFORE, ids=[row[0] for row in BEFORE])
def test_what_does_not_answer_at_all_is_told_so_once(
    run: Run, vice: str, step: str, words: str, options: tuple[str, ...]
) -> None:
    seen = run(vice, *options)
    assert (seen.code, seen.cases) == (1, [])
    assert seen.footer["stopped"] == f"preflight: {step}"
    assert seen.footer["conformant"] is False
    assert f"fails at {step}" in seen.output
    assert words in " ".join(seen.output.split())


def test_a_state_leak_comes_with_what_brings_it_back(run: Run) -> None:
    """One case before it does; the line that is shown asks both again, and finds the leak."""
    seen = run("remembers_the_last_error", "-k", RULE)
    leak = next(case for case in seen.cases if case["outcome"] == "STATE_LEAK")
    assert len(leak["after"]) == 1
    sequence = Path(leak["reproducer"]) / "sequence.txt"
    assert sequence.read_text().split() == [*leak["after"], leak["case"]]
    assert f"--sequence {sequence}" in seen.output
    words = next(line.split("again", 1)[1] for line in seen.output.splitlines() if "--sequence" in line)
    again = CliRunner().invoke(cli, [*shlex.split(words)[1:], "--out", str(sequence.parent / "again")])
    assert again.exit_code == 1
    assert "STATE_LEAK" in again.output


def test_rules_that_do_not_apply_are_no_success(run: Run) -> None:
    """An honest reader that declares no `verify`, asked only what a verifier is asked."""
    seen = run("honest", "-k", "HASH-003")
    assert seen.cases
    assert {case["outcome"] for case in seen.cases} == {"NOT_APPLICABLE"}
    assert seen.code == 1
    assert "nothing was judged" in seen.output
