"""One started implementation: its supervisor, and the three pipes and one socket to them.

Law: no call here blocks longer than it is told, whatever the implementation does; after `end` nothing of it is alive,
no descriptor is open, and what it last said on stderr is kept. Judging is for the callers.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from cmfspec.contract.outcome import Crash, Outcome, Resource
from cmfspec.contract.protocol import MAX_REPLY
from runner import memory, supervisor
from runner.crashtext import crash_text, memory_text
from runner.leftover import end_all
from runner.scratch import Fault, Scratch

CHUNK = 1 << 16
DRAINED = 64  # chunks; a pipe holds 16 at most, unless root enlarged it
START = 30.0  # seconds for the supervisor to say whether exec worked: our own part, so a long guard
PATIENCE = 2 * supervisor.UNKILLABLE  # seconds for it to say that all are dead
LOOK = 0.05  # seconds between two looks at memory and scratch while an answer is awaited
GRACE = 1.0  # seconds between closing its pipes and dying in which both are one death
SHOWN = 200  # bytes of what was received that a message shows
KEPT = 64  # exchanges in a transcript
ENOUGH = "enough memory within the limit (a sanitizer needs `--mem-limit none`)"

Exchange = tuple[str, str]  # a request's line, and the reply's or the text of the outcome


class CannotStart(Exception):
    """The command cannot be executed at all: nothing was tested."""


@dataclass(frozen=True)
class Limits:
    """What one implementation may use. seconds: wall time of a request; memory: bytes of it and all that it starts
    together, None for no limit; reply: bytes of a line; scratch: bytes of files; stderr: bytes that are kept."""

    seconds: float = 10.0
    memory: int | None = 2 << 30
    reply: int = MAX_REPLY
    scratch: int = 1 << 30
    stderr: int = 1 << 16


class Child:
    """A process under its supervisor, from exec to `end`. Raises CannotStart, or RuntimeError if our own part fails."""

    def __init__(self, argv: Sequence[str], limits: Limits, scratch: Scratch) -> None:
        self.argv = tuple(argv)
        self.limits = limits
        self.scratch = scratch
        self.pid = 0
        self.status: int | None = None  # its wait status
        self.over = False  # it is dead, or nobody is left who would know
        self.talking = True  # its stdout is not at its end
        self.heard = 0  # bytes of stderr so far
        self._tail = bytearray()
        self._ended = False
        self._errno: int | None = None
        self._gone = False
        self._lost = False
        self._waiting_to_write = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo:
            undo.callback(self._control.close)
            with theirs:
                given = (str(theirs.fileno()), str(limits.memory or 0), scratch.path)
                self.popen = subprocess.Popen(
                    [sys.executable, "-I", "-S", supervisor.__file__, *given, *argv],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env={**os.environ, "TMPDIR": scratch.tmp},
                )
            undo.pop_all()
        pipes = (self.popen.stdin, self.popen.stdout, self.popen.stderr)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() if pipe else -1 for pipe in pipes)
        self._socket = self._control.fileno()
        self._poll = select.poll()
        for fd in (self._stdin, self._stdout, self._stderr, self._socket):
            os.set_blocking(fd, False)
        for fd in (self._stdout, self._stderr, self._socket):
            self._poll.register(fd, select.POLLIN)
        try:
            self._started()
        except BaseException:
            self.end()
            raise

    def _started(self) -> None:
        wait = select.poll()
        wait.register(self._socket, select.POLLIN)
        until = time.monotonic() + START
        while not self.pid and not self.over and self._errno is None and time.monotonic() < until:
            if wait.poll(1000):
                self._hear()
        if self._errno is not None:
            raise CannotStart(f"cannot execute {self.argv[0]!r}: {_why(self.argv[0], self._errno)}")
        if not self.pid:
            self.end()
            raise RuntimeError(f"the supervisor did not start {self.argv[0]!r}: {self.said()}")

    def pump(self, seconds: float) -> bytes:
        """Wait once, up to `seconds`, for anything; keep stderr, hear the supervisor. Returns what came on stdout."""
        got = b""
        for fd, _ in self._poll.poll(math.ceil(seconds * 1000)):
            if fd == self._stdout:
                got = os.read(fd, CHUNK)
                if not got:
                    self.talking = False
                    self._poll.unregister(fd)
            elif fd == self._stderr:
                self._keep(os.read(fd, CHUNK))
            elif fd == self._socket:
                self._hear()
        return got

    def send(self, data: bytes) -> bytes:
        """Write what fits now and return the rest; while there is one, `pump` also waits for room. BrokenPipeError."""
        try:
            rest = data[os.write(self._stdin, data) :]
        except BlockingIOError:
            rest = data
        if bool(rest) is not self._waiting_to_write:
            self._waiting_to_write = bool(rest)
            if rest:
                self._poll.register(self._stdin, select.POLLOUT)
            else:
                self._poll.unregister(self._stdin)
        return rest

    def hang_up(self) -> None:
        """Close its stdin."""
        if self._waiting_to_write:
            self._waiting_to_write = False
            self._poll.unregister(self._stdin)
        if self.popen.stdin:
            self.popen.stdin.close()
        self._stdin = -1

    def dies_within(self, seconds: float) -> bool:
        """Wait for its death; what it says on stdout meanwhile is of no interest."""
        until = time.monotonic() + seconds
        while not self.over and (left := until - time.monotonic()) > 0:
            self.pump(left)
        return self.over

    def overuse(self, scratch_too: bool) -> Fault | None:
        """A look at what it holds."""
        limit = self.limits.memory
        if limit is not None:
            allowed = limit + self.scratch.holes()
            held = memory.held(memory.family(self.popen.pid), allowed)
            if held > allowed:
                return Fault(
                    Resource, f"at most {limit} bytes of memory", f"{held} bytes held by it and what it started"
                )
        return self.scratch.overfull() if scratch_too else None

    def death(self, expected: str, when: str, since: int = 0) -> Fault:
        """The outcome of its death; its last words on stderr from byte `since` on may name the cause."""
        self.end()
        said = self.said(since)
        ran_out = memory_text(said)
        quote = ran_out or crash_text(said)
        got = f"{how_it_ended(self.status)} {when}"
        return Fault(
            Resource if ran_out else Crash, ENOUGH if ran_out else expected, f"{got}: {quote}" if quote else got
        )

    def drain(self) -> None:
        """Take what is on stderr now, but no more than one that floods it could write meanwhile."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(DRAINED):
                chunk = os.read(self._stderr, CHUNK)
                if not chunk:
                    break
                self._keep(chunk)

    def said(self, since: int = 0) -> str:
        """The tail of its stderr, from byte `since` on."""
        kept = self._tail[-self.limits.stderr :]
        return kept[max(0, len(kept) - (self.heard - since)) :].decode("utf-8", "backslashreplace")

    def end(self) -> None:
        """Kill it and everything that it started. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self.hang_up()
        try:
            with contextlib.suppress(OSError):
                self._control.send(b"end")
            until = time.monotonic() + PATIENCE
            while not self._gone and not self._lost and (left := until - time.monotonic()) > 0:
                self.pump(left)
            if not self._gone:
                self._rescue()
            self.popen.wait()
            self.drain()
        finally:  # should we be interrupted here, the supervisor still gets its EOF
            for pipe in (self.popen.stdout, self.popen.stderr, self._control):
                if pipe:
                    pipe.close()

    def _rescue(self) -> None:
        """The supervisor was killed or stopped, which takes the main process along; find the rest by their TMPDIR."""
        self.popen.kill()
        end_all(self.scratch.tmp)

    def _keep(self, chunk: bytes) -> None:
        if not chunk:
            self._poll.unregister(self._stderr)
            return
        self.heard += len(chunk)
        self._tail += chunk
        if len(self._tail) > 4 * self.limits.stderr:
            del self._tail[: -self.limits.stderr]

    def _hear(self) -> None:
        try:
            packet = self._control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        word, _, number = packet.decode("ascii").partition(" ")
        if word == "started":
            self.pid = int(number)
        elif word == "cannot":
            self._errno = int(number)
        elif word == "died":
            self.status = int(number)
            self.over = True
        else:
            self.over = True
            self._gone = word == "gone" or self._gone
            self._lost = not word
        if not word:
            self._poll.unregister(self._socket)


def how_it_ended(status: int | None) -> str:
    """A wait status in words."""
    if status is None:
        return "ended with its supervisor, which was killed,"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def shown(data: bytes | bytearray) -> str:
    """The first bytes of what was received, escaped."""
    if not data:
        return "nothing"
    more = f"… ({len(data)} bytes)" if len(data) > SHOWN else ""
    return f"«{repr(bytes(data[:SHOWN]))[2:-1]}»{more}"


def new_transcript() -> deque[Exchange]:
    """The last exchanges, so that a failure can be shown as it was asked."""
    return deque(maxlen=KEPT)


def noted(outcome: Outcome) -> str:
    """An outcome as the transcript has it, in the place of a reply."""
    return f"{outcome.name}: {outcome}"


def _why(command: str, errno: int) -> str:
    there = "/" in command and os.path.exists(command)
    return os.strerror(errno) + (", though the file is there: its interpreter is not" if there and errno == 2 else "")
