"""What an encoder must keep: laws about (weights, payload), each with the id of its rule (§3.1, §3.2).

Law: bounds and invariants, never bytes: two encoders that differ in rounding, floor or search are both right. What a law
asks is read out of the payload: a scale against the weights that it is for, quants against the scale that is *stored*.
The numbers are in `cmfspec.contract.compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmfspec.contract import compare
from cmfspec.contract.outcome import WrongValue
from cmfspec.layout import GROUP
from conformance import payloads
from conformance.encoded import Encoded, demand, within
from conformance.losses import LOSSES
from conformance.payloads import loudness

OF_ANY_SHAPE = ("f16", "f32")  # f32 quantises nothing, and is asked for by name


# --- scales, and quants against them -------------------------------------------------------------------------------


def _is_scale(stored: Any, ideal: Any, live: Any, slack: float = 0.0) -> Any:
    """Whether a stored half is this scale: within its last place, or at the floor above it. Dead: any finite number."""
    near = (
        np.abs(stored - ideal)
        <= np.maximum(ideal * 2 * compare.HALF_ROUNDING, 2 * compare.HALF_SMALLEST) + slack * ideal
    )
    floored = (stored == compare.SCALE_FLOOR) & (ideal < compare.SCALE_FLOOR)
    return np.where(live, near | floored, np.isfinite(stored))


def _absmax_scale(case: Encoded) -> None:
    """`scale = absmax/top`, and every quant the nearest to it."""
    units = payloads.units(case.name, case.weights, case.payload)
    top = np.abs(units.weights).max(axis=1, initial=0)
    ideal = top / units.tops
    demand(
        _is_scale(units.scales, ideal, top > 0),
        "a scale of absmax over the top quant, as a half",
        lambda at: f"{units.scales[at]:.8g} for {ideal[at]:.8g} of scale {at[0]}",
    )
    scales = units.scales[:, None]
    clamped = np.abs(units.weights) - units.tops[:, None] * scales
    lost = np.abs(units.fold(case.values) - units.weights)
    demand(
        lost <= np.maximum(compare.NEAREST * scales, clamped),
        "the nearest multiple of the stored scale",
        lambda at: f"off by {lost[at]:.8g} with scale {scales[at[0], 0]:.8g}, at {at[1]} of scale {at[0]}",
    )


def _zero_units(case: Encoded) -> None:
    units = payloads.units(case.name, case.weights, case.payload)
    dead = ~np.abs(units.weights).any(axis=1)
    values = units.fold(case.values)
    demand(~dead | (values == 0).all(axis=1), "zeros of zeros", lambda at: f"{values[at[0]][:4]} … of scale {at[0]}")


def _two_fields(case: Encoded) -> None:
    """Away from the clamp, half a quant of row times column; or all of it where the row's scale is less than any half."""
    quants, rows, columns = payloads.two_fields(case.weights.shape, case.payload)
    step = rows[:, None] * columns
    inside = np.abs(quants) < payloads.TOP_8
    allowed = np.where(step > 0, compare.NEAREST * step, payloads.TOP_8 * compare.HALF_SMALLEST * columns)
    within(case, np.where(inside, allowed, np.inf), "the nearest multiple of row times column")


def _padding(case: Encoded) -> None:
    nibbles = payloads.nibbles(case.payload, -(-case.weights.size // GROUP)).reshape(-1)[case.weights.size :]
    demand(nibbles == 8, "nibble 8 where the last group is filled up", lambda at: f"nibble {nibbles[at]}")


# --- q4tp ----------------------------------------------------------------------------------------------------------


def _covered(case: Encoded) -> None:
    """The ladder reaches the loudest group and the quietest, give or take how its ends were rounded."""
    q = payloads.ladders(case.weights, case.payload)
    rows = q.live.any(axis=1)
    high = np.where(q.live, q.logs, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(q.live, np.maximum(q.logs, np.log2(compare.SCALE_FLOOR)), np.inf).min(axis=1, initial=np.inf)
    ends = np.sort(np.stack((q.lo, q.lo + (payloads.RUNGS - 1) * q.step)), axis=0)
    demand(
        ~rows | ((ends[1] >= high - q.slack) & (ends[0] <= low + q.slack)),
        "a ladder from the smallest log2 scale of the row to the largest",
        lambda at: f"{ends[0][at]:.6g} to {ends[1][at]:.6g} for {low[at]:.6g} to {high[at]:.6g} in row {at[0]}",
    )


def _nearest_rung(case: Encoded) -> None:
    """In the stored ladder; or one that leaves no larger error."""
    q = payloads.ladders(case.weights, case.payload)
    rungs = q.lo[:, None, None] + q.step[:, None, None] * np.arange(payloads.RUNGS)
    right = ~q.live
    for floor in (-np.inf, np.log2(compare.SCALE_FLOOR)):
        away = np.abs(np.maximum(q.logs, floor)[:, :, None] - rungs)
        chosen = np.take_along_axis(away, q.codes[:, :, None], axis=2)[:, :, 0]
        right |= chosen <= away.min(axis=2, initial=np.inf) + 2 * compare.LOG_ROUNDING
        scales = np.take_along_axis(q.rungs, away.argmin(axis=2), axis=1)
        best = np.clip(np.rint(q.blocks / scales[:, :, None]), -8, 7) * scales[:, :, None]
        error = ((q.blocks - best) ** 2).sum(axis=2)
        stored = ((q.blocks - q.quants * q.scales[:, :, None]) ** 2).sum(axis=2)
        right |= stored <= error * (1 + compare.RUNG_ERROR)
    demand(
        right,
        "the nearest rung of the stored ladder, or one with no larger error",
        lambda at: (
            f"code {q.codes[at]} for log2 scale {q.logs[at]:.6g}, row {at[0]} from {q.lo[at[0]]} by {q.step[at[0]]}"
        ),
    )


def _nearest_nibble(case: Encoded) -> None:
    q = payloads.ladders(case.weights, case.payload)
    exact = np.clip(q.blocks / q.scales[:, :, None], -8, 7)
    demand(
        np.abs(q.quants - exact) <= compare.LADDER_NEAREST,
        "nibbles against the scale that a reader rebuilds",
        lambda at: f"nibble {q.quants[at] + 8:.0f} for {exact[at] + 8:.4f} at {at[2]} of group {at[1]} of row {at[0]}",
    )


# --- vbit ----------------------------------------------------------------------------------------------------------


def _floor_of_three(case: Encoded) -> None:
    widths = payloads.widths(case.payload, len(case.weights))
    if len(widths) < len(case.weights):
        raise WrongValue(f"{len(case.weights)} widths", f"{len(widths)} bytes")
    demand(widths >= payloads.WIDTHS[0], "three bits or more", lambda at: f"{widths[at]} in row {at[0]}")


def _water(case: Encoded) -> None:
    """A louder row has no fewer bits; rows far apart have not all the same; and the mean of the widths is the budget, or
    what clamping to 3 and 8 leaves of it."""
    widths = payloads.widths(case.payload, len(case.weights)).astype(np.float64)
    if not len(widths):
        return
    loud = loudness(case.weights, case.options.get("amplify"))
    order = np.argsort(loud, kind="stable")
    before = np.searchsorted(loud[order], loud - compare.SAME_AMPLITUDE)  # how many are clearly quieter
    most = np.concatenate(([0.0], np.maximum.accumulate(widths[order])))
    demand(
        widths >= most[before],
        "no fewer bits for a louder row",
        lambda at: f"{widths[at]:.0f} in row {at[0]}, and {most[before[at]]:.0f} in a quieter one",
    )
    budget = case.options.get("bits", payloads.BUDGET)
    level = np.clip(budget + loud - loud.mean(), payloads.WIDTHS[0], payloads.WIDTHS[-1])
    if np.ptp(level) >= compare.WATER_BITS and np.ptp(widths) == 0:
        raise WrongValue("more bits for the loudest row than for the quietest", f"{widths[0]:.0f} for all")
    mean, clamped = widths.mean(), level.mean()
    if not min(budget, clamped) - compare.BUDGET_BITS <= mean <= max(budget, clamped) + compare.BUDGET_BITS:
        raise WrongValue(f"about {budget} bits in the mean", f"{mean:.3f}")


# --- one bit, three states -----------------------------------------------------------------------------------------


def _mean_scale(case: Encoded) -> None:
    """The mean magnitude of those of a group that aren't outliers."""
    groups = payloads.sign_groups(case.name, case.weights, case.payload)
    count = groups.inside.sum(axis=1)
    ideal = np.where(groups.inside, np.abs(groups.weights), 0).sum(axis=1) / np.maximum(count, 1)
    demand(
        _is_scale(groups.scales, ideal, ideal > 0, compare.FLOAT_SUM) & (groups.scales >= 0),
        "the mean magnitude of the group's weights, outliers aside",
        lambda at: f"{groups.scales[at]:.8g} for {ideal[at]:.8g} of group {at[0]}",
    )


def _ascending(case: Encoded) -> None:
    where = payloads.sign_groups(case.name, case.weights, case.payload).outliers.astype(np.int64)
    demand(np.diff(where) > 0, "outliers in rising order", lambda at: f"index {where[at[0] + 1]} after {where[at]}")


def _nothing_below(case: Encoded) -> None:
    rows, columns, codes = payloads.ternary(case.weights.shape, case.payload)
    under = codes[rows, columns]
    demand(under == 0, "code 0 under an outlier", lambda at: f"{under[at]} at [{rows[at]}, {columns[at]}]")


def _lost(case: Encoded) -> None:
    LOSSES[case.name](case)


def _finite(case: Encoded) -> None:
    """What is finite stays so; and what isn't is refused, or comes back where it was and nowhere else."""
    finite = np.isfinite(case.weights)
    demand(
        np.isfinite(case.values) == finite,
        "a refusal, or finite values exactly where the weights are finite",
        lambda at: f"{case.values[at]} for {case.weights[at]} at {list(at)}",
    )


def _always_f16(case: Encoded) -> None:
    shape = case.weights.shape
    if (len(shape) < 2 or case.weights.size < GROUP) and case.name not in OF_ANY_SHAPE:
        raise WrongValue(f"f16 for a tensor of {list(shape)}", case.name)


@dataclass(frozen=True)
class Law:
    """id: of the rule; encodings: for which it is a law; check: raises WrongValue; decodes: whether it is about payloads
    that decode, so that one that doesn't breaks it; asks: whether it has anything to say about this case."""

    id: str
    encodings: tuple[str, ...]
    check: Callable[[Encoded], None]
    decodes: bool = True
    asks: Callable[[Encoded], bool] = lambda case: bool(np.isfinite(case.weights).all())


def _plain(case: Encoded) -> bool:
    return "amplify" not in case.options


def _amplified(case: Encoded) -> bool:
    return "amplify" in case.options


def _always(_: Encoded) -> bool:
    return True


EVERY = tuple(LOSSES)
VBITS = ("vbit", "vbit_ro")
LAWS: tuple[Law, ...] = (
    Law("DT-006", EVERY, _always_f16, decodes=False),
    Law("Q-GEN-004", EVERY, _finite, asks=_always),
    Law("Q-Q8ROW-003", ("q8_row",), _absmax_scale),
    Law("Q-Q8ROW-006", ("q8_row",), _zero_units),
    Law("Q-Q82F-003", ("q8_2f",), _two_fields),
    Law("Q-Q4B-003", ("q4_block", "q4_tiled"), _absmax_scale),
    Law("Q-Q4B-004", ("q4_block",), _padding),
    Law("Q-Q4TP-005", ("q4tp",), _covered),
    Law("Q-Q4TP-006", ("q4tp",), _nearest_rung),
    Law("Q-Q4TP-007", ("q4tp",), _nearest_nibble),
    Law("Q-Q4TP-008", ("q4tp",), _zero_units),
    Law("Q-VBIT-007", VBITS, _floor_of_three, decodes=False),
    Law("Q-VBIT-008", VBITS, _water, asks=_plain),
    Law("Q-VBIT-010", VBITS, _water, asks=_amplified),
    Law("Q-Q1-003", ("q1",), _mean_scale),
    Law("Q-Q1S-006", ("q1s",), _ascending),
    Law("Q-Q1S-007", ("q1s",), _mean_scale),
    Law("Q-Q1T-008", ("q1t",), _nothing_below),
    Law("Q-GEN-003", EVERY, _lost),
)


def laws_for(case: Encoded) -> tuple[Law, ...]:
    """The laws that have something to say about a case. Weights that aren't all finite are held to Q-GEN-004 alone."""
    return tuple(law for law in LAWS if case.name in law.encodings and law.asks(case))


def judge(name: str, weights: Any, payload: bytes, *, laws: Iterable[str] | None = None, **options: Any) -> None:
    """Hold one payload to the laws of its encoding.

    name: of the encoding; weights: float32 of the tensor's shape; laws: ids, all if None; options: what the encoder was
    told (vbit: bits, amplify). Raises WrongValue; ValueError where no law, or not each that is named, has anything to say.
    """
    case = Encoded(name, weights, payload, options)
    asked = laws_for(case)
    if laws is not None:
        wanted = set(laws)
        asked = tuple(law for law in asked if law.id in wanted)
        missing = sorted(wanted - {law.id for law in asked})
        if missing:
            raise ValueError(f"{', '.join(missing)}: nothing to say about this {name}")
    if not asked:
        raise ValueError(f"no law about {name}")
    with np.errstate(all="ignore"):
        for law in asked:
            if law.decodes:
                case.must_decode()
            law.check(case)


def judge_family(
    tensors: Sequence[Any], encoded: Sequence[bytes], bits: float = payloads.BUDGET, name: str = "vbit"
) -> None:
    """Q-VBIT-009: experts share a budget. tensors: matrices of one projection of one layer; encoded: their payloads.

    A clearly louder expert has no fewer bits in the mean; where some are loud and some quiet, the loudest has clearly more
    than the quietest; and the family's mean is the budget. name: of the encoding. Raises WrongValue; ValueError for no
    experts.
    """
    if not tensors:
        raise ValueError("a family of no experts")
    with np.errstate(all="ignore"):
        for weights, payload in zip(tensors, encoded, strict=True):
            Encoded(name, weights, payload).must_decode()
        widths = [payloads.widths(payload, len(w)) for payload, w in zip(encoded, tensors, strict=True)]
        loud = np.array([loudness(weights).mean() for weights in tensors])
        means = np.array([rows.mean() for rows in widths])
        mean = np.concatenate(widths).mean()
    if abs(mean - bits) > compare.BUDGET_BITS:
        raise WrongValue(f"a family of about {bits} bits in the mean", f"{mean:.3f}")
    least, most = payloads.WIDTHS[0] + compare.DUE_BITS, payloads.WIDTHS[-1] - compare.DUE_BITS
    if not least < mean < most:
        return  # nearly all are at an end: there is nothing to share
    order = np.argsort(loud, kind="stable")
    before = np.searchsorted(loud[order], loud - compare.LOUDER, side="right")  # how many are clearly quieter
    best = np.concatenate(([0.0], np.maximum.accumulate(means[order])))[before]
    demand(
        means >= best - compare.DUE_BITS,
        "no fewer bits for a louder expert",
        lambda at: f"{means[at]:.3f} for expert {at[0]}, and {best[at]:.3f} for a quieter one",
    )
    apart = min(loud.max() - loud.mean(), loud.mean() - loud.min()) >= compare.LOUDER
    if apart and means[order[-1]] < means[order[0]] + compare.DUE_BITS:
        raise WrongValue(
            "more bits for the loudest expert than for the quietest",
            f"{means[order[-1]]:.3f} and {means[order[0]]:.3f}",
        )
