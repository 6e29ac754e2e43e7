"""What encoders share (§3.2): what can be encoded at all, and scales that are halves before anything is divided by them.

Law: a decoder multiplies by the stored half, so an encoder divides by that same half: it rounds the scale first, then
quantises. NaN, infinities and scales past the largest half are refused by the tensor's name, never written. The public
writers raise a scale to 2^-14, the smallest normal half, where it is less; the text has no such floor, and
these encoders stop at 2^-24, the smallest half of all, so that quiet rows keep their precision. (Not so q4tp: see there.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.errors import CannotEncode, Fault
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

Encode = Callable[..., bytes]  # (weights: float32 of the tensor's shape, tensor: its name, **options) -> payload
HALF_MAX = float(np.finfo(np.float16).max)
TINY = np.float32(2**-14)  # the smallest normal half
LEAST = np.float32(2**-24)  # the smallest


def checked(weights: Any, tensor: str) -> F32:
    """The weights as a C-contiguous array. Raises ValueError for what isn't float32, CannotEncode for NaN and ±Inf."""
    if not isinstance(weights, np.ndarray) or weights.dtype != np.float32:
        raise ValueError(f"{tensor}: {getattr(weights, 'dtype', type(weights).__name__)}, wanted a float32 array")
    wrong = ~np.isfinite(weights)
    if wrong.any():
        where = np.unravel_index(int(wrong.argmax()), weights.shape)
        raise cannot(tensor, where, float(weights[where]), "a finite weight")
    return np.ascontiguousarray(weights).reshape(weights.shape)  # a scalar stays one


def blocked(weights: F32) -> F32:
    """[rows, cols] as [rows, groups, 32]."""
    return weights.reshape(len(weights), weights.shape[1] // GROUP, GROUP)


def cannot(tensor: str, where: Any, found: object, wanted: str) -> CannotEncode:
    """The refusal of one place of a tensor; where: its indices."""
    place = ", ".join(str(int(index)) for index in where)
    return CannotEncode(Fault("Other", "Q-GEN-004", f"{tensor}[{place}]", None, str(found), wanted))


def stored(values: Any, tensor: str, unit: str = "scale") -> F32:
    """`values` as the nearest halves, in float32. Raises CannotEncode where one is past the largest half.

    unit: what the values are, for the message.
    """
    with np.errstate(over="ignore"):
        halves = np.asarray(values).astype(np.float16).astype(np.float32)
    past = np.isinf(halves)
    if past.any():
        where = np.unravel_index(int(past.argmax()), halves.shape)
        raise cannot(f"{tensor} {unit}", where, float(np.asarray(values)[where]), f"at most {HALF_MAX:.0f}, as a half")
    return halves


def scale(top: F32, quant: Any, tensor: str, unit: str = "scale") -> F32:
    """The largest magnitude over the largest quant, as a half: zero only for zeros. Raises CannotEncode as `stored` does."""
    nearest = stored(top / quant, tensor, unit)
    return np.where(top > 0, np.maximum(nearest, LEAST), nearest)


def raw(halves: Any) -> bytes:
    """Halves, held in float32, as they are stored."""
    return bytes(halves.astype("<f2").tobytes())


def absmax(blocks: F32) -> F32:
    """The largest magnitude along the last axis; of nothing, 0."""
    top: F32 = np.abs(blocks).max(axis=-1, initial=0)
    return top


def quants(blocks: F32, scales: F32, top: Any) -> F32:
    """The nearest multiple of its scale for each weight, ties to even, within ±top; zeros where the scale is zero.

    scales: one for each block, shaped to broadcast; top: likewise, or a number.
    """
    codes = np.zeros(blocks.shape, np.float32)
    np.divide(blocks, scales, out=codes, where=scales > 0)
    np.rint(codes, out=codes)
    return np.clip(codes, -top, top, out=codes)


def summed(values: F32) -> F32:
    """Sums along the last axis in float32, from the left: as a plain loop has them, whatever the machine."""
    total = np.zeros(values.shape[:-1], np.float32)
    for place in range(values.shape[-1]):
        total += values[..., place]
    return total


def log2(values: Any) -> F32:
    """log2 in float32, computed wider and rounded once: the same on every machine."""
    return np.log2(np.asarray(values, np.float64)).astype(np.float32)


def share(keep: float, total: int) -> int:
    """How many of `total` weights a share of them is: to the nearest, halves up. Raises ValueError past a quarter."""
    if not 0 <= keep <= 0.25:
        raise ValueError(f"keep: {keep}, wanted 0 to 0.25")
    return int(np.floor(np.float32(total) * np.float32(keep) + np.float32(0.5)))


def largest(magnitudes: F32, count: int) -> NDArray[np.int64]:
    """Flat places of the `count` largest, ascending; of equal ones, the earlier."""
    flat = magnitudes.reshape(-1)
    if count == 0:
        return np.zeros(0, np.int64)
    least = np.partition(flat, flat.size - count)[flat.size - count]
    above, ties = np.flatnonzero(flat > least), np.flatnonzero(flat == least)
    return np.sort(np.concatenate((above, ties[: count - len(above)])))
