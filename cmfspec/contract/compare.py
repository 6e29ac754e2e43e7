"""When two answers are the same: the one place where a tolerance is written (rulings: «decoded values»).

Law: finiteness is compared before any tolerance. ±0 are equal, any NaN equals any NaN, and a value may be off by two units
in the last place; a q4tp tensor by 1e-5 of its largest value, since its ladder may be built in two ways.

An encoder is held to bounds, never to bytes: its scales are the text's, give or take the last place of a half; its quants are
the nearest to the *stored* scale; and what is lost is no more than these two together cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ULPS = 2
Q4TP_RELATIVE = 1e-5

HALF_ROUNDING = 2.0**-11  # share of a value that the nearest half may be off by
HALF_SMALLEST = 2.0**-25  # and what it may be off by where halves are subnormal
BF16_ROUNDING, BF16_SMALLEST = 2.0**-8, 2.0**-134  # the same of bf16
SCALE_FLOOR = 2.0**-14  # to which a writer may raise a smaller scale: the smallest normal half
NEAREST = 0.5 * (1 + 2.0**-10)  # of a scale: how far the nearest quant may be, with what float32 adds
RANGE_USED = 0.25  # of the top quant: what the largest of a row must reach where a writer is free to choose the scale
LADDER_NEAREST = 0.5 + 1e-3  # of a rung of q4tp, which may be built in two ways
LOG_ROUNDING = 7.05e-4  # what rounding a scale to a half does to its log2
RUNG_ERROR = 1e-4  # share by which a rung that isn't the nearest may be worse in squared error
SAME_AMPLITUDE = 1e-3  # in log2: rows that are as loud as each other
SIGNS_LOST = (
    4.0  # squared weights: with (|w| + s)² for each, where a sign follows the error of those before, not its weight
)
BUDGET_BITS = 1.0  # by which the mean width may miss its budget: there is no width of 7
WATER_BITS = 2.0  # between the widths that the text's budget means for two rows: they can't be the same
LOUDER, DUE_BITS = 1.0, 0.25  # of experts: what is clearly louder, in log2; and clearly more bits, in the mean
FLOAT_SUM = 2.0**-18  # share that a float32 sum of 32 magnitudes may be off by

LOGITS = 1e-4  # absolute, float32 logits against an oracle's, or two ways through one model (ENG-001)
LOGITS_GDN = 3e-4  # where a layer is a Gated DeltaNet, whose norms amplify rounding
NLL_ROUNDED = 0.05  # nats a token, of an engine that rounds activations (ENG-003)
NLL_RELATIVE = 1e-4  # of a mean negative log likelihood (ENG-004)
RESIDENT_SLACK = 64 * 2**20  # bytes of resident memory that a hostile file may cost over a valid one (ENV-023)


def first_difference(got: NDArray[np.float32], want: NDArray[np.float32], relative: float = 0.0) -> int | None:
    """Flat index of the first value that is not the same, None if all are. Both float32 of one length.

    relative: allowed difference as a share of the largest wanted value, in place of the units in the last place.
    """
    both_nan = np.isnan(got) & np.isnan(want)
    with np.errstate(invalid="ignore", over="ignore"):
        if relative:
            top = float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
            close = np.abs(got.astype(np.float64) - want) <= relative * top
        else:
            close = np.abs(_ordinal(got) - _ordinal(want)) <= ULPS
    close &= np.isfinite(got) & np.isfinite(want)
    same = both_nan | close | (got == want)
    return None if same.all() else int(np.argmin(same))


def logits_differ(got: NDArray[np.float32], want: NDArray[np.float32], tolerance: float) -> str:
    """Where two arrays of logits of one shape are furthest apart, as a sentence; empty if that is within the tolerance.
    What isn't finite is within none."""
    if not np.isfinite(got).all():
        row, column = np.argwhere(~np.isfinite(got))[0]
        return f"logits[{row}, {column}] = {got[row, column]}"
    off = np.abs(got.astype(np.float64) - want)
    row, column = np.unravel_index(int(off.argmax()), off.shape)
    far = float(off[row, column])
    return f"logits[{row}, {column}] = {got[row, column]}, {far:.3g} off" if far > tolerance else ""


def nll(logits: NDArray[np.float32], tokens: Sequence[int]) -> float:
    """The sum of −log softmax of each token but the first, by the row before it; float64."""
    rows = logits[: len(tokens) - 1].astype(np.float64)
    top = rows.max(axis=1, keepdims=True)
    total = np.log(np.exp(rows - top).sum(axis=1)) + top[:, 0]
    return float((total - rows[np.arange(len(rows)), list(tokens[1:])]).sum())


def same_likelihood(got: float, want: float) -> bool:
    """Whether two sums of negative log likelihood are the same, of as many tokens."""
    return bool(np.isfinite(got)) and abs(got - want) <= NLL_RELATIVE * abs(want)


def _ordinal(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Floats as integers in the same order, ±0 both 0."""
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def largest_difference(got: NDArray[np.float32], want: NDArray[np.float32]) -> float:
    """Of two arrays of logits; infinite if their shapes differ or anything in them isn't finite."""
    if got.shape != want.shape or not (np.isfinite(got).all() and np.isfinite(want).all()):
        return float("inf")
    return float(np.abs(got.astype(np.float64) - want).max(initial=0.0))
