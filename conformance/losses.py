"""What an encoding may lose, by its name: the round trip of Q-GEN-003 (§3.1, §3.2).

Law: bounded by the weights alone wherever the text says how a scale is made: half a quant of that scale, and what rounding
the scale to a half makes of the largest quant. Ternary rows are to lose no more than zeros would; one-bit rows
may carry their errors along, and are held exactly only where one magnitude says it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cmfspec.contract import compare
from cmfspec.layout import GROUP
from conformance import payloads
from conformance.encoded import Encoded, demand, within


def _halves(case: Encoded) -> Any:
    return np.abs(case.wide) * compare.HALF_ROUNDING + compare.HALF_SMALLEST


def _lost_in_f32(case: Encoded) -> None:
    within(case, 0.0, "the weight itself")


def _lost_in_f16(case: Encoded) -> None:
    within(case, _halves(case), "the nearest half")


def _lost_in_bf16(case: Encoded) -> None:
    within(case, np.abs(case.wide) * compare.BF16_ROUNDING + compare.BF16_SMALLEST, "the nearest bf16")


def _lost_in_units(case: Encoded) -> None:
    """Half a scale, and what rounding the scale to a half makes of the top quant; nothing of zeros."""
    units = payloads.units(case.name, case.weights, case.payload)
    top = np.abs(units.weights).max(axis=1, initial=0)
    scale = np.maximum(top / units.tops, compare.SCALE_FLOOR)
    allowed = scale * (0.5 + units.tops * compare.HALF_ROUNDING)
    lost = np.abs(units.fold(case.values) - units.weights)
    demand(
        lost <= np.where(top > 0, allowed, 0)[:, None],
        "half a scale at most",
        lambda at: f"off by {lost[at]:.8g}, more than {allowed[at[0]]:.8g}, at {at[1]} of scale {at[0]}",
    )


def _lost_in_two_fields(case: Encoded) -> None:
    """Half of the stored row times column; and those are no larger than the row's quants need."""
    quants, rows, columns = payloads.two_fields(case.weights.shape, case.payload)
    live = np.abs(case.weights).any(axis=1)
    step = rows * (0.5 + payloads.TOP_8 * compare.HALF_ROUNDING) + payloads.TOP_8 * compare.HALF_SMALLEST
    within(case, np.where(live, step, 0)[:, None] * columns, "half of row times column at most")
    used = np.abs(quants).max(axis=1, initial=0)
    least = payloads.TOP_8 * compare.RANGE_USED
    demand(
        (used >= least) | ~live | (rows < compare.SCALE_FLOOR),
        f"quants of which the largest is {least:.0f} or more",
        lambda at: f"{used[at]} in row {at[0]}",
    )


def _lost_in_ladders(case: Encoded) -> None:
    """Root mean square of a group: half of the rung above, and what the rung below cuts off."""
    q = payloads.ladders(case.weights, case.payload)
    top = np.abs(q.blocks).max(axis=2, initial=0)
    far = (q.span / (payloads.RUNGS - 1) / 2 + 2 * q.slack)[:, None]
    above = np.maximum(top / payloads.TOP_4, compare.SCALE_FLOOR) * np.exp2(far)
    allowed = above / 2 + top * (1 - np.exp2(-far))
    lost = np.sqrt((case.lost.reshape(q.blocks.shape) ** 2).mean(axis=2))
    demand(
        lost <= np.where(top > 0, allowed, 0),
        "an error of half a rung",
        lambda at: f"{lost[at]:.8g}, more than {allowed[at]:.8g}, in group {at[1]} of row {at[0]}",
    )


def _by_rows(case: Encoded, inside: Any, times: float) -> None:
    """By rows: squared error against squared weight, of what isn't an outlier; and those are the nearest halves."""
    within(case, np.where(inside, np.inf, _halves(case)), "the nearest half of an outlier")
    error = np.where(inside, case.lost, 0) ** 2
    power = np.where(inside, case.wide, 0) ** 2
    spare = case.weights.shape[1] * compare.SCALE_FLOOR**2
    demand(
        error.sum(axis=1) <= times * power.sum(axis=1) * (1 + 2 * compare.HALF_ROUNDING) + spare,
        f"a squared error of no more than {times:g} times what zeros would have",
        lambda at: f"{error[at].sum():.6g} of {power[at].sum():.6g} in row {at[0]}",
    )


def _two_levels(case: Encoded) -> None:
    """A row whose groups have one magnitude each, and that one a half, comes back as it was."""
    blocks = case.weights.reshape(len(case.weights), -1, GROUP)
    sizes = np.abs(blocks)
    level = sizes[:, :, :1]
    plain = (sizes == level) & (level > 0) & (level.astype(np.float16).astype(np.float32) == level)
    rows = plain.all(axis=(1, 2))
    within(case, np.where(rows, 0.0, np.inf)[:, None], "signs and one magnitude, unchanged")


def _lost_in_signs(case: Encoded) -> None:
    groups = payloads.sign_groups(case.name, case.weights, case.payload)
    _by_rows(case, groups.inside.reshape(case.weights.shape), compare.SIGNS_LOST)
    _two_levels(case)


def _lost_in_ternary(case: Encoded) -> None:
    rows, columns, _ = payloads.ternary(case.weights.shape, case.payload)
    inside = np.ones(case.weights.shape, np.bool_)
    inside[rows, columns] = False
    _by_rows(case, inside, 1.0)


LOSSES: dict[str, Callable[[Encoded], None]] = {
    "f32": _lost_in_f32,
    "f16": _lost_in_f16,
    "bf16": _lost_in_bf16,
    "q8_2f": _lost_in_two_fields,
    "q4tp": _lost_in_ladders,
    "q1": _lost_in_signs,
    "q1s": _lost_in_signs,
    "q1t": _lost_in_ternary,
    **dict.fromkeys(("q8_row", "q4_block", "q4_tiled", "vbit", "vbit_ro"), _lost_in_units),
}
