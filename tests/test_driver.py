"""The driver against programs that do everything wrong (`tests/hostile`).

Law: each misbehaviour has its one outcome, said in words; after it a fresh process answers; after each test no process,
no folder and no descriptor is left.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from pathlib import Path

import pytest

from cmfspec.contract.outcome import Crash, Outcome, Protocol, Resource, Timeout
from cmfspec.contract.protocol import Opened
from runner.driver import Limits, Process
from tests.processes import LEAN, LONG, MIB, QUICK, TIGHT, Make, make, mark

__all__ = ["make", "mark"]  # fixtures

WRONG: list[tuple[str, Limits, type[Outcome], str]] = [
    ("hang", QUICK, Timeout, "a reply to `ping` within 0.4 s; got nothing"),
    ("ignore_sigterm", QUICK, Timeout, "got nothing"),
    ("late", QUICK, Timeout, "got nothing"),
    ("half", QUICK, Timeout, 'half a line: «{"id": »'),
    ("flood_stderr_forever", QUICK, Timeout, "got nothing"),
    ("segv", LONG, Crash, "killed by SIGSEGV while a request was in flight"),
    ("abort", LONG, Crash, "killed by SIGABRT"),
    ("kill", LONG, Crash, "killed by SIGKILL"),
    ("realtime_signal", LONG, Crash, "killed by signal 37"),
    ("exit0", LONG, Crash, "exited with 0 while a request was in flight"),
    ("exit3", LONG, Crash, "exited with 3"),
    ("half_then_exit", LONG, Crash, "exited with 0 while a request was in flight, after half a line"),
    ("raises", LONG, Crash, "exited with 1 while a request was in flight: ValueError: boom"),
    ("sanitizer", LONG, Crash, "AddressSanitizer: heap-buffer-overflow on address"),
    ("stray_and_die", LONG, Crash, "exited with 0"),
    ("kill_supervisor", LONG, Crash, "ended with its supervisor"),
    ("noise", LONG, Protocol, "DEBUG: parsing"),
    ("two", LONG, Protocol, "two replies"),
    ("wrong_id", LONG, Protocol, "answers no request"),
    ("text_id", LONG, Protocol, "answers no request"),
    ("bad_utf8", LONG, Protocol, "\\xff"),
    ("array", LONG, Protocol, "received «[]\\n»"),
    ("empty_line", LONG, Protocol, "received «\\n»"),
    ("two_statuses", LONG, Protocol, "found ok, refused"),
    ("close_stdout", LONG, Protocol, "stdout closed after nothing"),
    ("flood", LONG, Resource, "a line of at most 1048576 bytes"),
    ("long_line", LONG, Resource, "a line of at most 1048576 bytes"),
    ("balloon_shared", LEAN, Resource, "at most 67108864 bytes of memory"),
    ("balloon_children", LEAN, Resource, "at most 67108864 bytes of memory"),
    ("balloon_heap", LEAN, Resource, "MemoryError"),
    ("bad_alloc", LONG, Resource, "std::bad_alloc"),
    ("fill", TIGHT, Resource, "at most 4194304 bytes in the scratch folder"),
]


@pytest.mark.parametrize(("mode", "limits", "outcome", "text"), WRONG, ids=[row[0] for row in WRONG])
def test_a_misbehaviour_has_its_outcome_and_a_fresh_process_answers_after_it(
    make: Make, mode: str, limits: Limits, outcome: type[Outcome], text: str
) -> None:
    process = make(mode, limits)
    process.start()
    began = time.monotonic()
    with pytest.raises(outcome) as caught:
        process.ask("ping")
    assert time.monotonic() - began < limits.seconds + 3
    assert type(caught.value) is outcome
    assert text in str(caught.value)
    assert json.loads(process.transcript[-1][0])["op"] == "ping"
    assert process.transcript[-1][1].startswith(f"{outcome.name}: expected ")
    assert process.ask("open", process.place(b"file")).value == Opened(0, [])
    process.settle()


AT_START = [
    ("hang_at_start", QUICK, Timeout, "`hello` within 0.4 s; got nothing"),
    ("no_flush", QUICK, Timeout, "your adapter does not flush stdout"),
    ("exit_at_start", LONG, Crash, "exited with 0"),
    ("banner", LONG, Protocol, "Welcome!"),
    ("other_protocol", LONG, Protocol, "protocol 2"),
    ("poor_hello", LONG, Protocol, "`ok` of hello"),
]


@pytest.mark.parametrize(("mode", "limits", "outcome", "text"), AT_START, ids=[row[0] for row in AT_START])
def test_a_failed_hello_is_an_outcome_of_the_first_question(
    make: Make, mode: str, limits: Limits, outcome: type[Outcome], text: str
) -> None:
    process = make(mode, limits)
    for ask in (process.start, lambda: process.ask("ping"), lambda: process.hello):
        with pytest.raises(outcome, match=text):
            ask()


def test_a_hang_at_start_does_not_claim_that_nothing_was_flushed(make: Make) -> None:
    with pytest.raises(Timeout) as caught:
        make("hang_at_start", QUICK).start()
    assert "flush" not in str(caught.value)


RIGHT = [
    "good",
    "crlf",
    "slow_pieces",
    "longest_line",
    "flood_stderr",
    "stray_and_live",
    "stray_without_pipes",
    "stray_hydra",
]


@pytest.mark.parametrize("mode", RIGHT)
def test_what_is_odd_but_allowed_is_answered(make: Make, mode: str) -> None:
    process = make(mode)
    assert process.hello.name == "misbehave"
    for _ in range(2):
        assert process.ask("ping").status == "ok"
    process.settle()


def test_memory_shared_by_a_fork_counts_once(make: Make) -> None:
    process = make("shared_by_fork", Limits(seconds=10.0, memory=192 * MIB))
    assert process.ask("ping").status == "ok"


INPUTS = ["overwrite", "overwrite_mapped", "append", "remove", "replace"]


@pytest.mark.parametrize("mode", INPUTS)
def test_an_input_that_was_changed_is_a_protocol_fault_at_settle(make: Make, mode: str) -> None:
    process = make(mode)
    other, path = process.place(b"an innocent file"), process.place(b"the file in question")
    assert process.ask("ping", path).status == "ok"
    with pytest.raises(Protocol, match="the implementation changed its input"):
        process.settle()
    assert not os.path.exists(path)
    assert not os.path.exists(other)
    assert process.ask("open", process.place(b"x")).status == "ok"
    process.settle()


@pytest.mark.parametrize("mode", ["fill_quickly", "fill_with_nothing"])
def test_a_scratch_folder_filled_before_a_quick_answer_is_found_at_settle_and_emptied(make: Make, mode: str) -> None:
    process = make(mode, TIGHT)
    assert process.ask("ping").status == "ok"
    with pytest.raises(Resource, match="scratch folder"):
        process.settle()
    process.settle()
    assert process.ask("open").status == "ok"
    process.settle()


@pytest.mark.parametrize(("mode", "outcome"), [("out_fifo", Protocol), ("out_huge", Resource)])
def test_an_out_that_is_no_safe_file_to_read_is_an_outcome(make: Make, mode: str, outcome: type[Outcome]) -> None:
    process = make(mode)
    with pytest.raises(outcome):
        process.ask("ping", out=process.new_out())


def test_what_is_said_unasked_is_found_at_settle_or_before_the_next_question(make: Make) -> None:
    for find in (Process.settle, lambda process: process.ask("ping")):
        process = make("noise_later")
        process.ask("ping")
        time.sleep(0.15)
        with pytest.raises(Protocol, match="by the way"):
            find(process)


def test_an_implementation_that_closes_its_stdin_is_told_so(make: Make) -> None:
    process = make("close_stdin")
    assert process.ask("ping").status == "ok"
    with pytest.raises(Protocol, match="it closed its stdin and lives"):
        process.ask("open")
    assert process.ask("open").status == "ok"


def test_a_request_that_is_never_read_times_out_and_does_not_block(make: Make) -> None:
    process = make("deaf_after", QUICK)
    process.ask("ping")
    assert process._child
    fcntl.fcntl(process._child._stdin, fcntl.F_SETPIPE_SZ, 4096)
    began = time.monotonic()
    with pytest.raises(Timeout, match=r"got nothing; 559\d\d bytes of the request were not read"):
        process.ask("open", "a" * 60000)
    assert time.monotonic() - began < 2


def test_a_death_between_two_questions_is_a_crash(make: Make) -> None:
    process = make("good")
    process.ask("ping")
    assert process._child
    os.kill(process._child.pid, signal.SIGBUS)
    time.sleep(0.1)
    with pytest.raises(Crash, match="killed by SIGBUS with no request in flight"):
        process.ask("ping")


def test_bye_is_answered_and_followed_by_exit_0(make: Make) -> None:
    process = make("good")
    assert process.ask("bye").status == "ok"
    assert process.ask("ping").status == "ok"
    with pytest.raises(Crash, match="exited with 3 after bye"):
        make("bye_exit3").ask("bye")
    with pytest.raises(Timeout, match="exit with 0 within 1 s of bye"):
        make("stays").ask("bye")


def test_close_ends_one_that_stays_and_is_idempotent(make: Make) -> None:
    process = make("stays")
    process.ask("ping")
    began = time.monotonic()
    process.close()
    process.close()
    assert 0.9 < time.monotonic() - began < 3
    with pytest.raises(RuntimeError, match="closed"):
        process.ask("ping")


def test_an_exit_with_an_answer_on_its_way_is_an_answer(make: Make) -> None:
    """A reply that was written before the death counts; the death is found by the next question."""
    process = make("reply_then_die")
    assert process.ask("ping").status == "ok"
    time.sleep(0.1)
    with pytest.raises(Crash, match="exited with 5"):
        process.settle()


def test_stderr_is_kept_to_its_tail_and_travels_with_the_outcome(make: Make) -> None:
    process = make("flood_stderr")
    process.ask("ping")
    assert process.stderr_tail() == "y" * 65536
    process = make("raises")
    with pytest.raises(Crash) as caught:
        process.ask("ping")
    assert caught.value.stderr.endswith("ValueError: boom\n")
    assert process.stderr_tail() == caught.value.stderr


def test_the_transcript_has_requests_and_replies_and_is_bounded(make: Make) -> None:
    process = make("good")
    path = process.place(b"")
    process.ask("open", path)
    request, reply = process.transcript[-1]
    assert request == f'{{"id":2,"op":"open","file":"{path}"}}'
    assert json.loads(reply) == {"id": 2, "ok": {"tensors": 0, "sections": []}}
    for _ in range(70):
        process.ask("ping")
    assert len(process.transcript) == 64


def test_the_peak_of_memory_is_measured_where_it_can_be(make: Make) -> None:
    process = make("good")
    assert process.peak() is None
    process.reset_peak()
    peak = process.peak()
    assert peak is None or MIB < peak < 256 * MIB
    process.renew()
    assert process.peak() is None


def test_an_interrupted_question_leaves_no_late_reply(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    process = make("late")
    process.start()
    assert process._child

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "_answer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        process.ask("ping")
    monkeypatch.undo()
    assert process.ask("ping").status == "ok"


def test_a_scratch_folder_with_an_unpromised_path_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / "ä b"
    odd.mkdir()
    with pytest.raises(ValueError, match="the protocol promises paths"):
        Process(["true"], scratch=str(odd))
    assert list(odd.iterdir()) == []


def test_a_file_with_a_hole_is_sparse_and_watched_on_both_sides_of_it(make: Make) -> None:
    for mode, changed in (("good", False), ("overwrite_mapped", True), ("overwrite_mapped_end", True)):
        process = make(mode)
        path = process.place(b"headtail", (4, 1 << 32))
        status = os.stat(path)
        assert (status.st_size, status.st_blocks < 64) == ((1 << 32) + 8, True)
        with open(path, "rb") as file:
            assert file.read(8) == b"head\0\0\0\0"
            file.seek(-4, os.SEEK_END)
            assert file.read() == b"tail"
        process.ask("ping", path)
        if changed:
            with pytest.raises(Protocol, match="written to"):
                process.settle()
        process.settle()


def test_a_placed_file_is_private_and_its_name_says_nothing(make: Make) -> None:
    process = make("good")
    first, second = process.place(b"one"), process.place(b"two")
    assert first != second
    assert os.path.dirname(first) == os.path.dirname(second)
    assert len(os.path.basename(first)) == len("0123456789abcdef.cmf")
    assert os.stat(first).st_mode & 0o777 == 0o600
    assert not os.path.exists(process.new_out())
    process.settle()
    assert not os.path.exists(first)
