"""Numbers that follow from a word, the same everywhere and for ever: what recipes are made of."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def noise(seed: str, size: int) -> bytes:
    """`size` bytes that follow from the seed, the same everywhere and for ever."""
    blocks = (hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def floats(seed: str, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """`count` distinct-looking finite floats in (−2, 2), each exact in a half."""
    raw = np.frombuffer(noise(seed, 2 * count), "<u2")
    return ((raw % 4001).astype(np.float32) - 2000) / np.float32(1024)
