"""The folder of one process under test: the files that it is asked about, its answers, its TMPDIR.

Law: a placed file has a fresh random name, is never rewritten or reused, and must be the same at `settle`, each byte.
Its mtime is set to one moment long ago, so that a write in the same tick of the kernel's clock shows too; a write
through a shared mapping does not touch mtime on tmpfs, so the bytes are compared as well. The folder's size is limited.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from typing import NamedTuple

from cmfspec.contract.outcome import Outcome, Protocol, Resource
from runner import leftover
from runner.leftover import TMP

SHM = "/dev/shm"  # noqa: S108  # the folder inside it is private and random
PATH = re.compile(r"[A-Za-z0-9/._-]+")
LONG_AGO = 1_000_000_000 * 10**9  # 2001-09-09, in ns
CHUNK = 1 << 20
ENTRY = 4096  # the least that a file or folder counts, so that a million empty ones are a lot


class Placed(NamedTuple):
    """A file as we left it: the content, with a hole of `hole` bytes at `at`."""

    content: bytes
    inode: int
    at: int
    hole: int

    @property
    def size(self) -> int:
        return len(self.content) + self.hole


class Fault(NamedTuple):
    """What is to be raised, once the process is ended: an outcome and its two sentences."""

    kind: type[Outcome]
    expected: str
    got: str


class Scratch:
    """A folder under `parent` (else /dev/shm where it has room, else the temporary folder) of at most `limit` bytes."""

    def __init__(self, parent: str | None, limit: int) -> None:
        self.limit = limit
        parent = parent or _roomy(limit) or tempfile.gettempdir()
        leftover.clear_once(parent)
        self._folder = tempfile.TemporaryDirectory(prefix=leftover.PREFIX, dir=parent, ignore_cleanup_errors=True)
        self._lock: int | None = leftover.hold(self._folder.name)
        self.path = os.path.realpath(self._folder.name)
        if not PATH.fullmatch(self.path):
            self.close()
            raise ValueError(f"the protocol promises paths of {PATH.pattern}, and the scratch folder is {self.path}")
        self.tmp = f"{self.path}/{TMP}"
        os.mkdir(self.tmp)
        self._placed: dict[str, Placed] = {}
        self._outs: list[str] = []
        self._names = {TMP}  # of all that may lie in the folder

    def place(self, content: bytes, hole: tuple[int, int] | None) -> str:
        """Write a new file and return its path. hole: (where, how long), zeros that take no space."""
        path = self._fresh(".cmf")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        try:
            file = os.open(path, flags, 0o600)
        except FileNotFoundError:  # the implementation removed the folder; `settle` says so
            os.makedirs(self.tmp, exist_ok=True)
            file = os.open(path, flags, 0o600)
        try:
            at, size = hole or (len(content), 0)
            _write(file, content[:at])
            if size:
                os.ftruncate(file, at + size)
                os.lseek(file, size, os.SEEK_CUR)
                _write(file, content[at:])
            os.utime(file, ns=(LONG_AGO, LONG_AGO))
            self._placed[path] = Placed(content, os.fstat(file).st_ino, at, size)
        finally:
            os.close(file)
        return path

    def new_out(self) -> str:
        """A path for an answer, where nothing is yet."""
        self._outs.append(self._fresh())
        return self._outs[-1]

    def _fresh(self, ending: str = "") -> str:
        name = os.urandom(8).hex() + ending
        self._names.add(name)
        return f"{self.path}/{name}"

    def holes(self) -> int:
        """Bytes of holes in the placed files: mapped on tmpfs and read, they become shared memory."""
        return sum(placed.hole for placed in self._placed.values())

    def wrong_out(self, path: str) -> Fault | None:
        """Whether what an implementation wrote to `out` is safe to read: a regular file, not past the limit."""
        found = _status(path)
        if found is None:
            return None  # whoever reads it finds out
        if not stat.S_ISREG(found.st_mode):
            return Fault(Protocol, "a regular file in `out`", f"one of mode {stat.filemode(found.st_mode)}")
        return self._past(found.st_size) if found.st_size > self.limit else None

    def overfull(self) -> Fault | None:
        """Whether the folder is past its limit, beyond the files that we placed. A look at every entry."""
        total = 0
        folders = [self.path]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        found, placed = entry.stat(follow_symlinks=False), self._placed.get(entry.path)
                        grown = found.st_size - placed.size if placed else found.st_blocks * 512
                        total += max(grown, 0 if placed else ENTRY)
                        if total > self.limit:
                            return self._past(total)
            except OSError:
                continue  # deleted while we looked
        return None

    def _tidy(self) -> bool:
        """The quick look, where the placed files are known to be as they were: there is nothing else but answers, and these
        are files that together keep the limit. `overfull` would say the same."""
        try:
            if not self._names.issuperset(os.listdir(self.path)) or os.listdir(self.tmp):
                return False
            answers = [answer for answer in map(_status, self._outs) if answer]
        except OSError:
            return False
        total = ENTRY + sum(max(answer.st_blocks * 512, ENTRY) for answer in answers)
        return total <= self.limit and all(stat.S_ISREG(answer.st_mode) for answer in answers)

    def settle(self) -> Fault | None:
        """Delete what was placed and written. Returns the fault of a changed file or a folder past its limit."""
        fault = None
        for path, placed in self._placed.items():
            fault = fault or _change(path, placed)
        if not fault and not self._tidy():
            fault = self.overfull()
        for path in (*self._placed, *self._outs):
            _remove(path)
        self._placed.clear()
        self._outs.clear()
        self._names = {TMP}
        return fault

    def sweep(self) -> None:
        """After the death of a process: delete what it left, but not what the case in hand placed or was answered."""
        keep = {self.tmp, *self._placed, *self._outs}
        shutil.rmtree(self.tmp, ignore_errors=True)
        os.makedirs(self.tmp, exist_ok=True)
        for name in os.listdir(self.path):
            if f"{self.path}/{name}" not in keep:
                _remove(f"{self.path}/{name}")

    def close(self) -> None:
        """Delete the folder. Idempotent."""
        self._folder.cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _past(self, total: int) -> Fault:
        return Fault(Resource, f"at most {self.limit} bytes in the scratch folder", f"{total} bytes or more")


def _change(path: str, placed: Placed) -> Fault | None:
    """How a file differs from what was placed."""
    expected = "the input file as it was given"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Fault(Protocol, expected, f"the implementation changed its input: it is gone ({error.strerror})")
    try:
        found = os.fstat(file)
        same = (found.st_size, found.st_mtime_ns, found.st_ino) == (placed.size, LONG_AGO, placed.inode)
        at = 0
        while same and at < len(placed.content):
            behind = at >= placed.at
            piece = os.pread(file, CHUNK if behind else min(CHUNK, placed.at - at), at + placed.hole * behind)
            same = bool(piece) and placed.content.startswith(piece, at)
            at += len(piece)
    except OSError:
        same = False
    finally:
        os.close(file)
    if same:
        return None
    how = "replaced" if found.st_ino != placed.inode else f"{placed.size} bytes became {found.st_size}"
    how = "written to" if found.st_size == placed.size and found.st_ino == placed.inode else how
    return Fault(Protocol, expected, f"the implementation changed its input: {how}")


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _roomy(limit: int) -> str | None:
    """The shared memory folder, if we may write there and it has room for a full folder of ours."""
    try:
        room = os.statvfs(SHM)
    except OSError:
        return None
    return SHM if os.access(SHM, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize > limit else None
