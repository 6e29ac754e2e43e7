"""Wrong ways to encode, for the wrong encoders: (weights, **options) to a payload, or a family of weights to payloads.

Law: each is one slip away from a right encoder, and what it writes looks right: only the numbers are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.codecs import encode
from cmfspec.codecs.encode_q1 import SUPPORT, apart, mean_scales, signs, ternary_bytes, tiles
from cmfspec.codecs.encode_q4 import TOP, bit_codes, nibbles_at, packed
from cmfspec.codecs.encode_vbit import BUDGET, bit_rows, loudness, row_widths, snapped
from cmfspec.codecs.encoder import TINY, absmax, log2, quants, raw
from cmfspec.codecs.q1 import Q1_TILE, Q1T_TILE
from cmfspec.codecs.q4 import HALF, RUNGS, TILE, ladder
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32
    from cmfspec.codecs.encode_vbit import Widths


def half(values: Any) -> F32:
    """To a half and back, infinities and all."""
    with np.errstate(all="ignore"):
        rounded: F32 = np.asarray(values).astype(np.float16).astype(np.float32)
    return rounded


# --- halves --------------------------------------------------------------------------------------------------------


def through_a_half(weights: F32) -> bytes:
    return half(weights).astype("<f4").tobytes()


def flushed(weights: F32) -> bytes:
    values = half(weights)
    return raw(np.where(np.abs(values) < TINY, 0, values))


def shifted_once_too_often(weights: F32) -> bytes:
    values = half(weights)
    return raw(np.where(np.abs(values) < TINY, values / 2, values))


def cut_off(weights: F32) -> bytes:
    values = half(weights).astype(np.float16)
    return raw(np.where(np.abs(values) > np.abs(weights), np.nextafter(values, np.float16(0)), values))


def unguarded_half(weights: F32) -> bytes:
    return raw(half(weights))


def upper_half(weights: F32) -> bytes:
    return (weights.reshape(-1).view(np.uint32) >> np.uint32(16)).astype("<u2").tobytes()


# --- q8 ------------------------------------------------------------------------------------------------------------


def _q8(codes: Any, scales: Any) -> bytes:
    with np.errstate(all="ignore"):
        return bytes(np.nan_to_num(codes).astype(np.int64).astype(np.int8).tobytes()) + raw(scales)


def late_row_scale(weights: F32) -> bytes:
    exact = absmax(weights) / np.float32(127)
    return _q8(quants(weights, exact[:, None], 127), half(exact))


def truncated_rows(weights: F32) -> bytes:
    scales = half(absmax(weights) / 127)
    return _q8(np.trunc(weights / np.maximum(scales, 2**-24)[:, None]).clip(-127, 127), scales)


def zero_over_zero(weights: F32) -> bytes:
    scales = half(absmax(weights) / 127)
    return _q8(quants(weights, scales[:, None], 127), np.where(scales == 0, np.nan, scales))


def unclamped(weights: F32) -> bytes:
    scales = half(absmax(weights) / 128)
    return _q8(quants(weights, scales[:, None], np.inf), scales)


def next_rows_scale(weights: F32) -> bytes:
    scales = half(absmax(weights) / 127)
    return _q8(quants(weights, scales[:, None], 127), np.roll(scales, 1))


def infinite_scale(weights: F32) -> bytes:
    with np.errstate(all="ignore"):
        scales = half(absmax(weights) / 127)
        return _q8(quants(weights, scales[:, None], 127), scales)


def nan_is_zero(weights: F32) -> bytes:
    return encode("q8_row", np.nan_to_num(weights, nan=0, posinf=1, neginf=-1).clip(-1000, 1000))


def _fields(weights: F32) -> F32:
    fields: F32 = np.maximum(np.sqrt((weights.astype(np.float64) ** 2).mean(axis=0)), TINY).astype(np.float32)
    return fields


def late_columns(weights: F32) -> bytes:
    exact = _fields(weights)
    left = weights / exact
    scales = np.maximum(half(absmax(left) / 127), np.float32(2**-24))
    return _q8(quants(left, scales[:, None], 127), scales) + raw(exact)


def truncated_fields(weights: F32) -> bytes:
    columns = half(_fields(weights))
    left = weights / columns
    scales = np.maximum(half(absmax(left) / 127), np.float32(2**-24))
    return _q8(np.trunc(left / scales[:, None]).clip(-127, 127), scales) + raw(columns)


def coarse_rows(weights: F32) -> bytes:
    columns = half(_fields(weights))
    left = weights / columns
    scales = np.maximum(half(absmax(left) / 7), np.float32(2**-24))
    return _q8(quants(left, scales[:, None], 127), scales) + raw(columns)


def rows_before_columns(weights: F32) -> bytes:
    columns = half(_fields(weights))
    scales = np.maximum(half(absmax(weights) / 127), np.float32(2**-24))
    return _q8(quants(weights / columns, scales[:, None], 127), scales) + raw(columns)


# --- q4 ------------------------------------------------------------------------------------------------------------


def _blocks(weights: F32) -> F32:
    blocks = np.zeros((-(-weights.size // GROUP), GROUP), np.float32)
    blocks.reshape(-1)[: weights.size] = weights.reshape(-1)
    return blocks


def _q4(codes: Any, scales: Any) -> bytes:
    return packed(codes).tobytes() + raw(scales)


def swapped_nibbles(weights: F32) -> bytes:
    payload = np.frombuffer(encode("q4_block", weights), np.uint8).copy()
    part = payload[: len(payload) // TILE * HALF]
    part[:] = part << 4 | part >> 4
    return payload.tobytes()


def late_group_scale(weights: F32) -> bytes:
    exact = absmax(_blocks(weights)) / TOP
    return _q4(quants(_blocks(weights), exact[:, None], TOP), half(exact))


def eighths(weights: F32) -> bytes:
    scales = half(absmax(_blocks(weights)) / 8)
    return _q4(quants(_blocks(weights), scales[:, None], TOP), scales)


def next_groups_scale(weights: F32) -> bytes:
    scales = half(absmax(_blocks(weights)) / TOP)
    return _q4(quants(_blocks(weights), scales[:, None], TOP), np.roll(scales, 1))


def filled_up_with_nothing(weights: F32) -> bytes:
    blocks = _blocks(weights)
    scales = np.maximum(half(absmax(blocks) / TOP), np.float32(2**-24))
    codes = quants(blocks, scales[:, None], TOP)
    codes.reshape(-1)[weights.size :] = -8
    return _q4(codes, np.where(absmax(blocks) > 0, scales, 0))


def halves_of_a_group(weights: F32) -> bytes:
    payload = np.frombuffer(encode("q4_tiled", weights), np.uint8).reshape(-1, TILE).copy()
    flat = np.stack((payload[:, 2:] & 15, payload[:, 2:] >> 4), axis=2).reshape(-1, GROUP)
    payload[:, 2:] = flat[:, :HALF] | flat[:, HALF:] << np.uint8(4)
    return payload.tobytes()


def _rungs(weights: F32, divide: int = RUNGS - 1) -> tuple[F32, F32, F32, F32]:
    """(blocks [rows, groups, 32], log2 scales, exact lo, exact step)."""
    blocks = weights.reshape(len(weights), -1, GROUP)
    logs = log2(np.maximum(half(absmax(blocks) / TOP), TINY))
    live = absmax(blocks) > 0
    low = np.where(live, logs, np.inf).min(axis=1)
    high = np.where(live, logs, -np.inf).max(axis=1)
    low, high = np.where(live.any(axis=1), low, -14), np.where(live.any(axis=1), high, -14)
    step = np.maximum((high - low) / divide, np.float32(2**-20))
    return blocks, logs, low.astype(np.float32), step.astype(np.float32)


def _q4tp(weights: F32, divide: int = RUNGS - 1, exact_codes: bool = False, exact_nibbles: bool = False) -> bytes:
    """A plain encoder of q4tp, with its three slips. divide: steps to the top."""
    blocks, logs, low, step = _rungs(weights, divide)
    stored = np.stack((half(low), half(np.nextafter(step, np.float32(np.inf)))), axis=1)
    lo, by = (low, step) if exact_codes else stored.T
    codes = np.clip(np.rint((logs - lo[:, None]) / by[:, None]), 0, RUNGS - 1).astype(np.int64)
    chosen = np.take_along_axis(ladder(stored), codes, axis=1).reshape(-1)
    if exact_nibbles:
        chosen = np.exp2(logs).reshape(-1)
    nibbles = packed(nibbles_at(blocks.reshape(-1, GROUP), chosen))
    return nibbles.tobytes() + raw(stored) + bit_codes(codes)


def short_ladder(weights: F32) -> bytes:
    return _q4tp(weights, divide=RUNGS)


def codes_of_the_exact_ladder(weights: F32) -> bytes:
    return _q4tp(weights, exact_codes=True)


def nibbles_of_the_exact_scale(weights: F32) -> bytes:
    return _q4tp(weights, exact_nibbles=True)


def nibble_zero_for_zeros(weights: F32) -> bytes:
    payload = np.frombuffer(encode("q4tp", weights), np.uint8).copy()
    dead = absmax(weights.reshape(-1, GROUP)) == 0
    payload[: weights.size // 2].reshape(-1, HALF)[dead] = 0
    return payload.tobytes()


# --- vbit ----------------------------------------------------------------------------------------------------------


def _low_bit_first(codes: Any, widths: Widths) -> list[bytes]:
    rows = (
        np.unpackbits(row[:, None], axis=1, bitorder="little")[:, :width]
        for row, width in zip(codes, widths, strict=True)
    )
    return [np.packbits(row, bitorder="little").tobytes() for row in rows]


def _vbit(weights: F32, widths: Any, pack: Callable[[Any, Widths], list[bytes]] = bit_rows) -> bytes:
    """Of any widths."""
    blocks = weights.reshape(len(weights), -1, GROUP)
    tops = 2.0 ** (widths.astype(np.float32) - 1) - 1
    scales = np.maximum(half(absmax(blocks) / tops[:, None]), np.float32(2**-24))
    codes = quants(blocks, scales[:, :, None], tops[:, None, None]) + tops[:, None, None]
    body = pack(codes.reshape(weights.shape).astype(np.uint8), widths)
    return b"".join((widths.astype(np.uint8).tobytes(), raw(scales), *body))


def two_bits_for_the_quiet(weights: F32, **options: Any) -> bytes:
    widths = row_widths(weights, **options)
    return _vbit(weights, np.where(widths == 3, 2, widths))


def upside_down(weights: F32, amplify: Any = None) -> bytes:
    loud = loudness(weights, amplify)
    return _vbit(weights, snapped(np.float32(BUDGET) - (loud - loud.mean())))


def spendthrift(weights: F32, amplify: Any = None) -> bytes:
    return _vbit(weights, np.full(len(weights), 8, np.uint8))


def deaf(weights: F32, amplify: Any = None) -> bytes:
    return encode("vbit", weights)


def mirrored_rows(weights: F32, amplify: Any = None) -> bytes:
    return _vbit(weights, row_widths(weights, amplify=amplify), _low_bit_first)


def first_groups_scale(weights: F32, amplify: Any = None) -> bytes:
    payload = bytearray(encode("vbit", weights, amplify=amplify))
    rows, groups = len(weights), weights.shape[1] // GROUP
    scales = np.frombuffer(bytes(payload), "<u2", rows * groups, rows).reshape(rows, groups)
    payload[rows : rows + 2 * rows * groups] = np.roll(scales, 1, axis=1).tobytes()
    return bytes(payload)


def table_from_the_start(weights: F32, amplify: Any = None) -> bytes:
    payload = bytearray(encode("vbit_ro", weights, amplify=amplify))
    rows = len(weights)
    at = rows + 2 * rows * (weights.shape[1] // GROUP)
    table = np.frombuffer(bytes(payload), "<u4", rows + 1, at) + np.uint32(at + 4 * (rows + 1))
    payload[at : at + 4 * (rows + 1)] = table.astype("<u4").tobytes()
    return bytes(payload)


def each_its_own_budget(tensors: Sequence[F32]) -> list[bytes]:
    return [encode("vbit", weights) for weights in tensors]


def loud_and_quiet_exchanged(tensors: Sequence[F32]) -> list[bytes]:
    widths = [row_widths(weights, amplify=2.0 ** (e - 3)) for e, weights in enumerate(tensors)]
    return [encode("vbit", weights, widths=chosen) for weights, chosen in zip(tensors, widths, strict=True)]


# --- one bit, three states -----------------------------------------------------------------------------------------


def _none(weights: F32) -> Any:
    return np.zeros(weights.shape, np.bool_)


def _signed(weights: F32, scales: Any, kept: Any, bitorder: Any = "little") -> bytes:
    bits = signs(weights, half(scales), kept, diffuse=False)
    return tiles(half(scales), np.packbits(bits.reshape(-1, GROUP), axis=1, bitorder=bitorder))


def high_bit_first(weights: F32) -> bytes:
    return _signed(weights, mean_scales(weights, _none(weights), ""), _none(weights), "big")


def largest_for_the_mean(weights: F32) -> bytes:
    return _signed(weights, absmax(weights.reshape(len(weights), -1, GROUP)), _none(weights))


def root_mean_square(weights: F32) -> bytes:
    blocks = weights.astype(np.float64).reshape(len(weights), -1, GROUP)
    return _signed(weights, np.sqrt((blocks**2).mean(axis=2)), _none(weights))


def _overlay(weights: F32, kept: Any) -> Any:
    where = np.flatnonzero(kept)
    entries = np.empty(len(where), np.dtype([("at", "<u4"), ("value", "<f2")]))
    entries["at"], entries["value"] = where, weights.reshape(-1)[where]
    return entries


def _with_outliers(base: bytes, entries: Any) -> bytes:
    return base + len(entries).to_bytes(4, "little") + bytes(entries.tobytes())


def outliers_in_the_scale(weights: F32) -> bytes:
    kept = apart(weights, 0.01)
    return _with_outliers(_signed(weights, mean_scales(weights, _none(weights), ""), kept), _overlay(weights, kept))


def outliers_as_zeros_in_the_scale(weights: F32) -> bytes:
    kept = apart(weights, 0.01)
    sizes = np.where(kept, np.float32(0), np.abs(weights)).reshape(len(weights), -1, GROUP)
    return _with_outliers(_signed(weights, sizes.mean(axis=2), kept), _overlay(weights, kept))


def by_magnitude(weights: F32) -> bytes:
    kept = apart(weights, 0.01)
    entries = _overlay(weights, kept)
    entries = entries[np.argsort(-np.abs(entries["value"]), kind="stable")]
    return encode("q1s", weights)[: weights.size // GROUP * Q1_TILE + 4] + bytes(entries.tobytes())


def what_the_base_lacks(weights: F32) -> bytes:
    kept = apart(weights, 0.01)
    scales = mean_scales(weights, kept, "")
    base = np.repeat(scales, GROUP, axis=1) * np.where(weights >= 0, 1, -1)
    return _with_outliers(_signed(weights, scales, kept), _overlay((weights - base).astype(np.float32), kept))


def _ternary(
    weights: F32, codes_of: Callable[[Any, Any], Any], bytes_of: Callable[[Any], Any] = ternary_bytes
) -> bytes:
    """codes_of: (codes of all weights, where the outliers are) -> codes."""
    kept = apart(weights, 0.01)
    scales = mean_scales(weights, kept, "")
    large = np.abs(weights) >= SUPPORT * np.repeat(scales, GROUP, axis=1)
    codes = codes_of(np.where(large, np.where(weights >= 0, 1, 2), 0).astype(np.uint8), kept)
    right = encode("q1t", weights)[weights.size // GROUP * Q1T_TILE :]
    return tiles(scales, bytes_of(codes.reshape(-1, GROUP))) + right


def a_code_under_an_outlier(weights: F32) -> bytes:
    return _ternary(weights, lambda codes, _: codes)


def high_digit_first(weights: F32) -> bytes:
    def mirrored(codes: Any) -> Any:
        digits = np.zeros((len(codes), 35), np.uint8)
        digits[:, :GROUP] = codes
        digits = digits.reshape(len(codes), 7, 5)[:, :, ::-1].reshape(len(codes), 35)
        return (digits.reshape(len(codes), 7, 5) * np.array([1, 3, 9, 27, 81], np.uint8)).sum(axis=2, dtype=np.uint8)

    return _ternary(weights, lambda codes, kept: np.where(kept, 0, codes), mirrored)
