"""A link to a function in this process: the same questions, the same files on disk, no pipe.

Law: it changes nothing about the answers, so that what holds here holds over a pipe; only speed and isolation differ.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from cmfspec.contract.outcome import ErrorReply, Protocol
from cmfspec.contract.protocol import PROTOCOL, Hello, Reply, Request, decode_reply, encode_reply
from cmfspec.contract.sdk import Handle, safely

_LONG_AGO = 10**9


class InProcess:
    """A `Link` to `handle`. Replies are encoded and decoded as over a pipe."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        memory = "/dev/shm"  # noqa: S108 - a folder of our own is made inside
        self._folder = tempfile.TemporaryDirectory(
            prefix="cmfspec-", dir=memory if os.access(memory, os.W_OK) else None
        )
        self._placed: list[tuple[str, tuple[int, int, int]]] = []
        self._outs: list[str] = []
        self._count = 0
        self.transcript: list[tuple[str, str]] = []
        hello = self.ask("hello", protocol=PROTOCOL)
        if not isinstance(hello.value, Hello):
            raise ErrorReply("an answer to hello", hello.message)
        self._hello: Hello = hello.value

    @property
    def hello(self) -> Hello:
        """What the function declared at first."""
        return self._hello

    def place(self, content: bytes, hole: tuple[int, int] | None = None) -> str:
        """Write a fresh file."""
        path = self._fresh(".cmf")
        at, size = hole or (len(content), 0)
        with Path(path).open("wb") as file:
            file.write(content[:at])
            file.seek(size, os.SEEK_CUR)
            file.write(content[at:])
        os.utime(path, (_LONG_AGO, _LONG_AGO))  # so that a write in the same tick of the clock shows
        self._placed.append((path, _stamp(path)))
        return path

    def new_out(self) -> str:
        """A path that does not exist yet."""
        self._outs.append(self._fresh(".out"))
        return self._outs[-1]

    def _fresh(self, ending: str) -> str:
        self._count += 1
        return f"{self._folder.name}/{os.urandom(6).hex()}{self._count}{ending}"

    def ask(self, op: str, file: str = "", **members: Any) -> Reply:
        """Call the function."""
        request = Request(self._count, op, file, **members)
        line = encode_reply(request.id, safely(self._handle, request))
        self.transcript = [*self.transcript[-63:], (repr(request), line.decode().rstrip())]
        return decode_reply(line.rstrip(b"\n"), request)

    def settle(self) -> None:
        """Check and delete what the case placed."""
        changed = [path for path, stamp in self._placed if _stamp(path) != stamp]
        for path in (*(path for path, _ in self._placed), *self._outs):
            Path(path).unlink(missing_ok=True)
        self._placed, self._outs = [], []
        if changed:
            raise Protocol("input files left alone", "one was changed")

    def reset_peak(self) -> None:
        """Start measuring anew, where the system can."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def peak(self) -> int | None:
        """Peak of resident memory since then, in bytes."""
        try:
            status = Path("/proc/self/status").read_text()
        except OSError:
            return None
        found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(found[0]) * 1024 if found else None

    def renew(self) -> None:
        """There is no process to renew."""

    def close(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()


def _stamp(path: str) -> tuple[int, int, int]:
    """What changes when a file does."""
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns, status.st_ino
