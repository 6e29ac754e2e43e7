"""hash64 (§8) of many ranges of a buffer, piece by piece.

Law: XOR knows no order, so a range may be cut anywhere between two words, as long as each piece knows the place of its first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmfspec.kernels.compiled import inlined, kernel
from cmfspec.kernels.vector import load_u64
from cmfspec.layout import FMIX_1, FMIX_2, HASH_SALT

_MIX_1, _MIX_2, _SALT = np.uint64(FMIX_1), np.uint64(FMIX_2), np.uint64(HASH_SALT)
_SHIFT = np.uint64(33)


@inlined
def mixed(x: Any) -> Any:
    """fmix64 of a u64."""
    x ^= x >> _SHIFT
    x *= _MIX_1
    x ^= x >> _SHIFT
    x *= _MIX_2
    return x ^ (x >> _SHIFT)


@kernel
def fold(data: Any, starts: Any, sizes: Any, firsts: Any, folds: Any, low: int, high: int) -> None:
    """The pieces from `low` to `high`: folds[p] = XOR of the mixed and salted words of a piece.

    data u8[:]; starts, sizes i64[:]: where a piece lies and its bytes; firsts u64[:]: the place of its first word in its
    range; folds u64[:]: written. Only the last piece of a range may end inside a word, which is zero-extended.
    """
    for piece in range(low, high):
        start, size = starts[piece], sizes[piece]
        words = size // 8
        salt = firsts[piece] * _SALT
        folded = np.uint64(0)
        for word in range(words):
            folded ^= mixed(load_u64(data, start + 8 * word)) ^ salt
            salt += _SALT
        if size % 8:
            last = np.uint64(0)
            for byte in range(size % 8):
                last |= np.uint64(data[start + 8 * words + byte]) << np.uint64(8 * byte)
            folded ^= mixed(last) ^ salt
        folds[piece] = folded


@kernel
def finish(folds: Any, owners: Any, sizes: Any, hashes: Any) -> None:
    """hashes u64[:], zero before: the hash64 of each range, from its pieces' folds; owners i64[:]: the range of a piece;
    sizes i64[:]: bytes of a range."""
    for piece in range(len(folds)):
        hashes[owners[piece]] ^= folds[piece]
    for index in range(len(hashes)):
        hashes[index] = mixed(hashes[index] ^ np.uint64(sizes[index]))
