"""The laws of encoding judge themselves: a right encoder breaks none, each wrong one dies by the law that it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cmfspec.codecs import CODECS, ENCODERS, encode, family_widths, plan
from cmfspec.contract.outcome import WrongValue
from cmfspec.contract.rule import norms
from cmfspec.errors import CannotEncode
from cmfspec.layout import DTYPE_IDS
from conformance.encoding import LAWS, Encoded, judge, judge_family, laws_for
from conformance.twins import OTHERS
from conformance.twins.encoders import FAMILIES, WRONG, WrongEncoder, WrongFamily
from conformance.weights import PROBES, Probe, family

FAMILY_LAW = "Q-VBIT-009"


def options_of(name: str, probe: Probe) -> dict[str, Any]:
    """What the encoding can be told of what the probe says."""
    return dict(probe.options) if name.startswith("vbit") else {}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
@pytest.mark.parametrize("wanted", ENCODERS)
def test_a_right_encoder_breaks_no_law(wanted: str, probe: Probe) -> None:
    """As planned: what an encoding isn't for gets another. What can't be encoded is refused by the tensor's name."""
    weights = probe.weights
    name = plan("w", weights.shape, wanted)
    options = options_of(name, probe)
    held = name in ("f32", "bf16") and np.isfinite(weights).all() and np.abs(weights).max(initial=0) < 3e38
    if probe.refused and not held and not (name == "f32" and np.isfinite(weights).all()):
        with pytest.raises(CannotEncode, match=r"model\.w.*wanted") as refused:
            encode(name, weights, tensor="model.w", **options)
        assert refused.value.fault.rule == "Q-GEN-004"
        return
    judge(name, weights, encode(name, weights, **options), **options)


def dead(wrong: WrongEncoder) -> dict[str, str]:
    """Rule to the first failure."""
    found: dict[str, str] = {}
    for probe, payload, options in answers(wrong):
        for law in laws_for(Encoded(wrong.encoding, probe.weights, payload, options)):
            try:
                judge(wrong.encoding, probe.weights, payload, laws=[law.id], **options)
            except WrongValue as failure:
                found.setdefault(law.id, f"{probe.name}: {failure}")
    return found


def answers(wrong: WrongEncoder) -> Iterator[tuple[Probe, bytes, dict[str, Any]]]:
    """Its payloads of all weights that it would encode so."""
    for probe in PROBES:
        if wrong.plan("w", probe.weights.shape, wrong.encoding) == wrong.encoding:
            options = options_of(wrong.encoding, probe)
            try:
                yield probe, wrong.answer(probe.weights, **options), options
            except CannotEncode:
                assert probe.refused


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_encoder_dies_by_the_law_that_it_breaks(wrong: WrongEncoder) -> None:
    """And by at most three others, unless it says why; and it says what was expected and what came."""
    found = dead(wrong)
    assert wrong.breaks in found, f"survived all of {[law.id for law in LAWS if wrong.encoding in law.encodings]}"
    assert "expected " in found[wrong.breaks]
    assert "; got " in found[wrong.breaks]
    others = sorted(set(found) - {wrong.breaks})
    assert len(others) <= OTHERS or wrong.also, {identity: found[identity] for identity in others}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_what_a_wrong_encoder_writes_has_the_right_size(wrong: WrongEncoder) -> None:
    """It is told by its numbers: nobody needs a law for a wrong length."""
    nbytes = CODECS[DTYPE_IDS[wrong.encoding]].nbytes
    for probe, payload, _ in answers(wrong):
        shape = probe.weights.shape
        rows, cols = shape if len(shape) == 2 else (1, probe.weights.size)
        assert nbytes is None or len(payload) == nbytes(probe.weights.size, rows, cols)


def test_every_law_and_every_encoding_has_a_wrong_encoder() -> None:
    """A law that kills nobody proves nothing."""
    assert {wrong.breaks for wrong in WRONG} == {law.id for law in LAWS}
    assert {wrong.encoding for wrong in WRONG} == set(ENCODERS)
    assert {wrong.breaks for wrong in FAMILIES} == {FAMILY_LAW}
    names = [wrong.name for wrong in (*WRONG, *FAMILIES)]
    assert len(names) == len(set(names))


def test_the_laws_are_rules_of_the_catalogue() -> None:
    """By id, and each encoding is under some law that isn't for all."""
    assert {law.id for law in LAWS} | {FAMILY_LAW} <= set(norms())
    assert all(set(law.encodings) <= set(ENCODERS) for law in LAWS)


def test_a_family_that_shares_its_budget_breaks_no_law() -> None:
    """Eight experts, each half as loud as the one before."""
    tensors = family()
    for bits in (3, 3.5, 4.25, 6, 8):
        widths = family_widths(tensors, bits)
        encoded = [encode("vbit", w, widths=chosen) for w, chosen in zip(tensors, widths, strict=True)]
        judge_family(tensors, encoded, bits)


@pytest.mark.parametrize("wrong", FAMILIES, ids=lambda wrong: wrong.name)
def test_a_family_that_does_not_share_is_told(wrong: WrongFamily) -> None:
    """By the bits of its loud and quiet experts."""
    tensors = family()
    with pytest.raises(WrongValue, match=r"bits for (a|the) loud"):
        judge_family(tensors, wrong.encode(tensors))


def test_a_family_of_nothing_and_a_payload_of_nothing_are_no_success() -> None:
    """Zero cases are never a success."""
    tensors = family()
    with pytest.raises(ValueError, match="no experts"):
        judge_family([], [])
    with pytest.raises(WrongValue, match="a payload of vbit"):
        judge_family(tensors, [b""] * len(tensors))


@pytest.mark.parametrize("name", ENCODERS)
def test_a_payload_that_does_not_decode_is_wrong_and_nothing_else_leaves(name: str) -> None:
    """Cut anywhere, or empty, or one byte longer where that isn't allowed."""
    weights = PROBES[0].weights
    right = encode(name, weights)
    lax = {"q1s", "q1t"}  # bytes behind their overlays are an observation
    for payload in (
        b"",
        right[:1],
        right[:7],
        right[: len(right) // 2],
        right[:-1],
        *([] if name in lax else [right + b"\0"]),
    ):
        with pytest.raises(WrongValue):
            judge(name, weights, payload)


def test_a_judge_with_nothing_to_say_says_so() -> None:
    """A law that isn't one, one for other encodings, one whose option is missing, an encoding that is none."""
    weights = PROBES[0].weights
    payload = encode("vbit", weights)
    for name, laws in (
        ("vbit", ["Q-NONE-001"]),
        ("vbit", ["Q-Q4B-003"]),
        ("vbit", ["Q-VBIT-010", "Q-VBIT-007"]),
        ("u8", None),
        ("vbit", []),
    ):
        with pytest.raises(ValueError, match=r"nothing to say|no law"):
            judge(name, weights, payload, laws=laws)


def test_the_wrong_shape_for_an_encoding_is_wrong_and_no_crash() -> None:
    """A vector as q8_row, a ragged matrix as vbit."""
    with pytest.raises(WrongValue, match="f16 for a tensor"):
        judge("q8_row", np.ones(64, np.float32), bytes(66))
    with pytest.raises(WrongValue, match="vbit for columns in multiples"):
        judge("vbit", np.ones((4, 33), np.float32), bytes(200))
