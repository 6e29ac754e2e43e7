"""Hashing: a large buffer on one thread and on two, and a whole file.

Law: a hash reads every word, so folding the same words by XOR is the bound of one thread; what two threads are worth is told
beside the fastest hash in C. A file's hashes are told beside one hash of all its bytes, page cache warm for both.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import cmfspec
from bench.matrices import THREADS, few_cores
from bench.measure import Row, Ways
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.format.hash64 import _compiled
from cmfspec.layout import DTYPE_IDS
from golden.recipes import HEADER

MIB = 2**20
SIZE, NEAR = 256 * MIB, MIB // 2
LARGE, SMALL = (64, 8 * MIB), (200, 2048)  # tensors, bytes of each


def lacks_xxhash() -> str:
    """Why there is no hash in C to compare with."""
    return few_cores() or ("" if find_spec("xxhash") else "no xxhash (pip install xxhash)")


def noise(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Words."""
    return np.random.default_rng(1).integers(0, 2**64, size // 8, np.uint64)


def hashed(data: memoryview, threads: int, times: int = 1) -> object:
    """The hash of all of it, so many times over."""
    return _compiled(data, np.zeros(times, np.int64), np.full(times, len(data)), threads)


@contextmanager
def one_buffer(threads: int, other: Callable[[np.ndarray[tuple[int], np.dtype[np.uint64]]], object]) -> Iterator[Ways]:
    """hash64 of a buffer; the bound is a piece of it that stays in cache, as often as it takes."""
    words = noise(SIZE)
    data = words.view(np.uint8).data
    yield Ways(
        [partial(hashed, data, threads)],
        [partial(other, words)],
        SIZE / 1e6,
        [partial(hashed, data[:NEAR], threads, SIZE // NEAR)],
    )


def xxh3(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> object:
    """In C, on one thread."""
    import xxhash

    return xxhash.xxh3_64_intdigest(words.data)


@contextmanager
def one_file() -> Iterator[Ways]:
    """Verify a file of large tensors and small ones, opened each time; beside one hash of its bytes."""
    words = noise(LARGE[1] + 8 * LARGE[0]).view(np.uint8)
    entries = [
        Entry(f"{kind}.{index}", DTYPE_IDS["u8"], (size,), words[8 * (index % 64) :][:size].tobytes())
        for kind, (count, size) in enumerate((LARGE, SMALL))
        for index in range(count)
    ]
    with tempfile.TemporaryDirectory(prefix="cmfspec-bench-") as folder:
        path = Path(folder) / "large.cmf"
        path.write_bytes(render(Blueprint(HEADER, tuple(entries))))
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            whole = memoryview(mapped)

            def verified() -> None:
                if list(cmfspec.verify(cmfspec.open(str(path)))):
                    raise RuntimeError("the file is damaged")

            def remapped() -> None:
                with path.open("rb") as again, mmap.mmap(again.fileno(), 0, access=mmap.ACCESS_READ) as fresh:
                    content = memoryview(fresh)
                    try:
                        hashed(content, THREADS)
                    finally:
                        content.release()

            try:
                yield Ways([verified], [partial(hashed, whole, THREADS)], len(whole) / 1e6, [remapped])
            finally:
                whole.release()


FROM_CACHE = "the same hash of what lies in cache"
ROWS = (
    Row(
        "hash-one", "hash64 of 256 MiB, one thread", "the same words folded by XOR, by numpy", "MB", 0.55,
        lambda: one_buffer(1, np.bitwise_xor.reduce), bound=FROM_CACHE, seconds=3.0,
    ),
    Row(
        "hash-two", "hash64 of 256 MiB, two threads", "xxh3 of them in C, one thread", "MB", 1.1,
        lambda: one_buffer(THREADS, xxh3), lacks_xxhash, FROM_CACHE, 3.0,
    ),
    Row(
        "verify-large", "a file of 513 MiB opened and verified, two threads", "hash64 of all its bytes, two threads",
        "MB", 0.85, one_file, few_cores, "hash64 of all its bytes, mapped anew each time, as a file is that is opened", 3.0,
    ),
)  # fmt: skip
