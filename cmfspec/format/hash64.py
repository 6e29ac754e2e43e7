"""hash64 (§8): murmur3's fmix64 over 64-bit little-endian words, salted by position, folded by XOR.

Law: `hash64(b) = fmix64(len(b) ^ XOR_i (fmix64(w_i) ^ i*SALT))`, the last word zero-extended, no words for no bytes. The
salt is outside fmix64 (ruling; vectors in the tests), so the hash is blind to the order of whole words and to pairs of
equal words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.layout import FMIX_1, FMIX_2, HASH_SALT, U64

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 1 << 16  # words at a time: temporaries stay in cache and memory stays bounded
_SMALL = 32  # words; below this, plain integers are faster than arrays


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
