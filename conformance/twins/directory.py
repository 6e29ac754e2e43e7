"""Twins that read the tensor directory, the table of dtypes or the blob wrongly (§3, §3.1, §4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.contract.reference import Parts
from cmfspec.errors import Fault, refusal
from cmfspec.format.container import Container, Tensor
from cmfspec.format.directory import Directory
from cmfspec.format.view import View
from cmfspec.layout import DATA_ALIGN, DIR_HEAD_SIZE, DTYPE_IDS, DTYPE_NAMES, RECORD_SIZE, TENSOR_ALIGN, align
from conformance.twins.twin import (
    Faults,
    Twin,
    blind,
    changed,
    decoding,
    extra,
    forgiving,
    no,
    records,
    without_problems,
)

FLUSHED = np.float32(2**-126)  # the smallest float that is not subnormal
HALF_FLUSHED = np.float32(2**-14)


def _seen(head: Callable[[int, int, int], tuple[int, int]]) -> Callable[[bytes | memoryview], View]:
    """A view whose directory begins with what `head` makes of count, pool_off and dir_len."""

    def view_of(buffer: bytes | memoryview) -> View:
        view = View(buffer)
        count, pool_off = head(*view.dir_head(), view.span("dir")[1])
        right = view.directory
        view.dir_head = lambda: (count, pool_off)  # type: ignore[method-assign]
        pool = bytes(view.part("dir")[pool_off:])
        view.directory = Directory(right.base, right.records[:count], pool, pool_off, right.data_len)
        return view

    return view_of


def one_byte_count(count: int, pool_off: int, _: int) -> tuple[int, int]:
    return count & 0xFF, pool_off


def behind_the_records(count: int, pool_off: int, length: int) -> tuple[int, int]:
    right = DIR_HEAD_SIZE + RECORD_SIZE * count
    return count, right if right <= pool_off <= length else pool_off


def as_many_as_fit(count: int, pool_off: int, length: int) -> tuple[int, int]:
    return min(count, max(0, length - DIR_HEAD_SIZE) // RECORD_SIZE), pool_off


def count_wraps(count: int, pool_off: int, _: int) -> tuple[int, int]:
    return count % 2**61, pool_off


def short_name_off(buffer: bytes | memoryview) -> View:
    view = View(buffer)
    found = view.directory.records.copy()
    found["name_off"] &= 0xFFFF
    view.directory = replace(view.directory, records=found)
    return view


def odd_name(directory: Directory, index: int) -> bool:
    return not all(33 <= byte < 127 for byte in directory.name_bytes(index))


def _from(offset: Callable[[Container, Tensor], int]) -> Callable[[Container, int], Any]:
    """Values of the bytes at that offset of the file, filled up with zeros."""

    def values(opened: Container, index: int) -> Any:
        tensor: Tensor = opened[index]
        start = offset(opened, tensor)
        raw = bytes(opened.view.buffer[start : start + tensor.nbytes]).ljust(tensor.nbytes, b"\0")
        codec = CODECS.get(tensor.dtype)
        if codec is None or start == opened.view.span("data")[0] + tensor.off:
            return opened.values(index)
        return codec.decode(memoryview(raw), tensor.shape)

    return values


def from_the_first_page(opened: Container, tensor: Tensor) -> int:
    return DATA_ALIGN + tensor.off


def rounded_down(opened: Container, tensor: Tensor) -> int:
    return opened.view.span("data")[0] + tensor.off // TENSOR_ALIGN * TENSOR_ALIGN


def added_up(opened: Container, tensor: Tensor) -> int:
    before = sum(align(opened[index].nbytes, TENSOR_ALIGN) for index in range(tensor.index))
    return opened.view.span("data")[0] + before


def gaps(view: View) -> Faults:
    end = 0
    for record in np.sort(view.directory.records[["off", "nbytes"]]):
        if int(record["off"]) >= align(end, TENSOR_ALIGN) + TENSOR_ALIGN:
            yield no(view, "off")
        end = int(record["off"]) + int(record["nbytes"])


def bytes_are_numbers(opened: Container, index: int) -> Any:
    if opened[index].dtype != DTYPE_IDS["u8"]:
        return opened.values(index)
    return np.frombuffer(opened.raw(index), np.uint8).astype(np.float32)


def four_dimensions(opened: Container, index: int) -> Any:
    if len(opened[index].shape) > 4:
        raise refusal(Fault("Parse", "", "ndim", 0, "many", "at most 4"))
    return opened.values(index)


def flushed(below: np.float32) -> Callable[[bytes, tuple[int, ...], Any], Any]:
    return lambda _, __, right: np.where(np.abs(right) < below, np.float32(0), right)


def no_elements(opened: Container, index: int) -> Any:
    shape = opened[index].shape
    return np.zeros(1, np.float32) if np.prod(shape, dtype=object) > 2**63 else opened.values(index)


SIZES = (
    "DIR-020",
    "DT-001",
    "DT-002",
    "DT-003",
)  # the rules by which our decoders say that a payload has the wrong size

TWINS: tuple[Twin, ...] = (
    Twin("one-byte-count", "DIR-001", "keeps the count in one byte", Parts(view=_seen(one_byte_count))),
    Twin("short-name-off", "DIR-002", "keeps name_off in 16 bits", Parts(view=short_name_off)),
    Twin(
        "pool-behind-records",
        "DIR-003",
        "looks for the pool behind the records",
        Parts(view=_seen(behind_the_records)),
    ),
    Twin("as-many-as-fit", "DIR-004", "reads as many records as fit", Parts(view=_seen(as_many_as_fit))),
    Twin("count-wraps", "DIR-005", "multiplies count by 56 modulo 2^64", Parts(view=_seen(count_wraps))),
    Twin(
        "slices-clip", "DIR-006", "slices the pool, wherever it is", changed(dir__pool=None, record__name_bounds=None)
    ),
    Twin("names-clip", "DIR-007", "clips a name at the end of the pool", changed(record__name_bounds=None)),
    Twin("last-name-wins", "DIR-009", "keeps the last of two tensors of a name", changed(dir__duplicates=None)),
    Twin("plain-names", "DIR-012", "wants names of printable ASCII", extra("names", records(odd_name, "Parse"))),
    Twin(
        "product-wraps",
        "DIR-017",
        "does not look at the size of a product",
        changed(Parts(values=no_elements), record__product=None),
    ),
    Twin(
        "first-page",
        "DIR-018",
        "counts off from the first page",
        Parts(values=_from(from_the_first_page)),
        also="in every file with a long directory, or with sections before the blob, it lies elsewhere",
    ),
    Twin(
        "rounds-down",
        "DIR-019",
        "reads from the boundary below off",
        changed(Parts(values=_from(rounded_down)), record__aligned=None),
    ),
    Twin(
        "trusts-nbytes",
        "DIR-020",
        "takes a payload of any size",
        changed(forgiving(*SIZES), record__nbytes=None),
    ),
    Twin("offsets-add-up", "DIR-022", "adds up sizes instead of reading off", Parts(values=_from(added_up))),
    Twin(
        "zero-hash-is-none",
        "DIR-023",
        "takes a hash of zero for «absent»",
        without_problems(lambda opened, problem: problem.index is not None and opened[problem.index].hash == 0),
    ),
    Twin("no-gaps", "BLOB-004", "wants no gaps between tensors", extra("gaps", gaps)),
    Twin("flushes-floats", "DT-001", "takes subnormal floats for zero", decoding("f32", flushed(FLUSHED))),
    Twin("flushes-halves", "DT-002", "takes subnormal halves for zero", decoding("f16", flushed(HALF_FLUSHED))),
    Twin("flushes-bf16", "DT-003", "takes subnormal bf16 for zero", decoding("bf16", flushed(FLUSHED))),
    Twin("bytes-are-numbers", "DT-004", "makes weights of u8", Parts(values=bytes_are_numbers)),
    Twin("four-dimensions", "DT-007", "decodes no tensor of more than four dimensions", Parts(values=four_dimensions)),
    Twin(
        "sixteen-is-opaque",
        "DT-016",
        "takes id 16 for reserved",
        blind("record.dtype", lambda fault: fault.found == str(len(DTYPE_NAMES))),
    ),
)
