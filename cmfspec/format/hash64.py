"""hash64 (§8): murmur3's fmix64 over 64-bit little-endian words, salted by position, folded by XOR.

Law: `hash64(b) = fmix64(len(b) ^ XOR_i (fmix64(w_i) ^ i*SALT))`, the last word zero-extended, no words for no bytes. The
salt is outside fmix64 (ruling; vectors in the tests), so the hash is blind to the order of whole words and to pairs of
equal words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.kernels.worth import HASH_ALONE, worth
from cmfspec.layout import FMIX_1, FMIX_2, HASH_SALT, U64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_BLOCK = 1 << 16  # words at a time: temporaries stay in cache and memory stays bounded
_SMALL = 32  # words; below this, plain integers are faster than arrays
_CUT = 2**20  # bytes: ranges are cut into pieces of this size for the kernels, a whole number of words


def fmix64(x: int) -> int:
    """murmur3's finaliser, a bijection of u64."""
    x ^= x >> 33
    x = x * FMIX_1 & U64
    x ^= x >> 33
    x = x * FMIX_2 & U64
    return x ^ x >> 33


def hash64(data: bytes | memoryview) -> int:
    """hash64 of `data` (§8), u64."""
    size = len(data)
    if worth(size, HASH_ALONE):
        return int(_compiled(data, np.array([0]), np.array([size]))[0])
    whole = size // 8
    acc = 0
    if whole < _SMALL:
        for i in range(whole):
            acc ^= fmix64(int.from_bytes(data[8 * i : 8 * i + 8], "little")) ^ (i * HASH_SALT & U64)
    else:
        words = np.frombuffer(data, "<u8", whole)
        for start in range(0, whole, _BLOCK):
            acc ^= _fold(words[start : start + _BLOCK], start)
    if size % 8:
        acc ^= fmix64(int.from_bytes(data[8 * whole :], "little")) ^ (whole * HASH_SALT & U64)
    return fmix64(acc ^ size)


def _fold(words: NDArray[np.uint64], start: int) -> int:
    """XOR of the mixed and salted words, whose positions begin at `start`."""
    x = words ^ (words >> np.uint64(33))
    x *= np.uint64(FMIX_1)
    x ^= x >> np.uint64(33)
    x *= np.uint64(FMIX_2)
    x ^= x >> np.uint64(33)
    x ^= np.arange(start, start + len(words), dtype=np.uint64) * np.uint64(HASH_SALT)
    return int(np.bitwise_xor.reduce(x))


def hash64_ranges(data: bytes | memoryview, starts: Integers, sizes: Integers) -> list[int]:
    """hash64 of many ranges of `data`, in order. starts, sizes: int64 arrays of one length, in bytes.

    Raises ValueError for a range that isn't within `data`.
    """
    if ((starts < 0) | (sizes < 0) | (starts > len(data) - sizes)).any():
        raise ValueError(f"a range that isn't within {len(data)} bytes")
    if worth(int(sizes.sum()), HASH_ALONE):
        found: list[int] = _compiled(data, starts, sizes).tolist()
        return found
    whole = memoryview(data)
    spans = zip(starts.tolist(), sizes.tolist(), strict=True)
    return [hash64(whole[start : start + size]) for start, size in spans]


def _compiled(
    data: bytes | memoryview, starts: Integers, sizes: Integers, threads: int | None = None
) -> NDArray[np.uint64]:
    """The same by kernels, on all cores; a range of no bytes is a piece of no words."""
    from cmfspec.kernels import hashing
    from cmfspec.kernels.threads import spread

    pieces = np.maximum(-(-sizes // _CUT), 1)
    owners = np.repeat(np.arange(len(sizes)), pieces)
    behind = _CUT * (
        np.arange(len(owners)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    )  # bytes since its range began
    piece_starts, piece_sizes = starts[owners] + behind, np.minimum(sizes[owners] - behind, _CUT)
    firsts, folds = (behind // 8).astype(np.uint64), np.zeros(len(owners), np.uint64)
    content = np.frombuffer(data, np.uint8)
    content.flags.writeable = False  # one kernel for all buffers
    each = int(sizes.sum()) // max(1, len(owners))
    spread(
        lambda low, high: hashing.fold(content, piece_starts, piece_sizes, firsts, folds, low, high),
        len(owners),
        each,
        threads,
    )
    hashes = np.zeros(len(sizes), np.uint64)
    hashing.finish(folds, owners, sizes, hashes)
    return hashes
