"""What is left of an implementation after its end, whoever ends first: nothing. And what it starts with.

Law: no process (they are known by a word in their environment), no folder, no descriptor.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from cmfspec.contract.outcome import Crash
from runner import child, leftover, memory
from runner.driver import Limits, Process
from runner.leftover import marked
from runner.scratch import Scratch
from runner.supervisor import children, descendants, parents
from tests.processes import HOSTILE, LONG, MARK, MIB, PYTHON, QUICK, Make, left_over, make, mark

__all__ = ["make", "mark"]  # fixtures


def test_a_supervisor_that_was_stopped_is_got_rid_of(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", 0.3)
    process = make("stop_supervisor")
    assert process.ask("ping").status == "ok"
    process.close()


def test_the_implementation_starts_with_limits_a_session_and_nothing_else(make: Make) -> None:
    process = make("tell", Limits(memory=512 * MIB))
    told = json.loads(process.ask("ping").message)
    assert told == {
        "leader": True,
        "core": [0, 0],
        "data": [512 * MIB, 512 * MIB],
        "cpu": True,
        "fds": [0, 1, 2],
        "tmp": process._scratch.tmp,
        "cwd": os.getcwd(),
    }
    told = json.loads(make("tell", Limits(memory=None)).ask("ping").message)
    assert told["data"] == [-1, -1]


def test_signals_have_their_defaults(mark: str) -> None:
    """Python ignores SIGPIPE, and a runner under nohup SIGHUP; the implementation must not inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    scratch = Scratch(None, MIB)
    try:
        cat = child.Child(["cat", "/proc/self/status"], QUICK, scratch)
        text = b""
        while cat.talking:
            text += cat.pump(1.0)
        cat.end()
    finally:
        scratch.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGHUP, before)
    masks = dict(line.split(":\t") for line in text.decode().splitlines() if line.startswith("Sig"))
    reach = ~(
        0b11 << 31
    )  # 32 and 33 are libc's own: no program can set or reset them, and a launcher may leave them ignored
    assert int(masks["SigIgn"], 16) & reach == int(masks["SigBlk"], 16) & reach == 0


RUNNER = """
import os, sys
from runner.driver import Limits, Process
process = Process(sys.argv[1:], Limits(seconds=60), os.environ.get("CMFSPEC_TEST_SCRATCH"))
print(process._scratch.path, flush=True)
process.start()
print("started", flush=True)
process.ask("ping")
print("strays", flush=True)
process.ask("ping")
"""


def start_runner(mode: str, then: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUNNER + then, *PYTHON, str(HOSTILE / "misbehave.py"), mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HOSTILE.parents[1])


def test_a_runner_killed_in_a_request_leaves_no_process_and_no_folder(mark: str) -> None:
    with start_runner("hang") as runner:
        assert runner.stdout
        folder = runner.stdout.readline().decode().strip()
        assert runner.stdout.readline() == b"started\n"
        assert len(marked(f"{MARK}={mark}")) == 3
        runner.kill()
    assert left_over(mark) == []
    assert not os.path.exists(folder)


def test_a_runner_that_ends_without_close_leaves_no_process_and_no_folder(mark: str) -> None:
    with start_runner("stray_and_live") as runner:
        assert runner.stdout
        folder = runner.stdout.readline().decode().strip()
        assert runner.wait(10) == 0
    assert left_over(mark) == []
    assert not os.path.exists(folder)


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08])
def test_a_runner_killed_at_any_moment_leaves_no_process(mark: str, delay: float) -> None:
    with start_runner("stray_and_live") as runner:
        assert runner.stdout
        folder = runner.stdout.readline().decode().strip()
        time.sleep(delay)
        runner.kill()
    assert left_over(mark) == []
    shutil.rmtree(folder, ignore_errors=True)  # where the supervisor had not started, nobody could


def test_what_a_dead_runner_and_a_dead_supervisor_left_is_ended_by_the_next_run(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stray in a session of its own, and both that would have ended it killed at once."""
    monkeypatch.setenv("CMFSPEC_TEST_SCRATCH", str(tmp_path))
    with start_runner("stray_and_live", "import time; time.sleep(600)") as runner:
        assert runner.stdout
        folder = runner.stdout.readline().decode().strip()
        assert [runner.stdout.readline() for _ in range(2)] == [b"started\n", b"strays\n"]
        below = descendants(runner.pid)
        (supervisor,) = children(runner.pid)
        for pid in (supervisor, runner.pid):
            os.kill(pid, signal.SIGSTOP)
        for pid in (runner.pid, supervisor):
            os.kill(pid, signal.SIGKILL)
    stray = set(below) & set(marked(f"{MARK}={mark}"))
    assert len(stray - {supervisor}) >= 1
    assert os.path.isdir(folder)
    assert leftover.clear(str(tmp_path)) == []  # too young: it might just be made
    assert leftover.clear(str(tmp_path), moment=0.0) == [folder]
    assert not os.path.exists(folder)
    assert left_over(mark) == []


def test_a_folder_of_a_living_runner_is_left_alone(tmp_path: Path) -> None:
    command = [*PYTHON, str(HOSTILE / "misbehave.py"), "stray_and_live"]
    with closing(Process(command, LONG, str(tmp_path))) as process:
        process.ask("ping")
        assert leftover.clear(str(tmp_path), moment=0.0) == []
        assert process.ask("ping").status == "ok"


def test_what_only_looks_like_an_abandoned_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cmfspec-run-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "cmfspec-run-file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "cmfspec-run-old").mkdir()
    assert leftover.clear(str(tmp_path), moment=0.0) == [str(tmp_path / "cmfspec-run-old")]
    assert sorted(os.listdir(tmp_path)) == ["cmfspec-run-file", "cmfspec-run-link", "elsewhere", "other"]
    assert leftover.clear(str(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_supervisor_ends_all(make: Make, mark: str, number: signal.Signals) -> None:
    process = make("stray_and_live")
    process.ask("ping")
    assert process._child
    assert len(marked(f"{MARK}={mark}")) == 3
    os.kill(process._child.popen.pid, number)
    assert left_over(mark) in ([], [process._child.popen.pid])
    with pytest.raises(Crash):
        process.ask("ping")


def test_descriptors_do_not_grow_over_cases_and_restarts(make: Make) -> None:
    process = make("good")
    process.start()
    before = len(os.listdir("/proc/self/fd"))
    for case in range(1000):
        path = process.place(b"x" * 100)
        process.ask("open", path)
        process.settle()
        if case % 50 == 0:
            process.renew()
            process.start()
    assert len(os.listdir("/proc/self/fd")) == before
    assert os.listdir(os.path.dirname(path)) == ["tmp"]


def test_threads_have_their_own_processes(make: Make) -> None:
    wrong: list[BaseException] = []

    def work(mode: str) -> None:
        try:
            process = make(mode)
            for _ in range(4):
                with pytest.raises(Crash, match="SIGSEGV") if mode == "segv" else pytest.MonkeyPatch.context():
                    process.ask("ping")
                process.renew()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(mode,)) for mode in ("segv", "good", "segv", "good")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_both_ways_to_walk_the_tree_of_processes_agree(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    process = make("stray_and_live")
    process.ask("ping")
    assert process._child
    top = process._child.popen.pid
    found = descendants(top)
    assert len(found) == 2
    assert set(children(top)) == set(parents()[top])
    monkeypatch.setattr("runner.supervisor.children", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
    assert set(descendants(top)) == set(found)
    assert memory.held(found, 0) > 0
