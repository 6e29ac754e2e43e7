"""Opening a file (§1, §1.2): the one boundary that bytes cross.

Law: `open` accepts, or raises one of the named refusals; nothing else leaves it. It reads no weight and checks no hash
(§1.2: on demand), and allocates no more than the file's own size.
"""

from __future__ import annotations

import builtins
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cmfspec.codecs import CODECS
from cmfspec.errors import Fault, Refusal, refusal
from cmfspec.format.checks import CHECKS, Check, run_checks
from cmfspec.format.view import View
from cmfspec.layout import DTYPE_NAMES, OPTIONAL, READ_WHOLE

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Source = bytes | bytearray | memoryview | str | os.PathLike[str] | Path


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of the directory (§3). off: in bytes from data_off; hash: hash64 of the payload."""

    index: int
    name: str
    dtype: int
    shape: tuple[int, ...]
    off: int
    nbytes: int
    hash: int

    @property
    def dtype_name(self) -> str:
        """The encoding's name in §3.1."""
        return DTYPE_NAMES[self.dtype]


class Container(Sequence[Tensor]):
    """A valid file: a sequence of tensors, and the sections beside them."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __len__(self) -> int:
        return len(self.view.directory.records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"tensor {index} of {len(self)}")
        index %= len(self)
        directory = self.view.directory
        record = directory.records[index]
        return Tensor(
            index,
            directory.name_bytes(index).decode("utf-8"),
            int(record["dtype"]),
            directory.shape(index),
            int(record["off"]),
            int(record["nbytes"]),
            int(record["hash"]),
        )

    @cached_property
    def names(self) -> dict[str, int]:
        """Every name and its place, in order."""
        return dict(zip(self.view.directory.texts(), range(len(self)), strict=True))

    def index_of(self, name: str) -> int:
        """The place of the tensor with exactly this name. Raises KeyError."""
        return self.names[name]

    @property
    def header(self) -> dict[str, Any]:
        """The header JSON (§2)."""
        return self.view.header

    @property
    def sections(self) -> list[str]:
        """The optional sections that the file has."""
        return [section for section in OPTIONAL if self.view.present(section)]

    def raw(self, index: int) -> memoryview:
        """The payload of a tensor, as it lies in the file."""
        tensor: Tensor = self[index]
        start = self.view.span("data")[0] + tensor.off
        return self.view.buffer[start : start + tensor.nbytes]

    def values(self, index: int, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The decoded weights (§3.2), float32 of the tensor's shape; in `out` if given (see `Codec.decode`).

        Raises Parse for an encoding without weights (mix8_4, u8, q4_col), Bounds or Parse for a payload that lies.
        """
        tensor: Tensor = self[index]
        codec = CODECS.get(tensor.dtype)
        base = self.view.span("data")[0] + tensor.off
        if codec is None:
            at = self.view.directory.at(tensor.index, "dtype")
            found = f"{tensor.dtype}, {tensor.dtype_name}, reserved"
            raise refusal(Fault("Parse", "DT-004", f"dir[{tensor.index}].dtype", at, found, "an encoding of weights"))
        try:
            return codec.decode(self.raw(index), tensor.shape, out)
        except Refusal as error:
            fault = error.fault
            field = f"tensor[{tensor.index}].{fault.field}"
            raise refusal(replace(fault, field=field, offset=base + (fault.offset or 0))) from None


def open(source: Source, checks: tuple[Check, ...] = CHECKS) -> Container:
    """Open a file, given its bytes or its path (§1.2).

    Raises the refusal of the first fault: InvalidMagic, UnsupportedVersion, UnsupportedFeature, Bounds or Parse; Other
    where the path can't be read as a regular file.
    """
    view = View(_bytes(source))
    judge(view, checks)
    return Container(view)


def judge(view: View, checks: tuple[Check, ...] = CHECKS) -> None:
    """Raise the refusal of the first fault, if there is one."""
    for fault in run_checks(view, checks):
        raise refusal(fault)


def faults(source: Source) -> Iterator[Fault]:
    """Every fault of a file, in the order of the table of checks; none iff `open` accepts it."""
    return run_checks(View(_bytes(source)))


def _bytes(source: Source) -> bytes | memoryview:
    return memoryview(source) if isinstance(source, bytes | bytearray | memoryview) else read(source)


def read(path: str | os.PathLike[str]) -> bytes | memoryview:
    """The bytes of a regular file: read if small, mapped if large. Raises Other."""
    try:
        # A FIFO would hang a plain open for ever.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(getattr(error, "strerror", None) or error)) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "not a regular file")
        if status.st_size > READ_WHOLE:
            return memoryview(mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ))
        with builtins.open(handle, "rb", closefd=False) as file:
            return file.read(status.st_size)
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from None
    finally:
        os.close(handle)


def _unreadable(path: str | os.PathLike[str], why: str) -> Refusal:
    return refusal(
        Fault("Other", "VAL-013", "path", None, f"{os.fspath(path)!r}: {why}", "a regular file that can be read")
    )
