"""The tensor directory (§3): head, records, name pool.

Law: the directory is the only truth about the blob. It is validated as a whole, in arrays; a record that looks wrong there
is checked again by a scalar function in exact integers, which says field, offset, found and wanted. Names are bytes until
somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, AnyStr

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.errors import Fault
from cmfspec.layout import (
    DIR_HEAD_SIZE,
    DTYPE_NAMES,
    MAX_NDIM,
    RECORD,
    RECORD_DTYPE,
    RECORD_SIZE,
    TENSOR_ALIGN,
    U64,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Suspects = NDArray[np.bool_]

_AT = {field.name: field.offset for field in RECORD}
_SANE = 1 << 60  # elements: past this, only exact integers decide


@dataclass(frozen=True)
class Directory:
    """The bytes of a directory whose head is right, at `base` in the file.

    records: structured array [count]; pool: the bytes from pool_off to the end.
    """

    base: int
    records: NDArray[np.void]
    pool: bytes
    pool_off: int
    data_len: int

    def name_bytes(self, index: int) -> bytes:
        """The name as it stands in the pool."""
        record = self.records[index]
        start = int(record["name_off"])
        return self.pool[start : start + int(record["name_len"])]

    def shape(self, index: int) -> tuple[int, ...]:
        """The dimensions; what stands past ndim is ignored."""
        record = self.records[index]
        return tuple(int(dim) for dim in record["shape"][: min(int(record["ndim"]), MAX_NDIM)])

    def at(self, index: int, field: str) -> int:
        """Offset in the file of a record's field."""
        return self.base + DIR_HEAD_SIZE + RECORD_SIZE * index + _AT[field]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each name starts in the pool."""
        return self.records["name_off"].astype(np.int64)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The bytes of each name."""
        return self.records["name_len"].astype(np.int64)

    @cached_property
    def all_names(self) -> list[bytes]:
        """Every name, in order."""
        return self._cut(self.pool)

    def texts(self) -> list[str]:
        """Every name, in order, of a directory whose names have been checked."""
        if not self.pool.isascii():
            return [name.decode("utf-8") for name in self.all_names]
        return self._split() or self._cut(self.pool.decode("ascii"))

    def _split(self) -> list[str]:
        """The names of a pool that holds them one behind the other in order, as writers do; else none."""
        ends = self.starts + self.lengths
        if 0 in self.pool or not len(ends) or self.starts[0] or (self.starts[1:] != ends[:-1]).any():
            return []
        spaced = np.zeros(int(ends[-1]) + len(ends), np.uint8)
        letters = np.ones(len(spaced), np.bool_)
        letters[ends + np.arange(len(ends))] = False
        spaced[letters] = np.frombuffer(self.pool, np.uint8, int(ends[-1]))
        return spaced[:-1].tobytes().decode("ascii").split("\0")

    def _cut(self, pool: AnyStr) -> list[AnyStr]:
        return [pool[a:b] for a, b in zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)]

    @cached_property
    def elements(self) -> NDArray[np.uint64]:
        """Product of each shape, clipped to a value past any file where it is huge."""
        ndims, shapes = self.records["ndim"], self.records["shape"]
        exact, rough = np.ones(len(self.records), np.uint64), np.ones(len(self.records), np.float64)
        for axis in range(min(int(ndims.max(initial=0)), MAX_NDIM)):
            dim = np.where(ndims > axis, shapes[:, axis], 1).astype(np.uint64)
            exact *= dim  # modulo 2^64, which the other tells: 6 u32 can't overflow a float64
            rough *= dim
        return np.where(rough >= _SANE, np.uint64(_SANE * 2), exact)

    @cached_property
    def dtypes(self) -> list[int]:
        """The dtype ids that occur, in order."""
        return np.flatnonzero(np.bincount(self.records["dtype"])).tolist()


def parse_directory(raw: memoryview, base: int, data_len: int) -> Directory:
    """The directory in `raw`; its head has been checked."""
    count = int.from_bytes(raw[0:8], "little")
    pool_off = int.from_bytes(raw[8:16], "little")
    count = min(count, max(0, len(raw) - DIR_HEAD_SIZE) // RECORD_SIZE)
    records = np.frombuffer(raw, RECORD_DTYPE, count, DIR_HEAD_SIZE) if count else np.zeros(0, RECORD_DTYPE)
    return Directory(base, records, bytes(raw[pool_off:]), pool_off, data_len)


# --- the checks of one record: exact, one fault each ---------------------------------------------------------------


def _name_bounds(d: Directory, i: int) -> Fault | None:
    start, length = int(d.records[i]["name_off"]), int(d.records[i]["name_len"])
    if start + length <= len(d.pool):
        return None
    return record_fault(
        d, i, "Bounds", "DIR-007", "name_off", f"a name at {start}+{length}", f"within a pool of {len(d.pool)} bytes"
    )


def _name_utf8(d: Directory, i: int) -> Fault | None:
    name = d.name_bytes(i)
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        at = d.base + d.pool_off + int(d.records[i]["name_off"]) + error.start
        found = f"bytes {name[error.start : error.start + 4].hex(' ')}"
        return Fault("Parse", "VAL-007", f"dir[{i}].name", at, found, "UTF-8")
    return None


def _dtype(d: Directory, i: int) -> Fault | None:
    number = int(d.records[i]["dtype"])
    if number < len(DTYPE_NAMES):
        return None
    rule = "DT-016" if number == len(DTYPE_NAMES) else "VAL-008"  # the first id past the table has a rule of its own
    return record_fault(d, i, "Parse", rule, "dtype", number, f"an id of §3.1, 0 to {len(DTYPE_NAMES) - 1}")


def _ndim(d: Directory, i: int) -> Fault | None:
    ndim = int(d.records[i]["ndim"])
    return record_fault(d, i, "Parse", "VAL-009", "ndim", ndim, f"at most {MAX_NDIM}") if ndim > MAX_NDIM else None


def _bounds(d: Directory, i: int) -> Fault | None:
    off, nbytes = int(d.records[i]["off"]), int(d.records[i]["nbytes"])
    if off + nbytes <= d.data_len:
        return None
    rule = "VAL-006" if off + nbytes > U64 else "VAL-005"
    return record_fault(d, i, "Bounds", rule, "off", f"{off} + {nbytes} bytes", f"within data_len = {d.data_len}")


def _aligned(d: Directory, i: int) -> Fault | None:
    off = int(d.records[i]["off"])
    return (
        record_fault(d, i, "Bounds", "DIR-019", "off", off, f"a multiple of {TENSOR_ALIGN}")
        if off % TENSOR_ALIGN
        else None
    )


def _product(d: Directory, i: int) -> Fault | None:
    total = _exact_product(d.shape(i))
    return (
        record_fault(d, i, "Bounds", "DIR-017", "shape0", f"{total} elements", "fewer than 2^64")
        if total > U64
        else None
    )


def _layout(d: Directory, i: int) -> Fault | None:
    """The shape is one that the encoding can have."""
    codec = CODECS.get(int(d.records[i]["dtype"]))
    shape = d.shape(i)
    wanted = codec.shape_fault(len(shape), shape[-1] if shape else 1) if codec else None
    if not codec or not wanted or d.records[i]["ndim"] > MAX_NDIM:
        return None
    return record_fault(d, i, "Parse", LAYOUT_RULES[codec.name], "ndim", f"{codec.name} {list(shape)}", wanted)


def _nbytes(d: Directory, i: int) -> Fault | None:
    codec = CODECS.get(int(d.records[i]["dtype"]))
    shape = d.shape(i)
    total = _exact_product(shape)
    if not codec or codec.nbytes is None or total > U64 or d.records[i]["ndim"] > MAX_NDIM:
        return None
    if codec.shape_fault(len(shape), shape[-1] if shape else 1):
        return None
    wanted = int(codec.nbytes(total, *(shape if len(shape) == 2 else (1, total))))
    found = int(d.records[i]["nbytes"])
    if found == wanted:
        return None
    return record_fault(d, i, "Bounds", "DIR-020", "nbytes", found, f"{wanted}: {codec.name} {list(shape)}")


LAYOUT_RULES = {
    "q8_row": "Q-Q8ROW-002",
    "q8_2f": "Q-Q82F-002",
    "q4_tiled": "Q-Q4T-002",
    "q4tp": "Q-Q4TP-002",
    "vbit": "Q-VBIT-003",
    "vbit_ro": "Q-VBIT-003",
    "q1": "Q-Q1-002",
    "q1s": "Q-Q1-002",
    "q1t": "Q-Q1-002",
}


# --- the same over all records at once: True where the scalar check has to look ------------------------------------


def _suspect_name_bounds(d: Directory) -> Suspects:
    suspects: Suspects = d.starts + d.lengths > len(d.pool)
    return suspects


def _suspect_utf8(d: Directory) -> Suspects:
    """All of the pool is UTF-8 and no name starts or ends inside a character: then every name is UTF-8."""
    if d.pool.isascii():
        return np.zeros(len(d.records), np.bool_)
    try:
        d.pool.decode("utf-8")
    except UnicodeDecodeError:
        return np.ones(len(d.records), np.bool_)
    inside = np.frombuffer(d.pool + b"\0", np.uint8) & 0xC0 == 0x80
    start = np.minimum(d.starts, len(d.pool))
    end = np.minimum(start + d.lengths, len(d.pool))
    suspects: Suspects = inside[start] | inside[end]
    return suspects


def _suspect_nbytes(d: Directory) -> Suspects:
    suspects = d.elements >= _SANE
    rows = d.records["shape"][:, 0].astype(np.uint64)
    cols = d.records["shape"][:, 1].astype(np.uint64)
    for number in d.dtypes:
        codec = CODECS.get(number)
        if codec and codec.nbytes:
            its = (d.records["dtype"] == number) & ~suspects
            suspects[its] = codec.nbytes(d.elements[its], rows[its], cols[its]) != d.records["nbytes"][its]
    return suspects


def _suspect_layout(d: Directory) -> Suspects:
    suspects = np.zeros(len(d.records), np.bool_)
    for number in d.dtypes:
        codec = CODECS.get(number)
        if codec and codec.matrix:
            its = d.records["dtype"] == number
            suspects |= its & ((d.records["ndim"] != 2) | (d.records["shape"][:, 1] % codec.multiple != 0))
    return suspects


@dataclass(frozen=True)
class RecordCheck:
    """One check of a record: its name, the rule, the scalar law and the array that finds where to apply it."""

    name: str
    rule: str
    fault: Callable[[Directory, int], Fault | None]
    suspects: Callable[[Directory], Suspects]

    def find(self, directory: Directory) -> Iterator[Fault]:
        """Every fault of this check, in record order."""
        for index in np.flatnonzero(self.suspects(directory)).tolist():
            fault = self.fault(directory, index)
            if fault:
                yield fault


RECORD_CHECKS = (
    RecordCheck("record.name_bounds", "DIR-007", _name_bounds, _suspect_name_bounds),
    RecordCheck("record.name_utf8", "VAL-007", _name_utf8, _suspect_utf8),
    RecordCheck("record.dtype", "VAL-008", _dtype, lambda d: d.records["dtype"] >= len(DTYPE_NAMES)),
    RecordCheck("record.ndim", "VAL-009", _ndim, lambda d: d.records["ndim"] > MAX_NDIM),
    RecordCheck(
        "record.bounds",
        "VAL-005",
        _bounds,
        lambda d: (
            (d.records["nbytes"] > d.data_len)
            | (d.records["off"] > d.data_len - np.minimum(d.records["nbytes"], d.data_len))
        ),
    ),
    RecordCheck("record.aligned", "DIR-019", _aligned, lambda d: d.records["off"] & (TENSOR_ALIGN - 1) != 0),
    RecordCheck("record.product", "DIR-017", _product, lambda d: d.elements >= _SANE),
    RecordCheck("record.layout", "Q-VBIT-003", _layout, _suspect_layout),
    RecordCheck("record.nbytes", "DIR-020", _nbytes, _suspect_nbytes),
)


def _exact_product(shape: tuple[int, ...]) -> int:
    total = 1
    for dim in shape:
        total *= dim
    return total


def record_fault(d: Directory, index: int, kind: str, rule: str, field: str, found: object, wanted: str) -> Fault:
    """A fault of a record's field."""
    return Fault(kind, rule, f"dir[{index}].{field}", d.at(index, field), str(found), wanted)
