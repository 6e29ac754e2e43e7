"""vbit and vbit_ro: three to eight bits a weight, chosen row by row (§3.2).

Law: water is filled over log2 of the rows' amplitudes: a row twice as loud as the mean has one bit more than the budget,
snapped to the widths that there are; none has less than three. The experts of a family (layer × projection) share one
budget: `family_widths`. The scale of a group is `absmax/L`, rounded to a half before the group is divided by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.codecs.encoder import Encode, absmax, blocked, checked, log2, quants, raw, scale
from cmfspec.codecs.vbit import WIDTHS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

    Widths = NDArray[np.uint8]

BUDGET = 4.25  # bits a weight, in the mean
QUIET = np.float32(1e-12)  # the amplitude of a row that has none
FAR = np.float32(2.5)  # bits by which an expert may differ from its family
SHIFT, HALVINGS = 3.0, 40  # bits by which the family is moved until it meets the budget; steps of that search
U32 = 2**32 - 1


def snapped(wanted: F32) -> Widths:
    """The nearest width that there is; of two, the smaller."""
    away = np.abs(wanted[:, None] - np.array(WIDTHS, np.float32))
    nearest: Widths = np.array(WIDTHS, np.uint8)[away.argmin(axis=1)]
    return nearest


def loudness(weights: F32, amplify: Any = None) -> F32:
    """[rows]: log2 of the largest magnitude, times what amplifies it. Raises ValueError for an amplification that is not
    a positive number."""
    logs = log2(np.maximum(absmax(weights), QUIET))
    if amplify is None:
        return logs
    factors = np.asarray(amplify, np.float64)
    if not (np.isfinite(factors).all() and (factors > 0).all() and factors.shape in ((), logs.shape)):
        raise ValueError(f"amplify: wanted one positive number, or {len(logs)}")
    return logs + log2(factors)


def _mean(values: F32) -> np.float32:
    return np.float32(values.mean(dtype=np.float64)) if len(values) else np.float32(0)


def _budget(bits: float) -> np.float32:
    if not WIDTHS[0] <= bits <= WIDTHS[-1]:
        raise ValueError(f"bits: {bits}, wanted {WIDTHS[0]} to {WIDTHS[-1]}")
    return np.float32(bits)


def row_widths(weights: F32, bits: float = BUDGET, amplify: Any = None) -> Widths:
    """The width of each row. bits: the mean budget, 3 to 8; amplify: a positive factor for each row.

    One factor for all rows is a louder tensor: its log2 is added to the budget, at most 2.5 bits either way.
    Raises ValueError for a budget outside, or an amplification that is not a positive number.
    """
    logs = loudness(weights, amplify)
    whole = amplify is not None and np.ndim(amplify) == 0
    bias = np.clip(log2(amplify), -FAR, FAR) if whole else np.float32(0)
    return snapped(_budget(bits) + (logs - _mean(logs)) + bias)


def family_widths(tensors: Sequence[Any], bits: float = BUDGET, counts: Sequence[float] | None = None) -> list[Widths]:
    """The widths of the rows of each expert of a family, whose mean over all of them is `bits` where that can be.

    tensors: float32 matrices of one projection of one layer; counts: how often the router chose each expert (the B-field).
    Raises CannotEncode and ValueError as `encode` does, and ValueError for counts that are negative or not one for each.
    """
    budget = _budget(bits)
    if not tensors:
        return []
    logs = [loudness(checked(weights, f"family[{place}]")) for place, weights in enumerate(tensors)]
    means = np.array([_mean(rows) for rows in logs], np.float32)
    shifts = means - _mean(means)
    if counts is not None:
        if len(counts) != len(tensors) or not all(0 <= count < np.inf for count in counts):
            raise ValueError(f"counts: wanted {len(tensors)} numbers that are not negative")
        field = log2(np.asarray(counts, np.float64) + 1)
        shifts = shifts + (field - _mean(field))
    shifts = np.clip(shifts, -FAR, FAR)
    shifts -= _mean(shifts)
    wanted = [budget + (rows - mean) + shift for rows, mean, shift in zip(logs, means, shifts, strict=True)]
    everything = np.concatenate(wanted)
    low, high = -SHIFT, SHIFT
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if snapped(everything + np.float32(middle)).mean() < budget:
            low = middle
        else:
            high = middle
    return [snapped(rows + np.float32((low + high) / 2)) for rows in wanted]


def bit_rows(codes: NDArray[np.uint8], widths: Widths) -> list[bytes]:
    """Each row of codes in its own width, the high bit first."""
    rows = []
    for row, width in zip(codes, widths, strict=True):
        bits = row[:, None] >> np.arange(int(width), dtype=np.uint8)[::-1] & np.uint8(1)
        rows.append(np.packbits(bits).tobytes())
    return rows


def parts(weights: F32, widths: Widths, tensor: str) -> tuple[bytes, list[bytes]]:
    """(widths and scales, packed rows). Raises ValueError for widths that aren't one for each row, of those that are."""
    if widths.shape != (len(weights),) or not np.isin(widths, WIDTHS).all():
        raise ValueError(f"{tensor}: widths, wanted {len(weights)} of {WIDTHS}")
    tops = np.ldexp(np.float32(1), widths.astype(np.int32) - 1).reshape(-1, 1, 1) - 1
    blocks = blocked(weights)
    scales = scale(absmax(blocks), tops[:, :, 0], tensor, "group scale")
    codes = quants(blocks, scales[:, :, None], tops) + tops
    body = bit_rows(codes.reshape(weights.shape).astype(np.uint8), widths)
    return widths.astype(np.uint8).tobytes() + raw(scales), body


def _chosen(weights: F32, bits: float, amplify: Any, widths: Any) -> Widths:
    return row_widths(weights, bits, amplify) if widths is None else np.asarray(widths)


def _vbit(weights: F32, tensor: str, bits: float = BUDGET, amplify: Any = None, widths: Any = None) -> bytes:
    """bits, amplify: of `row_widths`; widths: those, given."""
    head, body = parts(weights, _chosen(weights, bits, amplify, widths), tensor)
    return head + b"".join(body)


def _vbit_ro(weights: F32, tensor: str, bits: float = BUDGET, amplify: Any = None, widths: Any = None) -> bytes:
    """With the table of rows. Raises ValueError where an offset doesn't fit it."""
    head, body = parts(weights, _chosen(weights, bits, amplify, widths), tensor)
    offsets = np.cumsum([0, *map(len, body)])
    if offsets[-1] > U32:
        raise ValueError(f"{tensor}: {offsets[-1]} bytes of rows, more than the table can address")
    return b"".join((head, offsets.astype("<u4").tobytes(), *body))


ENCODERS: dict[str, Encode] = {"vbit": _vbit, "vbit_ro": _vbit_ro}
