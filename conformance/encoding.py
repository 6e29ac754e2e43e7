"""What an encoder must keep: laws about (weights, payload), each with the id of its rule (§3.1, §3.2).

Law: bounds and invariants, never bytes: two encoders that differ in rounding, floor or search are both right. What a law
asks is read out of the payload: a scale against the weights that it is for, quants against the scale that is *stored*.
The numbers are in `cmfspec.contract.compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.contract import compare
from cmfspec.contract.outcome import WrongValue
from cmfspec.errors import Refusal
from cmfspec.layout import DTYPE_IDS, GROUP
from conformance import payloads
from conformance.payloads import loudness

OF_ANY_SHAPE = ("f16", "f32")  # f32 quantises nothing, and is asked for by name


@dataclass(frozen=True)
class Encoded:
    """One answer of an encoder.

    name: of the encoding; weights: float32 that were to be encoded; payload: what came; options: what the encoder was
    told besides (vbit: bits, amplify).
    """

    name: str
    weights: Any
    payload: bytes
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def values(self) -> Any:
        """What the payload decodes to. Raises WrongValue if to nothing."""
        codec, shape = CODECS[DTYPE_IDS[self.name]], self.weights.shape
        wanted = codec.shape_fault(len(shape), shape[-1] if shape else 1)
        if wanted:
            raise WrongValue(f"{self.name} for {wanted}", f"a tensor of {list(shape)}")
        try:
            return codec.decode(memoryview(self.payload), shape)
        except Refusal as refusal:
            raise WrongValue(f"a payload of {self.name} for {list(self.weights.shape)}", str(refusal)) from refusal

    @cached_property
    def wide(self) -> Any:
        """The weights as float64, so that a bound isn't rounded."""
        return self.weights.astype(np.float64)

    @cached_property
    def lost(self) -> Any:
        """How far each value is off."""
        return np.abs(self.values.astype(np.float64) - self.wide)


@dataclass(frozen=True)
class Law:
    """id: of the rule; encodings: for which it is a law; check: raises WrongValue; decodes: whether it is about payloads
    that decode, so that one that doesn't breaks it."""

    id: str
    encodings: tuple[str, ...]
    check: Callable[[Encoded], None]
    decodes: bool = True


def judge(name: str, weights: Any, payload: bytes, *, laws: Iterable[str] | None = None, **options: Any) -> None:
    """Hold one payload to the laws of its encoding.

    name: of the encoding; weights: float32 of the tensor's shape; laws: ids, all if None; options: what the encoder was
    told (bits, amplify). Weights that aren't all finite are held to Q-GEN-004 alone. Raises WrongValue.
    """
    case = Encoded(name, weights, payload, options)
    wanted = None if laws is None else set(laws)
    finite = bool(np.isfinite(weights).all())
    with np.errstate(all="ignore"):
        for law in LAWS:
            if name in law.encodings and (wanted is None or law.id in wanted) and (finite or law.id == "Q-GEN-004"):
                if law.decodes:
                    _ = case.values
                law.check(case)


# --- how a law says no ---------------------------------------------------------------------------------------------


def _demand(right: Any, expected: str, got: Callable[[tuple[int, ...]], str]) -> None:
    """Raise WrongValue for the first place where `right` is not true. got: place to what is there."""
    wrong = ~np.asarray(right)
    if wrong.any():
        place = tuple(int(axis) for axis in np.unravel_index(int(wrong.argmax()), wrong.shape))
        raise WrongValue(expected, got(place))


def _within(case: Encoded, allowed: Any, what: str) -> None:
    allowed = np.broadcast_to(allowed, case.lost.shape)
    _demand(
        case.lost <= allowed,  # NaN is not
        what,
        lambda at: (
            f"{case.values[at]:.8g} for {case.weights[at]:.8g} at {list(at)}, off by more than {allowed[at]:.3g}"
        ),
    )


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
    _demand(
        _is_scale(units.scales, ideal, top > 0),
        "a scale of absmax over the top quant, as a half",
        lambda at: f"{units.scales[at]:.8g} for {ideal[at]:.8g} of scale {at[0]}",
    )
    scales = units.scales[:, None]
    clamped = np.abs(units.weights) - units.tops[:, None] * scales
    lost = np.abs(units.fold(case.values) - units.weights)
    _demand(
        lost <= np.maximum(compare.NEAREST * scales, clamped),
        "the nearest multiple of the stored scale",
        lambda at: f"off by {lost[at]:.8g} with scale {scales[at[0], 0]:.8g}, at {at[1]} of scale {at[0]}",
    )


def _zero_units(case: Encoded) -> None:
    units = payloads.units(case.name, case.weights, case.payload)
    dead = ~np.abs(units.weights).any(axis=1)
    values = units.fold(case.values)
    _demand(~dead | (values == 0).all(axis=1), "zeros of zeros", lambda at: f"{values[at[0]][:4]} … of scale {at[0]}")


def _two_fields(case: Encoded) -> None:
    """Away from the clamp, half a quant of row times column; or all of it where the row's scale is less than any half."""
    quants, rows, columns = payloads.two_fields(case.weights.shape, case.payload)
    step = rows[:, None] * columns
    inside = np.abs(quants) < payloads.TOP_8
    allowed = np.where(step > 0, compare.NEAREST * step, payloads.TOP_8 * compare.HALF_SMALLEST * columns)
    _within(case, np.where(inside, allowed, np.inf), "the nearest multiple of row times column")


def _padding(case: Encoded) -> None:
    nibbles = payloads.nibbles(case.payload, -(-case.weights.size // GROUP)).reshape(-1)[case.weights.size :]
    _demand(nibbles == 8, "nibble 8 where the last group is filled up", lambda at: f"nibble {nibbles[at]}")


# --- q4tp ----------------------------------------------------------------------------------------------------------


def _covered(case: Encoded) -> None:
    """The ladder reaches the loudest group and the quietest, give or take how its ends were rounded."""
    q = payloads.ladders(case.weights, case.payload)
    rows = q.live.any(axis=1)
    high = np.where(q.live, q.logs, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(q.live, np.maximum(q.logs, np.log2(compare.SCALE_FLOOR)), np.inf).min(axis=1, initial=np.inf)
    ends = np.sort(np.stack((q.lo, q.lo + (payloads.RUNGS - 1) * q.step)), axis=0)
    _demand(
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
    _demand(
        right,
        "the nearest rung of the stored ladder, or one with no larger error",
        lambda at: (
            f"code {q.codes[at]} for log2 scale {q.logs[at]:.6g}, row {at[0]} from {q.lo[at[0]]} by {q.step[at[0]]}"
        ),
    )


def _nearest_nibble(case: Encoded) -> None:
    q = payloads.ladders(case.weights, case.payload)
    exact = np.clip(q.blocks / q.scales[:, :, None], -8, 7)
    _demand(
        np.abs(q.quants - exact) <= compare.LADDER_NEAREST,
        "nibbles against the scale that a reader rebuilds",
        lambda at: f"nibble {q.quants[at] + 8:.0f} for {exact[at] + 8:.4f} at {at[2]} of group {at[1]} of row {at[0]}",
    )


# --- vbit ----------------------------------------------------------------------------------------------------------


def _floor_of_three(case: Encoded) -> None:
    widths = payloads.widths(case.payload, len(case.weights))
    if len(widths) < len(case.weights):
        raise WrongValue(f"{len(case.weights)} widths", f"{len(widths)} bytes")
    _demand(widths >= payloads.WIDTHS[0], "three bits or more", lambda at: f"{widths[at]} in row {at[0]}")


def _water(case: Encoded) -> None:
    """A louder row has no fewer bits; rows that are far apart have not all the same; and the mean of the widths is the budget,
    or what clamping to 3 and 8 leaves of it."""
    widths = payloads.widths(case.payload, len(case.weights)).astype(np.float64)
    if not len(widths):
        return
    loud = loudness(case.weights, case.options.get("amplify"))
    order = np.argsort(loud, kind="stable")
    before = np.searchsorted(loud[order], loud - compare.SAME_AMPLITUDE)  # how many are clearly quieter
    most = np.concatenate(([0.0], np.maximum.accumulate(widths[order])))
    _demand(
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


def _unless(option: str, check: Callable[[Encoded], None]) -> Callable[[Encoded], None]:
    return lambda case: None if option in case.options else check(case)


def _only(option: str, check: Callable[[Encoded], None]) -> Callable[[Encoded], None]:
    return lambda case: check(case) if option in case.options else None


def judge_family(tensors: Sequence[Any], encoded: Sequence[bytes], bits: float = payloads.BUDGET) -> None:
    """Q-VBIT-009: experts share a budget. tensors: matrices of one projection of one layer; encoded: their payloads.

    An expert that stands out is due more bits than the family's mean, one that is quiet fewer; and that mean is the budget.
    Raises WrongValue.
    """
    with np.errstate(all="ignore"):
        widths = [payloads.widths(payload, len(w)) for payload, w in zip(encoded, tensors, strict=True)]
        loud = np.array([loudness(weights).mean() for weights in tensors])
        means = np.array([rows.mean() for rows in widths])
        mean = np.concatenate(widths).mean()
    if abs(mean - bits) > compare.BUDGET_BITS:
        raise WrongValue(f"a family of about {bits} bits in the mean", f"{mean:.3f}")
    least, most = payloads.WIDTHS[0] + compare.DUE_BITS, payloads.WIDTHS[-1] - compare.DUE_BITS
    if not least < mean < most:
        return  # nearly all are at an end: there is nothing to share
    away = loud - loud.mean()
    due = np.where(away >= compare.LOUDER, means >= mean + compare.DUE_BITS, True)
    due &= np.where(away <= -compare.LOUDER, means <= mean - compare.DUE_BITS, True)
    _demand(
        due,
        f"more or fewer bits than the family's {mean:.3f} for an expert that is louder or quieter",
        lambda at: f"{means[at]:.3f} for expert {at[0]}, {away[at]:+.2f} octaves off",
    )


# --- one bit, three states -----------------------------------------------------------------------------------------


def _mean_scale(case: Encoded) -> None:
    """The mean magnitude of those of a group that aren't outliers."""
    groups = payloads.sign_groups(case.name, case.weights, case.payload)
    count = groups.inside.sum(axis=1)
    ideal = np.where(groups.inside, np.abs(groups.weights), 0).sum(axis=1) / np.maximum(count, 1)
    _demand(
        _is_scale(groups.scales, ideal, ideal > 0, compare.FLOAT_SUM) & (groups.scales >= 0),
        "the mean magnitude of the group's weights, outliers aside",
        lambda at: f"{groups.scales[at]:.8g} for {ideal[at]:.8g} of group {at[0]}",
    )


def _two_levels(case: Encoded) -> None:
    """A row whose groups have one magnitude each, and that one a half, comes back as it was."""
    blocks = case.weights.reshape(len(case.weights), -1, GROUP)
    sizes = np.abs(blocks)
    level = sizes[:, :, :1]
    plain = (sizes == level) & (level > 0) & (level.astype(np.float16).astype(np.float32) == level)
    rows = plain.all(axis=(1, 2))
    _within(case, np.where(rows, 0.0, np.inf)[:, None], "signs and one magnitude, unchanged")


def _ascending(case: Encoded) -> None:
    where = payloads.sign_groups(case.name, case.weights, case.payload).outliers.astype(np.int64)
    _demand(np.diff(where) > 0, "outliers in rising order", lambda at: f"index {where[at[0] + 1]} after {where[at]}")


def _nothing_below(case: Encoded) -> None:
    rows, columns, codes = payloads.ternary(case.weights.shape, case.payload)
    under = codes[rows, columns]
    _demand(under == 0, "code 0 under an outlier", lambda at: f"{under[at]} at [{rows[at]}, {columns[at]}]")


def _no_worse_than_zeros(case: Encoded, inside: Any, kept: float) -> None:
    """By rows: squared error against squared weight, of what isn't an outlier; and those are the nearest halves."""
    _within(case, np.where(inside, np.inf, _halves(case)), "the nearest half of an outlier")
    error = np.where(inside, case.lost, 0) ** 2
    power = np.where(inside, case.wide, 0) ** 2
    spare = case.weights.shape[1] * compare.SCALE_FLOOR**2
    _demand(
        error.sum(axis=1) <= kept * power.sum(axis=1) * (1 + 2 * compare.HALF_ROUNDING) + spare,
        "a smaller squared error than zeros would have",
        lambda at: f"{error[at].sum():.6g} of {power[at].sum():.6g} in row {at[0]}",
    )


# --- what is lost in all -------------------------------------------------------------------------------------------


def _halves(case: Encoded) -> Any:
    return np.abs(case.wide) * compare.HALF_ROUNDING + compare.HALF_SMALLEST


def _lost_in_f32(case: Encoded) -> None:
    _within(case, 0.0, "the weight itself")


def _lost_in_f16(case: Encoded) -> None:
    _within(case, _halves(case), "the nearest half")


def _lost_in_bf16(case: Encoded) -> None:
    _within(case, np.abs(case.wide) * compare.BF16_ROUNDING + compare.BF16_SMALLEST, "the nearest bf16")


def _lost_in_units(case: Encoded) -> None:
    """Half a scale, and what rounding the scale to a half makes of the top quant; nothing of zeros."""
    units = payloads.units(case.name, case.weights, case.payload)
    top = np.abs(units.weights).max(axis=1, initial=0)
    scale = np.maximum(top / units.tops, compare.SCALE_FLOOR)
    allowed = scale * (0.5 + units.tops * compare.HALF_ROUNDING)
    lost = np.abs(units.fold(case.values) - units.weights)
    _demand(
        lost <= np.where(top > 0, allowed, 0)[:, None],
        "half a scale at most",
        lambda at: f"off by {lost[at]:.8g}, more than {allowed[at[0]]:.8g}, at {at[1]} of scale {at[0]}",
    )


def _lost_in_two_fields(case: Encoded) -> None:
    _, rows, columns = payloads.two_fields(case.weights.shape, case.payload)
    live = np.abs(case.weights).any(axis=1)
    step = rows * (0.5 + payloads.TOP_8 * compare.HALF_ROUNDING) + payloads.TOP_8 * compare.HALF_SMALLEST
    _within(case, np.where(live, step, 0)[:, None] * columns, "half of row times column at most")


def _lost_in_ladders(case: Encoded) -> None:
    """Root mean square of a group: half of the rung above, and what the rung below cuts off."""
    q = payloads.ladders(case.weights, case.payload)
    top = np.abs(q.blocks).max(axis=2, initial=0)
    far = (q.span / (payloads.RUNGS - 1) / 2 + 2 * q.slack)[:, None]
    above = np.maximum(top / payloads.TOP_4, compare.SCALE_FLOOR) * np.exp2(far)
    allowed = above / 2 + top * (1 - np.exp2(-far))
    lost = np.sqrt((case.lost.reshape(q.blocks.shape) ** 2).mean(axis=2))
    _demand(
        lost <= np.where(top > 0, allowed, 0),
        "an error of half a rung",
        lambda at: f"{lost[at]:.8g}, more than {allowed[at]:.8g}, in group {at[1]} of row {at[0]}",
    )


def _lost_in_signs(case: Encoded) -> None:
    groups = payloads.sign_groups(case.name, case.weights, case.payload)
    carried = 4.0 if case.name == "q1s" else 1.0  # a sign that follows the row's error, not the weight, costs more
    _no_worse_than_zeros(case, groups.inside.reshape(case.weights.shape), carried)
    _two_levels(case)


def _lost_in_ternary(case: Encoded) -> None:
    rows, columns, _ = payloads.ternary(case.weights.shape, case.payload)
    inside = np.ones(case.weights.shape, np.bool_)
    inside[rows, columns] = False
    _no_worse_than_zeros(case, inside, 1.0)


_LOST: dict[str, Callable[[Encoded], None]] = {
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


def _lost(case: Encoded) -> None:
    _LOST[case.name](case)


def _finite(case: Encoded) -> None:
    """What is finite stays so; and what isn't is refused, or comes back where it was and nowhere else."""
    finite = np.isfinite(case.weights)
    _demand(
        np.isfinite(case.values) == finite,
        "a refusal, or finite values exactly where the weights are finite",
        lambda at: f"{case.values[at]} for {case.weights[at]} at {list(at)}",
    )


def _always_f16(case: Encoded) -> None:
    shape = case.weights.shape
    if (len(shape) < 2 or case.weights.size < GROUP) and case.name not in OF_ANY_SHAPE:
        raise WrongValue(f"f16 for a tensor of {list(shape)}", case.name)


EVERY = tuple(_LOST)
VBITS = ("vbit", "vbit_ro")
LAWS: tuple[Law, ...] = (
    Law("DT-006", EVERY, _always_f16, decodes=False),
    Law("Q-GEN-004", EVERY, _finite),
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
    Law("Q-VBIT-008", VBITS, _unless("amplify", _water)),
    Law("Q-VBIT-010", VBITS, _only("amplify", _water)),
    Law("Q-Q1-003", ("q1",), _mean_scale),
    Law("Q-Q1S-006", ("q1s",), _ascending),
    Law("Q-Q1S-007", ("q1s",), _mean_scale),
    Law("Q-Q1T-008", ("q1t",), _nothing_below),
    Law("Q-GEN-003", EVERY, _lost),
)
