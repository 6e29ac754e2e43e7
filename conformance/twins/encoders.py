"""Wrong encoders: each breaks one law of encoding, in a way that some public encoder has or that lies one slip away.

Law: `conformance.encoding` must tell each from a right one by the rule that it breaks, and by few others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cmfspec.codecs import encode, plan
from conformance.twins import misencode

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


@dataclass(frozen=True)
class WrongEncoder:
    """name: unique; encoding: what it writes; breaks: the rule that must tell; fault: what it does, in words; encode:
    (weights, **options) -> payload; also: why more than three other rules tell; plan: (name, shape, wanted) -> encoding."""

    name: str
    encoding: str
    breaks: str
    fault: str
    encode: Callable[..., bytes]
    also: str = ""
    plan: Callable[[str, tuple[int, ...], str], str] = plan

    def answer(self, weights: F32, **options: Any) -> bytes:
        """Its payload. What can't be encoded it refuses like a right one (CannotEncode), unless that is its fault."""
        if self.breaks != "Q-GEN-004":
            encode(self.encoding, weights, **options)
        return self.encode(weights, **options)


@dataclass(frozen=True)
class WrongFamily:
    """The same for a family of experts; encode: tensors -> vbit payloads."""

    name: str
    breaks: str
    fault: str
    encode: Callable[[Sequence[F32]], list[bytes]]


def _unplanned(encoding: str) -> WrongEncoder:
    return WrongEncoder(
        f"{encoding}-of-a-vector",
        encoding,
        "DT-006",
        f"writes vectors and small tensors as {encoding}",
        lambda weights: encode(encoding, weights),
        plan=lambda *asked: asked[-1],
    )


WRONG: tuple[WrongEncoder, ...] = (
    _unplanned("q4_block"),
    _unplanned("bf16"),
    WrongEncoder("through-a-half", "f32", "Q-GEN-003", "rounds to a half on the way", misencode.through_a_half),
    WrongEncoder("flushed", "f16", "Q-GEN-003", "makes zeros of subnormal halves", misencode.flushed),
    WrongEncoder("one-shift-more", "f16", "Q-GEN-003", "halves subnormal halves", misencode.shifted_once_too_often),
    WrongEncoder("cut-off", "f16", "Q-GEN-003", "rounds towards zero", misencode.cut_off),
    WrongEncoder(
        "unguarded-half", "f16", "Q-GEN-004", "writes an infinity for what no half holds", misencode.unguarded_half
    ),
    WrongEncoder("upper-half", "bf16", "Q-GEN-003", "cuts the lower half off", misencode.upper_half),
    WrongEncoder(
        "late-row-scale", "q8_row", "Q-Q8ROW-003", "rounds the scale after quantising", misencode.late_row_scale
    ),
    WrongEncoder("truncated-rows", "q8_row", "Q-Q8ROW-003", "quantises towards zero", misencode.truncated_rows),
    WrongEncoder("unclamped", "q8_row", "Q-Q8ROW-003", "lets 128 wrap round to −128", misencode.unclamped),
    WrongEncoder("next-rows-scale", "q8_row", "Q-Q8ROW-003", "stores each scale one row on", misencode.next_rows_scale),
    WrongEncoder("zero-over-zero", "q8_row", "Q-Q8ROW-006", "divides zero by zero", misencode.zero_over_zero),
    WrongEncoder(
        "infinite-scale", "q8_row", "Q-GEN-004", "writes an infinity for a large scale", misencode.infinite_scale
    ),
    WrongEncoder("nan-is-zero", "q8_row", "Q-GEN-004", "makes numbers of what is none", misencode.nan_is_zero),
    WrongEncoder(
        "late-columns", "q8_2f", "Q-Q82F-003", "rounds the field after dividing by it", misencode.late_columns
    ),
    WrongEncoder("truncated-fields", "q8_2f", "Q-Q82F-003", "quantises towards zero", misencode.truncated_fields),
    WrongEncoder(
        "rows-before-columns",
        "q8_2f",
        "Q-GEN-003",
        "takes the row's scale before the field is out",
        misencode.rows_before_columns,
    ),
    WrongEncoder("coarse-rows", "q8_2f", "Q-GEN-003", "uses four of the eight bits", misencode.coarse_rows),
    WrongEncoder("swapped-nibbles", "q4_block", "Q-Q4B-003", "puts the first of two on top", misencode.swapped_nibbles),
    WrongEncoder(
        "late-group-scale", "q4_block", "Q-Q4B-003", "rounds the scale after quantising", misencode.late_group_scale
    ),
    WrongEncoder("eighths", "q4_block", "Q-Q4B-003", "divides absmax by 8", misencode.eighths),
    WrongEncoder(
        "next-groups-scale", "q4_block", "Q-Q4B-003", "stores each scale one group on", misencode.next_groups_scale
    ),
    WrongEncoder(
        "filled-up-with-nothing",
        "q4_block",
        "Q-Q4B-004",
        "fills up with nibble 0, which is −8",
        misencode.filled_up_with_nothing,
    ),
    WrongEncoder("halves-of-a-group", "q4_tiled", "Q-Q4B-003", "pairs k with k + 16", misencode.halves_of_a_group),
    WrongEncoder("short-ladder", "q4tp", "Q-Q4TP-005", "makes 32 steps of 31", misencode.short_ladder),
    WrongEncoder(
        "exact-codes",
        "q4tp",
        "Q-Q4TP-006",
        "chooses rungs of lo and step before they are rounded",
        misencode.codes_of_the_exact_ladder,
    ),
    WrongEncoder(
        "exact-nibbles",
        "q4tp",
        "Q-Q4TP-007",
        "quantises against the scale, not the rung",
        misencode.nibbles_of_the_exact_scale,
    ),
    WrongEncoder(
        "nibble-zero-for-zeros",
        "q4tp",
        "Q-Q4TP-008",
        "fills a group of zeros with nibble 0",
        misencode.nibble_zero_for_zeros,
    ),
    WrongEncoder(
        "two-bits",
        "vbit",
        "Q-VBIT-007",
        "has no floor of three bits",
        misencode.two_bits_for_the_quiet,
        also="no payload of vbit has a width of 2, so that nothing decodes",
    ),
    WrongEncoder("upside-down", "vbit", "Q-VBIT-008", "gives bits to the quiet", misencode.upside_down),
    WrongEncoder("spendthrift", "vbit", "Q-VBIT-008", "gives 8 bits to all", misencode.spendthrift),
    WrongEncoder("deaf", "vbit", "Q-VBIT-010", "does not listen to the B-field", misencode.deaf),
    WrongEncoder("mirrored-rows", "vbit", "Q-GEN-003", "packs the low bit first", misencode.mirrored_rows),
    WrongEncoder(
        "first-groups-scale", "vbit", "Q-GEN-003", "stores each scale one group on", misencode.first_groups_scale
    ),
    WrongEncoder(
        "table-from-the-start",
        "vbit_ro",
        "Q-GEN-003",
        "counts the table from the payload's start",
        misencode.table_from_the_start,
        also="a table that lies is refused, so that nothing decodes",
    ),
    WrongEncoder("high-bit-first", "q1", "Q-GEN-003", "packs the high bit first", misencode.high_bit_first),
    WrongEncoder(
        "largest-for-the-mean", "q1", "Q-Q1-003", "takes the largest magnitude", misencode.largest_for_the_mean
    ),
    WrongEncoder("root-mean-square", "q1", "Q-Q1-003", "takes the root mean square", misencode.root_mean_square),
    WrongEncoder(
        "outliers-in-the-scale", "q1s", "Q-Q1S-007", "leaves outliers in the mean", misencode.outliers_in_the_scale
    ),
    WrongEncoder(
        "outliers-as-zeros",
        "q1s",
        "Q-Q1S-007",
        "counts outliers as zeros in the mean",
        misencode.outliers_as_zeros_in_the_scale,
    ),
    WrongEncoder("by-magnitude", "q1s", "Q-Q1S-006", "lists outliers by magnitude", misencode.by_magnitude),
    WrongEncoder(
        "what-the-base-lacks", "q1s", "Q-GEN-003", "stores what is to be added", misencode.what_the_base_lacks
    ),
    WrongEncoder(
        "code-under-outlier", "q1t", "Q-Q1T-008", "leaves a code under an outlier", misencode.a_code_under_an_outlier
    ),
    WrongEncoder("high-digit-first", "q1t", "Q-GEN-003", "puts the first digit on top", misencode.high_digit_first),
)
FAMILIES: tuple[WrongFamily, ...] = (
    WrongFamily(
        "each-its-own-budget", "Q-VBIT-009", "gives each expert a budget of its own", misencode.each_its_own_budget
    ),
    WrongFamily(
        "exchanged", "Q-VBIT-009", "gives the bits of the loud to the quiet", misencode.loud_and_quiet_exchanged
    ),
)
