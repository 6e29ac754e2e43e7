"""Encoders: what they lose is bounded, what they can't hold they refuse, and what is encoded twice stays the same."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cmfspec
from cmfspec.codecs import CODECS, ENCODERS, encode, family_widths, plan
from cmfspec.codecs.encode_vbit import row_widths
from cmfspec.errors import CannotEncode, Refusal
from cmfspec.format.hash64 import hash64
from cmfspec.layout import DTYPE_IDS, DTYPE_NAMES, GROUP
from conformance.encoding import judge
from conformance.weights import bell, family, uniform
from tests.shared import INTEROP, SHARED, needs_interop

GROUPED = ("q4_block", "q4_tiled", "q4tp", "vbit", "vbit_ro", "q1", "q1s", "q1t")
QUANTISED = ("q8_row", "q8_2f", *GROUPED)


def decoded(name: str, payload: bytes, shape: tuple[int, ...]) -> Any:
    """The values of a payload."""
    return CODECS[DTYPE_IDS[name]].decode(memoryview(payload), shape)


# --- the reference profile: not conformance, but what the public writers do ------------------------------------------

LATTICE = {
    "q8_row": (528, "a81130e55ea0e583"),
    "q8_2f": (656, "aee26d6f2ae64f3e"),
    "q4_block": (288, "1a88fd6514c40fae"),
    "q4_tiled": (288, "a36489cf97065dbb"),
    "q4tp": (304, "d28629d773b8bb84"),
    "f16": (1024, "53bc97c659b25907"),
    "q1": (96, "9fb02a0529b5c079"),
    "q1s": (130, "1818946d0c48a30e"),
    "q1t": (200, "20d17e033ebb036f"),
    "vbit": (296, "313609c98c95e6cd"),
    "vbit_ro": (332, "87561baef096a679"),
}


@pytest.mark.parametrize("name", LATTICE)
def test_the_bytes_are_those_of_the_public_writers(name: str) -> None:
    """On 512 numbers of a lattice, with their defaults: a profile of its own, no part of conformance."""
    places = np.arange(512, dtype=np.uint64) * 2654435761 % 2**32
    weights = ((places / 2**32 - 0.5) * 0.1).astype(np.float32).reshape(8, 64)
    assert f"{hash64(weights.tobytes()):016x}" == "faf48cba4bfd7004"
    payload = encode(name, weights)
    assert (len(payload), f"{hash64(payload):016x}") == LATTICE[name]


MODELS = SHARED / "oracle" / "models"
# file, model, options of the encoder where they aren't its defaults
WRITTEN = (
    *(("qwen2", f"rust/qwen2-{q}.cmf", {}) for q in ("f16", "q8", "q8_2f", "q4", "q4t", "q4tp", "q1", "q1s", "vbit")),
    ("qwen2", "rust/qwen2-q1p.cmf", {"q1": {"diffuse": True}}),
    ("qwen2", "rust/qwen2-q1t.cmf", {"q1t": {"keep": 0}}),
    *(("qwen2", f"python/qwen2-{q}.cmf", {}) for q in ("F16", "Q8_ROW", "Q8_2F", "Q4_BLOCK", "VBIT")),
    ("qwen3_moe", "python/qwen3_moe-vbit.cmf", {}),
    ("qwen3_next", "python/qwen3_next-Q8_ROW.cmf", {}),
)


@cache
def source(model: str) -> dict[str, Any]:
    """The float32 tensors of a safetensors file by name."""
    content = (MODELS / model / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    rows = json.loads(content[8 : 8 + size])
    rows.pop("__metadata__", None)
    return {
        name: np.frombuffer(content, "<f4", math.prod(row["shape"]), 8 + size + row["data_offsets"][0]).reshape(
            row["shape"]
        )
        for name, row in rows.items()
    }


@needs_interop
@pytest.mark.skipif(not MODELS.is_dir(), reason=f"{MODELS} is not here")
@pytest.mark.parametrize(("model", "file", "options"), WRITTEN, ids=[Path(file).stem for _, file, _ in WRITTEN])
def test_real_tensors_lose_no_more_than_in_the_reference_tools(model: str, file: str, options: dict[str, Any]) -> None:
    """Tensor by tensor, the largest error and the mean one; and what those tools wrote breaks no law either."""
    opened, weights_of, compared = cmfspec.open(str(INTEROP / file)), source(model), 0
    for tensor in opened:
        name, weights = tensor.dtype_name, weights_of.get(tensor.name)
        if weights is None or weights.shape != tensor.shape or name not in ENCODERS:
            continue
        theirs = bytes(opened.raw(tensor.index))
        ours = encode(name, weights, tensor=tensor.name, **options.get(name, {}))
        lost = [
            np.abs(decoded(name, payload, weights.shape).astype(np.float64) - weights) for payload in (ours, theirs)
        ]
        assert lost[0].max() <= lost[1].max(), tensor.name
        assert np.square(lost[0]).sum() <= np.square(lost[1]).sum(), tensor.name
        judge(name, weights, theirs)
        judge(name, weights, ours)
        compared += 1
    assert compared > len(opened) // 2


# --- properties ----------------------------------------------------------------------------------------------------


@st.composite
def matrices(draw: st.DrawFn, whole: bool = True, quiet: bool = True) -> Any:
    """Up to 6 rows of up to 4 groups, or of a few columns: noise of any spread, with zeros, constants, outliers.

    quiet: also weights whose scales are subnormal halves, or none.
    """
    rows = draw(st.integers(1, 6))
    cols = GROUP * draw(st.integers(1, 4)) if whole else draw(st.integers(6, 70))
    seed = draw(st.integers(0, 2**32))
    weights = bell(f"drawn{seed}", rows, cols).copy()
    weights *= np.exp2(
        np.array(draw(st.lists(st.integers(-30 if quiet else -2, 9), min_size=rows, max_size=rows)), np.float32)
    )[:, None]
    for _ in range(draw(st.integers(0, 3))):
        row, start = draw(st.integers(0, rows - 1)), draw(st.integers(0, cols - 1))
        part = weights[row, start : start + draw(st.integers(1, cols))]
        tiny = (2**-24, 2**-25, 3e-39) if quiet else ()
        part[...] = draw(st.sampled_from((0.0, 0.25, -1.0, 700.0, *tiny)) | st.floats(0.125, 2000, width=32))
    return weights


RELAXED = settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("name", ENCODERS)
def test_whatever_is_encoded_keeps_the_laws(name: str) -> None:
    """Over shapes, spreads, outliers, subnormals and constant rows. (A half holds up to 65504: larger ones are refused.)"""
    judged = 0

    @RELAXED
    @given(matrices(), st.booleans())
    def holds(weights: Any, option: bool) -> None:
        nonlocal judged
        told: dict[str, Any] = {}
        if option and name.startswith("vbit"):
            told = {"bits": 3.5, "amplify": 1 + uniform("amplify", len(weights)).astype(np.float64) / 2}
        if option and name in ("q1s", "q1t"):
            told = {"keep": 0.25}
        payload = encode(name, weights, **told)
        judge(name, weights, payload, **{key: told[key] for key in told if key != "keep"})
        judged += 1

    holds()
    assert judged >= RELAXED.max_examples / 2


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block"])
def test_ragged_matrices_keep_the_laws_too(name: str) -> None:
    """Where the columns are no multiple of 32."""

    @RELAXED
    @given(matrices(whole=False))
    def holds(weights: Any) -> None:
        if weights.size >= GROUP:
            judge(name, weights, encode(name, weights))

    holds()


SAME_BYTES = ("f32", "f16", "bf16", "q8_row", "q4_block", "q4_tiled")


@pytest.mark.parametrize("name", [*SAME_BYTES, "q1", "vbit", "vbit_ro"])
def test_what_was_encoded_is_encoded_the_same_again(name: str) -> None:
    """To the same bytes; q1 to the same values, since −0 has the sign of +0; vbit with the same widths. (A subnormal scale is
    too coarse for that: the largest quant need not be the top one.)"""

    @RELAXED
    @given(matrices(quiet=False))
    def holds(weights: Any) -> None:
        told = {"widths": row_widths(weights)} if name.startswith("vbit") else {}
        first = encode(name, weights, **told)
        values = decoded(name, first, weights.shape)
        second = encode(name, values, **told)
        if name == "q1":
            assert np.array_equal(decoded(name, second, weights.shape), values)
        else:
            assert second == first

    holds()


def test_q4_block_and_q4_tiled_have_the_same_values() -> None:
    """Where a row is whole groups."""

    @RELAXED
    @given(matrices())
    def holds(weights: Any) -> None:
        values = [decoded(name, encode(name, weights), weights.shape) for name in ("q4_block", "q4_tiled")]
        assert values[0].tobytes() == values[1].tobytes()

    holds()


def test_vbit_ro_is_vbit_with_a_table() -> None:
    """The same values to the bit."""

    @RELAXED
    @given(matrices())
    def holds(weights: Any) -> None:
        values = [decoded(name, encode(name, weights), weights.shape) for name in ("vbit", "vbit_ro")]
        assert values[0].tobytes() == values[1].tobytes()

    holds()


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("shape", [(3, 64), (1, 32), (0, 64), (2, 0)], ids=str)
def test_zeros_are_exact_zeros_and_nothing_is_something_too(name: str, shape: tuple[int, int]) -> None:
    """Also one bit a weight: its scale is zero. And no rows or no columns are encoded as what they are."""
    values = decoded(name, encode(name, np.zeros(shape, np.float32)), shape)
    assert values.shape == shape
    assert not values.any()


@pytest.mark.parametrize("name", QUANTISED)
def test_a_group_of_zeros_among_others_is_exact_zeros(name: str) -> None:
    """And costs its neighbours nothing."""
    weights = bell("neighbours", 3, 96) * np.float32(0.1)
    alone = decoded(name, encode(name, weights), weights.shape).copy()
    weights[1, 32:64] = 0
    values = decoded(name, encode(name, weights), weights.shape)
    assert not values[1, 32:64].any()
    assert np.abs(values[0] - weights[0]).max() <= np.abs(alone[0] - weights[0]).max() * 1.5


@pytest.mark.parametrize(
    ("name", "part"),
    [("q8_row", 1 / 70), ("q8_2f", 1 / 100), ("q4_block", 1 / 11), ("q4_tiled", 1 / 11), ("vbit", 1 / 5)],
)
def test_a_row_too_quiet_for_a_normal_scale_keeps_its_precision(name: str, part: float) -> None:
    """Two millionths are no zeros."""
    weights = bell("still", 4, 64) * np.float32(2e-6)
    lost = np.abs(decoded(name, encode(name, weights), weights.shape) - weights)
    assert lost.max() < np.abs(weights).max() * part


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ENCODERS)
def test_what_is_no_number_is_refused_by_the_tensors_name(name: str, value: float) -> None:
    """With the place, and as one of the named refusals."""
    weights = bell("fine", 4, 64).copy()
    weights[2, 33] = value
    with pytest.raises(CannotEncode) as refused:
        encode(name, weights, tensor="lm_head.weight")
    assert isinstance(refused.value, Refusal)
    assert refused.value.fault.field == "lm_head.weight[2, 33]"
    assert (refused.value.fault.found, refused.value.fault.rule) == (str(float(value)), "Q-GEN-004")


@pytest.mark.parametrize("name", ["f16", *QUANTISED])
def test_what_no_half_can_scale_is_refused(name: str) -> None:
    """The largest that can be is encoded, the next is refused and not written as an infinity."""
    room = {"f16": 1, "q8_row": 127, "q4_block": 7, "q4_tiled": 7, "q4tp": 7}
    top = np.float32(65504 * room.get(name, 1))
    weights = np.full((4, 64), top, np.float32)
    assert np.isfinite(decoded(name, encode(name, weights), weights.shape)).all()
    with pytest.raises(CannotEncode, match=r"loud.*at most 65504"):
        encode(name, weights * np.float32(200), tensor="loud")


def test_bf16_refuses_what_would_round_to_an_infinity() -> None:
    """The largest bf16 is encoded."""
    top = np.array([0x7F7F0000], np.uint32).view(np.float32)
    assert decoded("bf16", encode("bf16", np.repeat(top, 32).reshape(1, 32)), (1, 32))[0, 0] == top[0]
    with pytest.raises(CannotEncode, match=r"w weight\[0, 0\]: found 3.39.*what bf16 holds"):
        encode("bf16", np.full((1, 32), 3.4e38, np.float32), tensor="w")


@pytest.mark.parametrize(
    ("name", "weights", "options", "says"),
    [
        ("q9", np.ones((2, 32), np.float32), {}, "no encoding of weights is called 'q9'"),
        ("u8", np.ones((2, 32), np.float32), {}, "no encoding of weights is called 'u8'"),
        ("mix8_4", np.ones((2, 32), np.float32), {}, "no encoding of weights"),
        ("q8_row", np.ones((2, 32)), {}, "float64, wanted a float32 array"),
        ("q8_row", [[1.0]], {}, "list, wanted a float32 array"),
        ("q8_row", np.ones(32, np.float32), {}, "wanted 2 dimensions"),
        ("q4tp", np.ones((2, 33), np.float32), {}, "wanted columns in multiples of 32"),
        ("q8_row", np.ones((2, 32), np.float32), {"bits": 4}, "q8_row has no option 'bits', but none"),
        ("q1s", np.ones((2, 32), np.float32), {"keep": 0.3}, "keep: 0.3, wanted 0 to 0.25"),
        ("q1t", np.ones((2, 32), np.float32), {"keep": math.nan}, "keep: nan"),
        ("vbit", np.ones((2, 32), np.float32), {"bits": 2.9}, "bits: 2.9, wanted 3 to 8"),
        ("vbit", np.ones((2, 32), np.float32), {"bits": math.nan}, "bits: nan"),
        ("vbit", np.ones((2, 32), np.float32), {"amplify": [1.0, 0.0]}, "amplify: wanted one positive number, or 2"),
        ("vbit", np.ones((2, 32), np.float32), {"amplify": [1.0]}, "amplify: wanted one positive number, or 2"),
        ("vbit", np.ones((2, 32), np.float32), {"widths": [3, 7]}, "widths, wanted 2 of"),
        ("vbit", np.ones((2, 32), np.float32), {"widths": [3]}, "widths, wanted 2 of"),
        ("q1t", np.zeros((1, 65568), np.float32), {}, "65568 columns, more than the 65536"),
    ],
)
def test_what_makes_no_sense_is_said(name: str, weights: Any, options: dict[str, Any], says: str) -> None:
    """A ValueError in words, before anything is written."""
    with pytest.raises(ValueError, match=says):
        encode(name, weights, **options)


def test_weights_are_taken_however_they_lie_and_left_alone() -> None:
    """Transposed, strided, read-only."""
    weights = bell("lying", 64, 32)
    for given_ in (weights.T, weights[::2], weights[:, ::-1]):
        name = "q4_tiled" if given_.shape[1] % GROUP == 0 else "q8_row"
        before = given_.copy()
        given_.flags.writeable = False
        assert encode(name, given_) == encode(name, before)
        assert np.array_equal(given_, before)


# --- vbit's widths, outliers, and the plan -------------------------------------------------------------------------


def test_a_louder_row_has_more_bits_and_none_has_less_than_three() -> None:
    """By the octave, around the budget; and a B-field moves them."""
    weights = bell("octaves", 7, 64) / np.abs(bell("octaves", 7, 64)).max(axis=1, keepdims=True)
    weights = (weights * np.exp2(-np.arange(7, dtype=np.float32))[:, None]).astype(np.float32)
    assert row_widths(weights, 4.25).tolist() == [8, 6, 5, 4, 3, 3, 3]
    assert row_widths(weights, 4.25, amplify=np.exp2(np.arange(7.0))).tolist() == [4] * 7
    assert row_widths(weights, 4.25, amplify=2.0).tolist() == [8, 8, 6, 5, 4, 3, 3]
    assert row_widths(weights[:1], 5.5).tolist() == [5]  # of two that are as near, the smaller


def test_experts_share_the_budget_of_their_family() -> None:
    """The loud have more, the quiet stand at the floor, and the mean is the budget; router counts move them."""
    tensors = family()
    means = [widths.mean() for widths in family_widths(tensors, 4.25)]
    assert means == sorted(means, reverse=True)
    assert means[-1] == 3
    assert np.mean(means) == pytest.approx(4.25, abs=0.05)
    same = [tensors[0]] * 4
    assert len({widths.tobytes() for widths in family_widths(same)}) == 1
    chosen = [widths.mean() for widths in family_widths(same, counts=[1000, 100, 10, 0])]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] > chosen[-1] + 1
    assert family_widths([]) == []


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, -3], [1, 2, math.nan], [1, 2, math.inf]])
def test_counts_are_one_for_each_expert_and_not_negative(counts: list[float]) -> None:
    """Whatever a statistics file holds."""
    with pytest.raises(ValueError, match="counts: wanted 3 numbers"):
        family_widths(family()[:3], counts=counts)


def test_an_expert_that_is_no_number_is_refused_by_its_place() -> None:
    """As a tensor is by its name."""
    wrong = np.full((2, 32), np.nan, np.float32)
    with pytest.raises(CannotEncode, match=r"family\[1\]\[0, 0\]"):
        family_widths([np.ones((2, 32), np.float32), wrong])


@pytest.mark.parametrize("name", ["q1s", "q1t"])
def test_as_many_outliers_are_kept_as_were_asked_for(name: str) -> None:
    """Also where all weights are alike; and one huge weight leaves the scale of its group as it was."""
    alike = np.full((4, 64), 0.5, np.float32)
    entry = {"q1s": 6, "q1t": 4}[name]
    sizes = [len(encode(name, alike, keep=keep)) for keep in (0, 0.01, 0.1, 0.25)]
    assert [(size - sizes[0]) // entry for size in sizes] == [0, 3, 26, 64]
    weights = bell("huge", 4, 64) * np.float32(0.1)
    wild = weights.copy()
    wild[1, 7] = 6000
    calm, moved = (decoded(name, encode(name, w, keep=1 / 256), w.shape) for w in (weights, wild))
    assert moved[1, 7] == 6000
    assert np.abs(np.abs(moved[1, 8:32]).max() / np.abs(calm[1, 8:32]).max() - 1) < 0.2


@pytest.mark.parametrize(
    ("name", "shape", "wanted", "gets"),
    [
        *(("model.norm.weight", (64,), wanted, "f16") for wanted in ENCODERS),
        *(("w", (2, 15), wanted, "f16") for wanted in ENCODERS),
        *(("w", (), wanted, "f16") for wanted in ENCODERS),
        *(("w", (4, 64), wanted, wanted) for wanted in ENCODERS),
        *(("w", (4, 33), wanted, "q8_2f") for wanted in GROUPED if wanted != "q4_block"),
        *(("w", (4, 33), wanted, wanted) for wanted in ("f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block")),
        *(("w", (2, 4, 64), wanted, "f16") for wanted in QUANTISED if wanted != "q4_block"),
        ("w", (2, 4, 64), "q4_block", "q4_block"),
        ("w", (1, 65568), "q1t", "q8_2f"),
        ("tokenizer", (5,), "u8", "u8"),
        ("model.layers.3.mlp.gate.weight", (8, 64), "q4tp", "f16"),
        ("model.layers.3.mlp.gate.weight", (8, 64), "f32", "f32"),
        ("model.layers.3.mlp.gate_proj.weight", (8, 64), "q4tp", "q4tp"),
    ],
)
def test_a_tensor_gets_the_encoding_that_it_can_have(name: str, shape: tuple[int, ...], wanted: str, gets: str) -> None:
    """Vectors and small ones are always f16, raw bytes are left alone, ragged rows fall back."""
    assert plan(name, shape, wanted) == gets


@pytest.mark.parametrize("wanted", ENCODERS)
@pytest.mark.parametrize(
    "shape",
    [(), (1,), (31,), (64,), (2, 15), (4, 8), (4, 33), (4, 64), (2, 3, 11), (2, 2, 32), (1, 65568), (0, 64), (64, 0)],
    ids=str,
)
def test_what_is_planned_can_be_encoded(wanted: str, shape: tuple[int, ...]) -> None:
    """And decodes to the shape that it had."""
    name = plan("w", shape, wanted)
    values = decoded(name, encode(name, np.ones(shape, np.float32)), shape)
    assert values.shape == shape


@pytest.mark.parametrize("wanted", ["q9", "mix8_4", "q4_col", ""])
def test_a_reserved_encoding_cannot_be_planned(wanted: str) -> None:
    """Nor one that nobody knows."""
    assert wanted not in ENCODERS
    assert set(ENCODERS) < set(DTYPE_NAMES)
    with pytest.raises(ValueError, match="no encoding is called"):
        plan("w", (4, 64), wanted)
