"""`cmfspec tensor`: one tensor of a file, decoded into a `.npy`, or its payload as it lies.

Law: what is asked for is there whole or not at all: it is written under another name beside the output, and renamed. A tensor
is decoded straight into the file that it ends up in. Remarks and refusals go to stderr, since `-o -` makes stdout the data.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np
from numpy.lib import format as npy

import cmfspec
from cmfspec.codecs import CODECS
from cmfspec.codecs.q1 import Q1_TILE
from cmfspec.errors import Refusal
from cmfspec.format.container import Container, Tensor
from cmfspec.format.hash64 import hash64
from cmfspec.layout import GROUP
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.filecmds import refused, show_faults
from runner.terminal import safe

STDOUT = "-"
CLOSEST = 3  # names that are suggested


def tensor_command(file: str, name: str | None, index: int | None, out: str, raw: bool) -> int:
    """`cmfspec tensor`: the exit code. Raises click.UsageError."""
    if (name is None) == (index is None):
        raise click.UsageError("name the tensor, or give its place with --index: one of the two")
    target = output_path(out, file)
    stdout = sys.stdout.buffer
    with contextlib.redirect_stdout(sys.stderr):  # whatever is said is a remark
        try:
            opened = cmfspec.open(file)
        except Refusal:
            return refused(file, as_json=False)
        tensor: Tensor = opened[_place(opened, name, index)]
        try:
            if target is None:
                _to_stdout(opened, tensor, raw, stdout)
            else:
                with replacing(target) as stream:
                    _to_file(opened, tensor, raw, stream)
        except Refusal as refusal:
            show_faults(file, [refusal.fault])
            if CODECS.get(tensor.dtype) is None:
                print(f"{tensor.dtype_name} has no values; --raw writes the payload as it lies")
            return EXIT_FAILED
        except OSError as error:
            print(f"{safe(out) if target else 'stdout'}: {error.strerror or error}")
            return EXIT_BROKEN
        what = f"{tensor.nbytes:,} bytes" if raw else f"{_dtype(tensor)} {list(tensor.shape)}"
        print(f"{safe(tensor.name)}, {tensor.dtype_name}: {what}")
        if hash64(opened.raw(tensor.index)) != tensor.hash:
            print("its payload is damaged: the hash in the directory is another (`cmfspec verify`)")
    return 0


def _place(opened: Container, name: str | None, index: int | None) -> int:
    """The place of the tensor. Raises click.UsageError with the closest names, or the range of indices."""
    if name is None:
        if index is not None and 0 <= index < len(opened):
            return index
        wanted = f"0 to {len(opened) - 1}" if len(opened) else "none: the file has no tensors"
        raise click.UsageError(f"--index {index}: wanted {wanted}")
    try:
        return opened.index_of(name)
    except (KeyError, UnicodeEncodeError):
        close = difflib.get_close_matches(name, [tensor.name for tensor in opened], CLOSEST)
        hint = f"closest: {', '.join(safe(one) for one in close)}" if close else "`cmfspec inspect` lists them"
        raise click.UsageError(f"no tensor is named {safe(name)!r}; {hint}") from None


def output_path(out: str, file: str) -> Path | None:
    """The regular file that is to be made or replaced, links followed; None for stdout. Raises click.UsageError."""
    if out == STDOUT:
        return None
    try:
        path = Path(out).resolve()
        if not path.parent.is_dir():
            raise click.UsageError(f"-o {safe(out)}: there is no directory {safe(str(path.parent))}")
        if not path.exists():
            return path
        if not stat.S_ISREG(path.stat().st_mode):
            raise click.UsageError(f"-o {safe(out)}: not a regular file (- is stdout)")
        if os.path.exists(file) and path.samefile(file):
            raise click.UsageError(f"-o {safe(out)}: this is the file that is read")
    except (OSError, ValueError) as error:
        raise click.UsageError(f"-o {safe(out)}: {getattr(error, 'strerror', None) or error}") from None
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path`, open to be read and written, that takes its name at the end; gone if that isn't reached."""
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    with part.open("x+b") as stream:
        try:
            yield stream
            stream.flush()
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    """Of the array that is written: bytes for what is no weight."""
    codec = CODECS.get(tensor.dtype)
    return np.dtype(np.uint8 if codec and not codec.weight else np.float32)


def _head(tensor: Tensor) -> bytes:
    """The head of a `.npy` of this tensor."""
    stream = io.BytesIO()
    described = {"descr": npy.dtype_to_descr(_dtype(tensor)), "fortran_order": False, "shape": tensor.shape}
    npy.write_array_header_1_0(stream, described)
    return stream.getvalue()


def _to_file(opened: Container, tensor: Tensor, raw: bool, stream: BinaryIO) -> None:
    """Raises Refusal, or OSError where there is no space."""
    dtype = _dtype(tensor)
    if raw or dtype == np.uint8:
        stream.write(b"" if raw else _head(tensor))
        stream.write(opened.raw(tensor.index))
        return
    head, count = _head(tensor), 1
    for dim in tensor.shape:
        count *= dim
    if not count or count // GROUP * Q1_TILE > tensor.nbytes:  # nothing to map, or a shape that the payload can't fill
        values = opened.values(tensor.index)
        stream.write(head + values.tobytes())
        return
    stream.write(head)
    stream.flush()
    _reserve(stream.fileno(), len(head) + count * dtype.itemsize)
    values = np.memmap(stream, dtype, "r+", len(head), tensor.shape)
    opened.values(tensor.index, values)
    values.flush()


def _reserve(handle: int, size: int) -> None:
    """Make the file that long, with all its blocks: writing to a map of a full disk would kill us."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.truncate(handle, size)


def _to_stdout(opened: Container, tensor: Tensor, raw: bool, stream: BinaryIO) -> None:
    """Raises Refusal before anything is written."""
    parts = [opened.raw(tensor.index)]
    if not raw:
        weights = _dtype(tensor) == np.float32
        values = opened.values(tensor.index).reshape(-1).view(np.uint8).data if weights else parts[0]
        parts = [memoryview(_head(tensor)), values]
    for part in parts:
        stream.write(part)
    stream.flush()
