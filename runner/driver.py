"""An adapter as a `Link`: JSON lines over the pipes of a process that may do anything.

Law: `ask` returns a checked reply or raises an outcome, before its deadline or soon after, and never a reply to another
question: ids are not reused, and after any outcome the process is gone. The next question then starts a new one, which
is asked `hello` again. Each `Process` belongs to one thread at a time; threads have their own.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from cmfspec.contract.outcome import Outcome, Protocol, Resource, Timeout
from cmfspec.contract.protocol import PROTOCOL, BadReply, Hello, Reply, Request, decode_reply, encode_request
from runner import memory
from runner.child import GRACE, LOOK, CannotStart, Child, Exchange, Limits, new_transcript, noted, shown
from runner.command import Command
from runner.scratch import Fault, Scratch

__all__ = ["CannotStart", "Command", "Exchange", "Limits", "Process"]

LF = b"\n"
BYE = 1.0  # seconds between `bye` and the end
FLUSH = 0.2  # seconds in which an adapter whose stdin was closed may exit and so flush its stdout
SELDOM = 4  # looks at memory to one at the scratch folder
LONG = 1 << 16  # bytes of a reply that the transcript keeps


class Asked(NamedTuple):
    """A question in flight: its line, how long it may take, and where stderr stood when it was sent."""

    request: Request
    line: bytes
    seconds: float
    deadline: float = 0.0
    mark: int = 0


class Process:
    """One implementation, started from `argv` when it is first asked. scratch: the folder to make its folder in."""

    def __init__(self, argv: Sequence[str], limits: Limits | None = None, scratch: str | None = None) -> None:
        self.argv = tuple(argv)
        self.limits = limits or Limits()
        self.transcript: deque[Exchange] = new_transcript()
        self._scratch = Scratch(scratch, self.limits.scratch)
        self._child: Child | None = None
        self._hello: Hello | None = None
        self._closed = False
        self._id = 0
        self._asked = Asked(Request(0, "hello", ""), b"", 0.0)
        self._tail = ""
        self._measuring = False

    @property
    def hello(self) -> Hello:
        """What it said at its last start; starts it if that never was."""
        return self._hello or self.start()

    def start(self) -> Hello:
        """Start it, unless it runs, and exchange hello. Raises CannotStart, or the outcome of a failed hello."""
        if self._child is None or self._hello is None:
            self._hello = self._start()
        return self._hello

    def ask(self, op: str, file: str = "", **members: Any) -> Reply:
        """Ask one question. Raises Crash, Timeout, Resource or Protocol; CannotStart."""
        self.start()
        reply = self._exchange(self._request(op, file, members), self.limits.seconds)
        if "out" in members:
            self._judge(self._scratch.wrong_out(members["out"]))
        if op == "bye":
            self._expect_exit()
        return reply

    def place(self, content: bytes, hole: tuple[int, int] | None = None) -> str:
        """Write `content` to a fresh file, with a hole of zeros (where, how long), and return its path."""
        return self._scratch.place(content, hole)

    def new_out(self) -> str:
        """A path that does not exist yet, for an answer that goes to a file."""
        return self._scratch.new_out()

    def settle(self) -> None:
        """End of a case: delete its files. Raises Protocol if one was changed or if something was said unasked,
        Resource for a scratch folder past its size, Crash for a death after the reply."""
        self._judge(self._scratch.settle())
        if self._child:
            self._expect_silence(self._child)

    def reset_peak(self) -> None:
        """Start measuring the peak of resident memory anew. Starts it, unless it runs."""
        self.start()
        self._measuring = self._child is not None and memory.reset(memory.family(self._child.popen.pid))

    def peak(self) -> int | None:
        """Peak of resident memory of it and what it started since `reset_peak`; None where it can't be measured."""
        if self._child is None or not self._measuring:
            return None
        return memory.peak(memory.family(self._child.popen.pid))

    def stderr_tail(self) -> str:
        """The last that it said on stderr; of the process before, if none runs."""
        if self._child:
            self._child.drain()
        return self._child.said() if self._child else self._tail

    def renew(self) -> None:
        """Say bye and end the process; the next question starts another."""
        if self._child:
            with contextlib.suppress(Outcome):
                until = time.monotonic() + BYE
                self._exchange(self._request("bye", "", {}), BYE)
                self._child.dies_within(until - time.monotonic())
        self._drop()

    def close(self) -> None:
        """Say bye and leave nothing: no process, no folder. Idempotent."""
        if not self._closed:
            self._closed = True
            try:
                self.renew()
            finally:
                self._drop()
                self._scratch.close()

    def _start(self) -> Hello:
        if self._closed:
            raise RuntimeError("this Process was closed")
        self._drop()
        self._child = Child(self.argv, self.limits, self._scratch)
        request = self._request("hello", "", {"protocol": PROTOCOL})
        self._asked = Asked(request, encode_request(request), self.limits.seconds)
        reply = self._exchange(request, self.limits.seconds)
        said = reply.value
        if not isinstance(said, Hello) or said.protocol != PROTOCOL:
            got = f"protocol {said.protocol}" if isinstance(said, Hello) else f"`{reply.status}` {reply.message}"
            self._fail(Protocol, f"`ok` to hello, of protocol {PROTOCOL}", got)
        return said

    def _request(self, op: str, file: str, members: dict[str, Any]) -> Request:
        self._id += 1
        return Request(self._id, op, file, **members)

    def _exchange(self, request: Request, seconds: float) -> Reply:
        """Send and receive. Whatever is raised, the process is gone: no reply can come late."""
        line = encode_request(request)
        child = self._child
        if child is None:
            raise RuntimeError("no process was started")
        try:
            self._expect_silence(child)
            asked = self._asked = Asked(request, line, seconds, time.monotonic() + seconds, child.heard)
            answer = self._answer(child, asked)
            reply = decode_reply(answer, request)
        except BadReply as error:
            self._fail(Protocol, self._one_reply(), f"{error}; received {shown(answer + LF)}")
        except BaseException:
            self._drop()
            raise
        self.transcript.append((line[:-1].decode("ascii"), answer[:LONG].decode("utf-8", "replace")))
        return reply

    def _answer(self, child: Child, asked: Asked) -> bytes:
        """The line that answers. The quick way: written at once, and one whole line comes in one piece."""
        try:
            unsent = child.send(asked.line)
            got = b"" if unsent else child.pump(min(LOOK, asked.seconds))
            if got.endswith(LF) and got.count(LF) == 1 and len(got) <= self.limits.reply:
                return got[:-1]
            return self._wait(child, asked, unsent, bytearray(got))
        except BrokenPipeError:
            if child.dies_within(GRACE):
                self._died(child, b"")
            self._fail(Protocol, f"a reader of `{asked.request.op}` on stdin", "it closed its stdin and lives")

    def _wait(self, child: Child, asked: Asked, unsent: bytes, got: bytearray) -> bytes:
        """The slow way: whatever is not one line in one piece."""
        looks, look, seen, dead = 0, time.monotonic() + LOOK, 0, False
        while True:
            end = got.find(LF, seen)
            seen = len(got)
            if (end if end >= 0 else seen) > self.limits.reply:
                self._fail(Resource, f"a line of at most {self.limits.reply} bytes", f"{seen} bytes: {shown(got)}")
            if end >= 0:
                self._expect_one(unsent, got, end)
                return bytes(got[:end])
            if dead:
                self._died(child, got)
            if not child.talking:
                if child.dies_within(GRACE):
                    self._died(child, got)
                self._fail(Protocol, self._one_reply(), f"stdout closed after {shown(got)}")
            now = time.monotonic()
            if now >= asked.deadline:
                self._late(child, asked, unsent, got)
            if now >= look:
                look = now + LOOK
                looks += 1
                self._judge(child.overuse(scratch_too=looks % SELDOM == 1))
            if unsent:
                unsent = child.send(unsent)
            over = child.over
            piece = child.pump(0 if over else max(0.0, min(LOOK, asked.deadline - now)))
            dead = over and not piece
            got += piece

    def _expect_one(self, unsent: bytes, got: bytearray, end: int) -> None:
        """A line came; nothing may come with it, and the request must have been read."""
        if len(got) > end + 1:
            self._fail(Protocol, self._one_reply(), f"two replies, or more than one line: {shown(got)}")
        if unsent:
            self._fail(Protocol, self._one_reply(), f"a reply before the request was read: {shown(got)}")

    def _late(self, child: Child, asked: Asked, unsent: bytes, got: bytearray) -> NoReturn:
        """The deadline has passed."""
        text = f"half a line: {shown(got)}" if got else "nothing"
        if unsent:
            text += f"; {len(unsent)} bytes of the request were not read"
        elif asked.request.op == "hello" and _flushes_at_the_end(child, asked.request, got):
            text += "; the reply came when stdin was closed: your adapter does not flush stdout"
        self._fail(Timeout, f"a reply to `{asked.request.op}` within {asked.seconds:g} s", text)

    def _died(self, child: Child, got: bytes | bytearray) -> NoReturn:
        """It died while the request was in flight."""
        half = f", after half a line: {shown(got)}" if got else ""
        self._fail(*child.death(self._one_reply(), f"while a request was in flight{half}", self._asked.mark))

    def _expect_silence(self, child: Child) -> None:
        """Nothing is due: not a byte, and not its end."""
        got = child.pump(0)
        if got:
            self._fail(Protocol, "nothing on stdout but one reply to each request", f"{shown(got)} unasked")
        if child.over or (not child.talking and child.dies_within(GRACE)):
            expected = "a process that lives until bye"
            self._fail(*child.death(expected, "with no request in flight", self._asked.mark))
        if not child.talking:
            self._fail(Protocol, "an open stdout", "it closed its stdout and lives")

    def _expect_exit(self) -> None:
        """After `bye`: exit with 0, soon."""
        child = self._child
        if child is None:
            return
        expected = f"exit with 0 within {BYE:g} s of bye"
        if not child.dies_within(BYE):
            self._fail(Timeout, expected, "it still runs")
        if child.status:
            self._fail(*child.death(expected, "after bye", self._asked.mark))
        self._drop()

    def _one_reply(self) -> str:
        return f"one reply to `{self._asked.request.op}`, a line of JSON"

    def _judge(self, fault: Fault | None) -> None:
        if fault:
            self._fail(*fault)

    def _fail(self, kind: type[Outcome], expected: str, got: str) -> NoReturn:
        """End the process, then raise."""
        self._drop()
        outcome = kind(expected, got, stderr=self._tail)
        self.transcript.append((self._asked.line[:-1].decode("ascii"), noted(outcome)))
        raise outcome

    def _drop(self) -> None:
        """End the process and everything that it started; keep its last words."""
        child, self._child = self._child, None
        self._measuring = False
        if child:
            child.end()
            self._tail = child.said()
            self._scratch.sweep()


def _flushes_at_the_end(child: Child, request: Request, got: bytearray) -> bool:
    """Close its stdin and see whether the reply to `hello` comes then."""
    child.hang_up()
    until = time.monotonic() + FLUSH
    while child.talking and LF not in got and (left := until - time.monotonic()) > 0:
        got = got + child.pump(left)
    try:
        return decode_reply(bytes(got.partition(LF)[0]), request).status == "ok"
    except BadReply:
        return False
