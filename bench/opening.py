"""Opening a large directory: 50,000 tensors, every record validated.

Law: the other way is what a reader writes first, a loop over `struct` that checks the same of each record and keeps its name
in a dict; so it does on both rows. Ours reads no name on the first (and refuses two of one name), every name on the second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from bench.measure import Row, Ways
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.format.container import open as open_container
from cmfspec.layout import DIR_HEAD_SIZE, DTYPE_IDS, ENVELOPE_AT, MAX_NDIM, RECORD_SIZE, TENSOR_ALIGN

TENSORS = 50_000
PARTS = ("gate_proj", "up_proj", "down_proj", "router")
RECORD = struct.Struct("<IHBB6IQQQ")
WIDTH = {DTYPE_IDS["f32"]: 4, DTYPE_IDS["f16"]: 2, DTYPE_IDS["bf16"]: 2}


@cache
def file() -> bytes:
    """A file of many small tensors, named as those of a mixture of experts are."""
    names = (f"model.layers.{i // 800}.mlp.experts.{i // 4 % 200}.{PARTS[i % 4]}.weight" for i in range(TENSORS))
    return render(Blueprint({}, tuple(Entry(name, DTYPE_IDS["f16"], (1, 1), b"\0<") for name in names)))


def looped(raw: bytes) -> dict[str, tuple[int, tuple[int, ...], int, int, int]]:
    """Name to dtype, shape, offset, bytes and hash, record by record. Raises ValueError."""
    base, length = struct.unpack_from("<QQ", raw, ENVELOPE_AT["dir_off"])
    _, data_len = struct.unpack_from("<QQ", raw, ENVELOPE_AT["data_off"])
    count, pool_off = struct.unpack_from("<QQ", raw, base)
    pool = raw[base + pool_off : base + length]
    found = {}
    for index in range(count):
        record = RECORD.unpack_from(raw, base + DIR_HEAD_SIZE + RECORD_SIZE * index)
        start, size, dtype, ndim = record[:4]
        off, nbytes, digest = record[10:]
        if start + size > len(pool) or ndim > MAX_NDIM or dtype not in WIDTH:
            raise ValueError(f"record {index}: its name, ndim or dtype")
        if off % TENSOR_ALIGN or off + nbytes > data_len:
            raise ValueError(f"record {index}: its place")
        shape = record[4 : 4 + ndim]
        elements = 1
        for dim in shape:
            elements *= dim
        if nbytes != elements * WIDTH[dtype]:
            raise ValueError(f"record {index}: its size")
        name = pool[start : start + size].decode("utf-8")
        if name in found:
            raise ValueError(f"record {index}: a name of another")
        found[name] = (dtype, shape, off, nbytes, digest)
    return found


def beside_loop(ours: Callable[[bytes], object]) -> Callable[[], AbstractContextManager[Ways]]:
    """Ways: `ours` and the loop."""

    @contextmanager
    def ways() -> Iterator[Ways]:
        raw = file()
        yield Ways([lambda: ours(raw)], [lambda: looped(raw)], TENSORS)

    return ways


def named(raw: bytes) -> dict[str, int]:
    """Every name and its place."""
    return open_container(raw).names


LOOP = "a loop over struct that checks the same and fills a dict"
ROWS = (
    Row("open-lazy", "open and validate 50,000 tensors", LOOP, "tensors", 15, beside_loop(open_container)),
    Row("open-names", "the same, every name in a dict", LOOP, "tensors", 4.5, beside_loop(named)),
)  # fmt: skip
