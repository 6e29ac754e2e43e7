"""f32, f16 and bf16: the nearest value of that width (§3.1).

Law: rounded to the nearest, ties to even, subnormals too; what would round to an infinity is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.encoder import Encode, cannot, raw, stored

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


def _f32(weights: F32, tensor: str) -> bytes:  # noqa: ARG001
    return weights.astype("<f4").tobytes()


def _f16(weights: F32, tensor: str) -> bytes:
    return raw(stored(weights, tensor, "weight"))


def _bf16(weights: F32, tensor: str) -> bytes:
    """The upper half of a float32, to which half of the lower one's range is added before that is cut off."""
    bits = weights.reshape(-1).view(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    past = (upper & 0x7F80) == 0x7F80
    if past.any():
        flat = int(past.argmax())
        where = np.unravel_index(flat, weights.shape)
        raise cannot(f"{tensor} weight", where, float(weights[where]), "what bf16 holds")
    return upper.astype("<u2").tobytes()


ENCODERS: dict[str, Encode] = {"f32": _f32, "f16": _f16, "bf16": _bf16}
