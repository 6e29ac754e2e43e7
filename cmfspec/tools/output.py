"""A file that appears complete or not at all.

Law: it is written beside its place, under `.NAME.part`, flushed to the disk, and then renamed; whoever dies on the way leaves
parts at most, and the next run to the same place takes them over. Several files (§10) get their names one after the other,
the first shard last and its predecessor gone before: never can shards of two runs be opened as one model. A lock on the
part keeps two runs apart, and is gone with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from cmfspec.tools.unpackable import Unwritable

PART = ".{name}.part"


def target_of(out: str, source: Sequence[Path]) -> Path:
    """Where to write, links followed. source: files that are read. Raises Unwritable for a place where nothing can be
    written, for what isn't a regular file, and for one of the source's own."""
    try:
        path = Path(out).resolve()
        if not path.parent.is_dir():
            raise Unwritable(Path(out), "output", f"no directory {path.parent}", "a directory that is there")
        if path.exists():
            if not stat.S_ISREG(path.stat().st_mode):
                raise Unwritable(Path(out), "output", "not a regular file", "a file to be made or replaced")
            if any(one.exists() and path.samefile(one) for one in source):
                raise Unwritable(Path(out), "output", "a file of the source", "another place")
    except (OSError, ValueError) as error:
        raise Unwritable(Path(out), "output", getattr(error, "strerror", None) or error, "a place to write") from None
    return path


@contextlib.contextmanager
def appearing(
    main: Path, names: Sequence[str]
) -> Iterator[list[Callable[[], contextlib.AbstractContextManager[BinaryIO]]]]:
    """For each of `names`, to appear in the folder of `main`, what opens it for writing; they get their names at the end.

    main: what the lock and the parts are called after. Raises Unwritable if another run writes there; OSError.
    """
    part = main.with_name(PART.format(name=main.name))
    lock = _locked(part)
    alone = [main.name] == list(names)
    parts = [part] if alone else [part.with_name(f"{part.name}-{place}") for place in range(1, len(names) + 1)]
    try:
        _sweep(part)
        yield [_opener(one) for one in parts]
        places = [main.with_name(name) for name in names]
        if not alone:
            places[0].unlink(missing_ok=True)
        for one, place in reversed([*zip(parts, places, strict=True)]):
            one.replace(place)
        if not alone:
            part.unlink()  # a single part has been renamed: what has its name now is another run's
        _settled(main.parent)
    except BaseException:
        for one in {*parts, part}:
            if one != part or _named(part, lock):
                one.unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)


def _opener(part: Path) -> Callable[[], contextlib.AbstractContextManager[BinaryIO]]:
    @contextlib.contextmanager
    def opened() -> Iterator[BinaryIO]:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())

    return opened


def _locked(part: Path) -> int:
    """A descriptor of the part, which nobody else has a lock on. Raises Unwritable."""
    while True:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _named(part, handle):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise Unwritable(part, "output", "another run that writes it", "one at a time") from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever had the lock has renamed it meanwhile


def _named(part: Path, handle: int) -> bool:
    """Whether the name still is that file."""
    try:
        return os.path.samestat(os.stat(part, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sweep(part: Path) -> None:
    """Remove what a run that died has left."""
    old = re.compile(re.escape(part.name) + r"-\d+")
    for one in part.parent.iterdir():
        if old.fullmatch(one.name):
            one.unlink(missing_ok=True)


def _settled(folder: Path) -> None:
    """Have the names on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
