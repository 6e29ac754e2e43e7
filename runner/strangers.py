"""Files that a user names: a stream, waivers. They may be anything.

Law: only a regular file is read (or stdin, for `-`), and no more of it than is allowed; what is wrong with it is one sentence
with the file, the line, what was found and what was wanted.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import BinaryIO

from runner.terminal import safe

SHOWN = 80  # characters of what was found that a message shows


class BadFile(Exception):
    """A file that a user named is not what it is to be. line: from 1, 0 for the whole file."""

    def __init__(self, path: str, line: int, found: str, wanted: str) -> None:
        where = f"{safe(path)}:{line}" if line else safe(path)
        super().__init__(f"{where}: found {safe(found)}, wanted {wanted}")
        self.line = line


def opened(path: str) -> BinaryIO:
    """The file, open for reading. Raises BadFile."""
    if path == "-":
        return sys.stdin.buffer
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would hang us
    except (OSError, ValueError) as error:
        raise BadFile(path, 0, getattr(error, "strerror", None) or str(error), "a file that can be read") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadFile(path, 0, "no regular file", "one")
    return os.fdopen(file, "rb")


def text_of(path: str, limit: int) -> str:
    """The whole of a UTF-8 file of at most `limit` bytes. Raises BadFile."""
    with opened(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BadFile(path, 0, f"more than {limit} bytes", "a smaller file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFile(path, line, f"the byte {content[error.start]:#04x}", "UTF-8") from None


def short(value: object) -> str:
    """What was found, no longer than a message can show."""
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
