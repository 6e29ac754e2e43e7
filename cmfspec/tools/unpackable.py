"""What is said of a source that can't become a container, and the JSON files of such a source.

Law: a stranger's folder is material, never trusted. Whatever is wrong with it leaves as `Unpackable`, which names the
file, the place in it (a line, where there are lines), what was found there and what was wanted.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmfspec.errors import Refusal
from cmfspec.format.header import strict_object

MAX_JSON = 1 << 28  # bytes; the largest tokenizers have a tenth of it
SHOWN = 80  # characters of a stranger's value


class Unpackable(Exception):
    """A source that is refused. file: its path; where: the place in it; found, wanted: in words."""

    def __init__(self, file: Path, where: str, found: object, wanted: str) -> None:
        super().__init__(f"{file}: {where}: found {found}, wanted {wanted}")
        self.file, self.where, self.found, self.wanted = file, where, str(found), wanted


class Unwritable(Unpackable):
    """An output that can't be: a fault of the one who asks, not of the source."""


def shown(value: object) -> str:
    """A stranger's value, short and printable."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def regular(path: Path) -> int:
    """A descriptor of a regular file, for reading; the caller closes it. Raises Unpackable."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise Unpackable(path, "path", getattr(error, "strerror", None) or error, "a file that can be read") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Unpackable(path, "path", "not a regular file", "a file that can be read")
    return handle


def content(path: Path, limit: int = MAX_JSON) -> bytes:
    """The bytes of a small file. Raises Unpackable for one that can't be read or has more than `limit` bytes."""
    handle = regular(path)
    with os.fdopen(handle, "rb") as stream:
        try:
            size = min(os.fstat(handle).st_size, limit)  # `read` takes the space that it is told of
            raw = stream.read(size + 1)
        except OSError as error:
            raise Unpackable(path, "path", error.strerror or error, "a file that can be read") from None
    if len(raw) > limit:
        raise Unpackable(path, "size", f"more than {limit} bytes", f"at most {limit} bytes")
    return raw


@dataclass(frozen=True)
class JsonFile:
    """A JSON object and where it came from."""

    path: Path
    raw: bytes
    value: dict[str, Any]

    def line(self, key: str) -> str:
        """Where a key first stands in the file, in words."""
        at = self.raw.find(f'"{key}"'.encode())
        return f"line {self.raw.count(bytes([10]), 0, at) + 1}" if at >= 0 else "nowhere"

    def bad(self, key: str, found: object, wanted: str, path: str = "") -> Unpackable:
        """The refusal of a key. path: the keys above it, `text_config.`; found: shown as it is."""
        at = self.line(key)
        return Unpackable(self.path, f"{path}{key}" if at == "nowhere" else f"{at}, {path}{key}", found, wanted)


def json_file(path: Path) -> JsonFile:
    """A file that holds one JSON object: strict UTF-8, unique keys, bounded depth. Raises Unpackable."""
    raw = content(path)
    try:
        return JsonFile(path, raw, strict_object(raw, "json", 0))
    except Refusal as refusal:
        fault = refusal.fault
        line = raw.count(b"\n", 0, fault.offset or 0) + 1
        raise Unpackable(path, f"line {line}", fault.found, fault.wanted) from None
