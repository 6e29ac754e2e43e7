"""Reading weights in safetensors files, a few rows at a time.

Law: `[u64 length][JSON header][data]`, where the header gives each tensor a dtype, a shape and a range of the data. All of
it is checked against the file's size before a byte of data is read: ranges follow one another without gap or overlap and
end where the file ends, so a truncated file is found at once. Data is read, never mapped: a file that shrinks meanwhile
is an error with a name, not the end of the process. numpy has no bfloat16, so the bytes are widened here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cmfspec.errors import Refusal
from cmfspec.format.header import strict_object
from cmfspec.tools.unpackable import Unpackable, json_file, regular, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEAD = 8
MAX_HEADER = 100_000_000  # bytes, as the format's own library has it
WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
WEIGHTS: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}  # what can become a weight
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
CHUNK = 1 << 20  # bytes read at a time


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file. start: of its data, in bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    file: Path

    @property
    def cols(self) -> int:
        """Elements of a row: the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """How many rows: all other dimensions together."""
        return prod(self.shape[:-1])


def entries(path: Path, handle: int) -> Iterator[Stored]:
    """The tensors of a file, in the order of their data. Raises Unpackable."""
    size = os.fstat(handle).st_size
    head = os.pread(handle, HEAD, 0)
    length = int.from_bytes(head, "little")
    if len(head) < HEAD or length > min(MAX_HEADER, size - HEAD):
        found = f"{len(head)} bytes" if len(head) < HEAD else f"a header of {length} bytes in a file of {size}"
        raise Unpackable(path, "length of the header, at 0", found, "a header that the file holds")
    raw = os.pread(handle, length, HEAD)
    try:
        header = strict_object(raw, "header", HEAD)
    except Refusal as refusal:
        fault = refusal.fault
        raise Unpackable(path, f"header, at {fault.offset}", fault.found, fault.wanted) from None
    header.pop("__metadata__", None)
    ranges = [(_range(path, name, entry), name, entry) for name, entry in header.items()]
    at = 0
    for (begin, end), name, entry in sorted(ranges, key=lambda one: (one[0], one[1])):
        if begin != at:
            raise Unpackable(path, f"data_offsets of {shown(name)}", f"from {begin} on", f"from {at} on")
        at = end
        yield Stored(name, entry["dtype"], tuple(entry["shape"]), HEAD + length + begin, path)
    if at != size - HEAD - length:
        raise Unpackable(path, "data", f"{size - HEAD - length} bytes", f"{at} bytes: is the file truncated?")


def _range(path: Path, name: str, entry: object) -> tuple[int, int]:
    """Where the data of a tensor lies, once its entry is known to be right."""
    where = f"header, {shown(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Unpackable(path, where, shown(entry), "an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        raise Unpackable(path, f"{where}, dtype", shown(dtype), f"one of {', '.join(WIDTHS)}")
    for key, value, count in (("shape", shape, None), ("data_offsets", offsets, 2)):
        good = isinstance(value, list) and all(type(one) is int and 0 <= one < 2**63 for one in value)
        if not good or (count and len(value) != count):
            raise Unpackable(path, f"{where}, {key}", shown(value), "a list of sizes in bytes or elements")
    size = prod(shape) * WIDTHS[dtype]
    if offsets[1] - offsets[0] != size:
        raise Unpackable(path, f"{where}, data_offsets", f"{offsets[1] - offsets[0]} bytes", f"{size} bytes")
    return offsets[0], offsets[1]


class Weights(Mapping[str, Stored]):
    """The tensors of a folder by name; a context manager that holds its files open."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._handles: dict[Path, int] = {}
        self._states: dict[Path, tuple[int, int]] = {}
        self._stored: dict[str, Stored] = {}
        try:
            listed = _listed(folder)
            for name in sorted(set(listed.values())) if listed is not None else [SINGLE]:
                self._add(folder / name, {key for key, file in listed.items() if file == name} if listed else None)
        except BaseException:
            self._stack.close()
            raise

    def _add(self, path: Path, wanted: set[str] | None) -> None:
        handle = regular(path)
        self._stack.callback(os.close, handle)
        self._handles[path], self._states[path] = handle, _state(handle)
        here = {stored.name: stored for stored in entries(path, handle)}
        if wanted is not None and wanted != set(here):
            strays = sorted(wanted ^ set(here))
            raise Unpackable(
                path,
                f"tensor {shown(strays[0])}",
                "in the file" if strays[0] in here else "not in the file",
                f"just what {INDEX} lists",
            )
        self._stored |= here

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Stored:
        return self._stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [*self._handles]

    def rows(self, stored: Stored, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` to `last` of a tensor, float32 [rows, cols]. Raises Unpackable."""
        dtype = WEIGHTS.get(stored.dtype)
        if dtype is None:
            raise Unpackable(stored.file, f"tensor {shown(stored.name)}", stored.dtype, f"one of {', '.join(WEIGHTS)}")
        width = stored.cols * dtype.itemsize
        raw = _read(self._handles[stored.file], (last - first) * width, stored.start + first * width)
        if len(raw) != (last - first) * width:
            raise Unpackable(stored.file, f"tensor {shown(stored.name)}", "the file's end", "its data")
        values: NDArray[Any] = np.frombuffer(raw, dtype).reshape(last - first, stored.cols)
        if stored.dtype == "BF16":
            values = values.astype(np.uint32)  # a bfloat16 is the upper half of a float32
            values <<= np.uint32(16)
            values = values.view(np.float32)
        return values.astype(np.float32, copy=False)

    def chunks(self, stored: Stored, first: int, last: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Rows `first` to `last`, about a MiB at a time: (number of the first row, rows)."""
        step = max(1, CHUNK // (max(1, stored.cols) * WIDTHS[stored.dtype]))
        for row in range(first, last, step):
            yield row, self.rows(stored, row, min(row + step, last))

    def settle(self) -> None:
        """Raises Unpackable for a file that was changed while it was read."""
        for path, handle in self._handles.items():
            if _state(handle) != self._states[path]:
                raise Unpackable(path, "file", "changed while it was read", "a file at rest")


def _state(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_size, status.st_mtime_ns


def _read(handle: int, size: int, at: int) -> bytearray:
    """`size` bytes from `at` on, less where the file ends."""
    raw = bytearray(size)
    view, done = memoryview(raw), 0
    while done < size and (got := os.preadv(handle, [view[done:]], at + done)):
        done += got
    view.release()
    return raw if done == size else raw[:done]


def _listed(folder: Path) -> dict[str, Any] | None:
    """Tensor to file name, as the index has it; None where there is one file. Raises Unpackable."""
    if os.path.lexists(folder / SINGLE):
        return None
    if not os.path.lexists(folder / INDEX):
        raise Unpackable(folder, "folder", f"neither {SINGLE} nor {INDEX}", "weights as safetensors")
    index = json_file(folder / INDEX)
    listed = index.value.get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise index.bad("weight_map", shown(listed), "an object of tensors and their files")
    for name, file in listed.items():
        if not isinstance(file, str) or not file or file != os.path.basename(file) or "\0" in file:
            raise index.bad(name, shown(file), "the name of a file in the same folder", "weight_map.")
    return listed
