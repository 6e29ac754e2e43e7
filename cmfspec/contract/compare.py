"""When two answers are the same: the one place where a tolerance is written (rulings: «decoded values»).

Law: finiteness is compared before any tolerance. ±0 are equal, any NaN equals any NaN, and a value may be off by two units
in the last place; a q4tp tensor by 1e-5 of its largest value, since its ladder may be built in two ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ULPS = 2
Q4TP_RELATIVE = 1e-5
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


def _ordinal(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Floats as integers in the same order, ±0 both 0."""
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
