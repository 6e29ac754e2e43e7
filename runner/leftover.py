"""What earlier runs left: scratch folders whose runner is dead, and the processes that were started in them.

Law: a runner holds a lock on each of its folders for as long as it lives, so a folder that can be locked is nobody's. Only
folders of this user that are older than a moment are looked at, no link is followed, and only processes that were started
with the folder's TMPDIR are ended. An implementation that kills its own supervisor in the moment in which the runner is
killed can leave a stray: the next run ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import time
from functools import cache

from runner.supervisor import UNKILLABLE

PREFIX = "cmfspec-run-"
TMP = "tmp"  # in a folder: the TMPDIR of what is started
MOMENT = 10.0  # seconds in which a folder that was just made may not be locked yet, with room


def hold(folder: str) -> int:
    """Take the lock of a folder that was just made. The descriptor holds it until it is closed."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@cache
def clear_once(parent: str) -> None:
    """`clear`, once in the life of this process."""
    clear(parent)


def clear(parent: str, moment: float = MOMENT) -> list[str]:
    """End what dead runners left in the folders below `parent`, delete these and return their paths. What can't be looked
    at or deleted is passed over."""
    gone = []
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(PREFIX) and _abandoned(entry, moment):
                    end_all(os.path.join(os.path.realpath(entry.path), TMP))
                    shutil.rmtree(entry.path, ignore_errors=True)
                    gone.append(entry.path)
    return gone


def _abandoned(entry: os.DirEntry[str], moment: float) -> bool:
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or time.time() - found.st_ctime < moment:
        return False
    lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def end_all(tmp: str) -> None:
    """Kill the processes that were started with this TMPDIR, until there is none."""
    until = time.monotonic() + UNKILLABLE
    while (found := marked(f"TMPDIR={tmp}")) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def marked(mark: str) -> list[int]:
    """The processes but ours that have `mark`, a `NAME=value`, in the environment that they were started with."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and int(entry) != os.getpid():
                with open(f"/proc/{entry}/environ", "rb", buffering=0) as file:
                    if mark.encode() in (file.read() or b"").split(b"\0"):
                        found.append(int(entry))
    return found
