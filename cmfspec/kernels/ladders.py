"""The scales of q4tp (§3.2): rungs of a ladder per row, five bits each.

Law: a rung is the one below times the row's ratio, as in the formula, in that order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmfspec.kernels.compiled import kernel

RUNGS, BITS = 32, 5


@kernel
def climb(codes: Any, stride: int, powers: Any, scales: Any, low: int, high: int) -> None:
    """scales f32[rows, groups]: of the rows from `low` to `high`. codes u8[:]: rows of `stride` bytes, five bits a group, the
    low bit first; powers f32[:]: for each row its first rung and its ratio."""
    ladder = np.empty(RUNGS, np.float32)
    for row in range(low, high):
        ladder[0] = powers[2 * row]
        for rung in range(1, RUNGS):
            ladder[rung] = ladder[rung - 1] * powers[2 * row + 1]
        for group in range(scales.shape[1]):
            byte, shift = row * stride + group * BITS // 8, group * BITS % 8
            code = int(codes[byte]) >> shift
            if shift + BITS > 8:  # else the next byte may not be there
                code |= int(codes[byte + 1]) << (8 - shift)
            scales[row, group] = ladder[code & (RUNGS - 1)]
