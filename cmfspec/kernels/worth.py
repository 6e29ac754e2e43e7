"""When a kernel is worth its start-up.

Law: a small piece of work is done in numpy, so that a small file needs no numba; importing numba and loading a compiled
kernel costs as much as numpy needs for the larger of the sizes below. Once kernels are there, they do all but the smallest
work.
"""

from __future__ import annotations

import sys

LEAST = 64 * 2**10  # bytes of work: below, a kernel is never used (DESIGN: tensors under 64 KiB)
HASH_ALONE = 1536 * 2**20  # bytes to hash for which numba is loaded
DECODE_ALONE = 384 * 2**20  # bytes of float32 to decode for which numba is loaded


def worth(nbytes: int, alone: int) -> bool:
    """Whether kernels should do work of `nbytes`, where `alone` bytes make up for loading them."""
    return nbytes >= LEAST and (nbytes >= alone or "cmfspec.kernels.compiled" in sys.modules)
