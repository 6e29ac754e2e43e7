"""The forward against Hugging Face's float32 logits, family by family, and against itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.contract.compare import LOGITS, LOGITS_GDN, NLL_RELATIVE, largest_difference
from cmfspec.engine import load
from cmfspec.engine.gdn import Memory
from cmfspec.engine.rope import Rope, angles
from cmfspec.engine.state import Past
from cmfspec.format.blueprint import Blueprint
from cmfspec.tools.pack import QUANTS, pack
from tests.oracle import (
    FAMILIES,
    MODELS,
    Tensors,
    answers,
    arrays,
    blueprint,
    edited,
    entries,
    model,
    needed,
    run,
)

ROWS = range(2)
every_family = pytest.mark.parametrize("family", FAMILIES)


def bar(family: str) -> float:
    """The tolerance of a family."""
    return LOGITS_GDN if "LinearAttention" in model(family).arch.layer_types else LOGITS


@every_family
def test_logits_are_those_of_the_oracle(family: str) -> None:
    """Every position of every row."""
    for row in ROWS:
        got = model(family).logits(answers(family)["token_ids"][row])
        assert got.dtype == np.float32
        assert largest_difference(got, answers(family)["logits"][row]) <= bar(family)


@every_family
def test_greedy_continuations_are_those_of_the_oracle(family: str) -> None:
    """Token by token."""
    for row in ROWS:
        want = answers(family)["greedy"][row].tolist()
        assert list(model(family).generate(answers(family)["token_ids"][row], len(want))) == want


@every_family
@pytest.mark.parametrize("split", [[1] * 24, [5] + [1] * 19, [9, 2, 13]], ids=["ones", "prompt-then-ones", "pieces"])
def test_prefill_and_step_by_step_agree(family: str, split: list[int]) -> None:
    """However the tokens are split over calls."""
    ids = answers(family)["token_ids"][0]
    whole = model(family).logits(ids)
    assert largest_difference(model(family).logits(ids, split), whole) <= bar(family)
    assert largest_difference(model(family).logits(ids, split, rows="last"), whole[-1:]) <= bar(family)


@every_family
def test_the_likelihood_is_that_of_the_oracle(family: str) -> None:
    """The mean over the predicted tokens, float64 over float32 logits."""
    for row in ROWS:
        ids = answers(family)["token_ids"][row]
        logits = model(family).logits(ids)[:-1].astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        lost = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0] - logits[np.arange(len(logits)), ids[1:]]
        assert lost.mean() == pytest.approx(answers(family)["nll"][row], rel=NLL_RELATIVE)


def arrays_of(node: Any) -> Iterator[Any]:
    """The arrays of a state."""
    if isinstance(node, Past):
        yield from (node.keys, node.values)
    elif isinstance(node, Memory):
        yield from (node.history, node.state)
    else:
        yield node


@every_family
def test_everything_stays_float32(family: str) -> None:
    """The stream, and what each layer remembers."""
    hidden, state = model(family).advance(model(family).start(), [1, 2, 3])
    kept = [array for past in state.past for array in arrays_of(past)]
    assert kept
    assert {array.dtype for array in (hidden, *kept)} == {np.dtype(np.float32)}


@every_family
def test_a_state_can_be_gone_on_from_more_than_once(family: str) -> None:
    """No continuation sees another, whichever came first and whichever is longer."""
    engine, ids = model(family), answers(family)["token_ids"][0]
    _, state = engine.advance(engine.start(), ids[:12])
    _, first = engine.advance(state, ids[12:17])
    want, _ = engine.advance(first, ids[17:])
    _, second = engine.advance(state, ids[:9])
    for past, rest in ((first, ids[17:]), (second, ids[:3]), (first, ids[17:]), (state, ids[:9])):
        got, _ = engine.advance(past, rest)
        if past is first:
            assert np.array_equal(got, want)


def test_a_long_text_goes_through_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a chunk changes nothing."""
    for family in ("mistral", "qwen3_5", "deepseek_v3"):
        ids = np.random.default_rng(1).integers(0, 80, 200)
        with monkeypatch.context() as patch:
            whole = model(family).logits(ids)
            patch.setattr("cmfspec.engine.model.CHUNK", 7)
            # 2e-3: what 200 tokens of a Gated DeltaNet differ by between any two orders of summation
            assert largest_difference(model(family).logits(ids), whole) <= (2e-3 if bar(family) > LOGITS else LOGITS)


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen2_moe", "qwen3_next", "qwen3_5_moe"])
def test_experts_in_one_bank_are_the_experts_one_by_one(family: str) -> None:
    """[experts, 2·width, hidden] of gate rows and then up rows, and [experts, hidden, width]."""
    tensors = arrays(blueprint(family))
    banks: Tensors = {}
    for stem in {name.split("experts.")[0] + "experts." for name in tensors if "mlp.experts." in name}:
        count = sum(name.startswith(stem) and name.endswith("gate_proj.weight") for name in tensors)
        parts = [
            [tensors.pop(f"{stem}{e}.{role}_proj.weight") for e in range(count)] for role in ("gate", "up", "down")
        ]
        banks[f"{stem}gate_up_proj"] = np.concatenate([np.stack(parts[0]), np.stack(parts[1])], axis=1)
        banks[f"{stem}down_proj"] = np.stack(parts[2])
    assert banks
    fused = run(replace(blueprint(family), tensors=entries({**tensors, **banks})))
    ids = answers(family)["token_ids"][0]
    assert largest_difference(fused.logits(ids), model(family).logits(ids)) <= bar(family)


@every_family
def test_no_name_of_an_architecture_is_looked_at(family: str) -> None:
    """HDR-018: the same tensors are the same model."""
    engine = run(edited(blueprint(family), arch_name="zzz"))
    assert np.array_equal(engine.logits([3, 5, 9]), model(family).logits([3, 5, 9]))


# A field or a tensor changed, and by how much more than the tolerance the logits must move: what is tested above is then seen.
FAULTS = (
    ("llama", {"rms_norm_eps": 1e-4}, 5),
    ("llama", {"rope_theta": 10000.0}, 100),
    ("llama3rope", {"rope_freq_factors": None}, 100),
    ("llama_yarn", {"yarn": None}, 100),
    ("mistral", {"sliding_window": 9}, 100),
    ("gemma2", {"attn_logit_softcapping": None}, 100),
    ("gemma2", {"final_logit_softcapping": None}, 100),
    ("gemma2", {"query_pre_attn_scalar": None}, 100),
    ("gemma", {"hidden_act": None}, 100),
    ("gemma", {"embed_multiplier": None}, 100),
    ("gemma3", {"rope_local_base_freq": None, "local_partial_rotary_factor": None}, 100),
    ("qwen3_5", {"partial_rotary_factor": 0.25}, 100),
    ("qwen3_5", {"norm_style": "qwen"}, 100),
    ("laguna", {"local_partial_rotary_factor": 0.5}, 100),
)


@pytest.mark.parametrize(("family", "fields", "factor"), FAULTS, ids=[f"{f}-{'-'.join(c)}" for f, c, _ in FAULTS])
def test_a_field_that_is_read_moves_the_logits(family: str, fields: dict[str, Any], factor: float) -> None:
    """And by more than any tolerance hides."""
    ids = answers(family)["token_ids"][0]
    engine = run(edited(blueprint(family), **fields))
    assert largest_difference(engine.logits(ids), answers(family)["logits"][0]) > factor * LOGITS


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("qwen2", "model.layers.0.self_attn.k_proj.bias"),
        ("qwen3", "model.layers.0.self_attn.q_norm.weight"),
        ("laguna", "model.layers.1.self_attn.g_proj.weight"),
        ("gpt_oss", "model.layers.1.self_attn.sinks"),
        ("deepseek_v3", "model.layers.1.mlp.expert_bias"),
        ("qwen2_moe", "model.layers.1.mlp.shared_expert_gate.weight"),
    ],
)
def test_each_optional_tensor_is_applied_iff_it_is_there(family: str, name: str) -> None:
    """One by one (HDR-019, HDR-020)."""
    engine = run(edited(blueprint(family), drop=(name,)))
    ids = answers(family)["token_ids"][0]
    assert largest_difference(engine.logits(ids), answers(family)["logits"][0]) > 10 * LOGITS


def test_widths_of_a_gated_delta_net_may_be_left_to_the_tensors() -> None:
    """The text's own example has neither key nor value width, nor `linear_core`."""
    fields = dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_core", "linear_conv_kernel_dim"))
    engine = run(edited(blueprint("qwen3_5"), **fields))
    assert np.array_equal(engine.logits([3, 5, 9]), model("qwen3_5").logits([3, 5, 9]))


def test_members_that_are_null_say_nothing() -> None:
    """HDR-024, also inside an object."""
    plan = blueprint("qwen2_moe")
    moe = {**plan.header["arch"]["moe"], "routed_scaling_factor": None}
    arch = {**plan.header["arch"], "moe": moe, "mtp": None, "yarn": None, "partial_rotary_factor": None}
    engine = run(replace(plan, header={**plan.header, "arch": arch}))
    assert np.array_equal(engine.logits([3, 5, 9]), model("qwen2_moe").logits([3, 5, 9]))


@pytest.mark.parametrize("quant", sorted(set(QUANTS.values())))
@pytest.mark.parametrize("family", ["qwen2", "gemma2", "qwen3_5", "lfm2_moe"])
def test_a_packed_model_is_the_model_of_its_decoded_weights(family: str, quant: str, tmp_path: Path) -> None:
    """ENG-003, in every encoding, from a folder to logits."""
    pack(needed(MODELS / family), str(tmp_path / "model.cmf"), quant)
    packed = cmfspec.open(tmp_path / "model.cmf")
    decoded = {tensor.name: packed.values(tensor.index) for tensor in packed}
    plan = Blueprint(packed.header, entries(decoded))
    ids = answers(family)["token_ids"][0]
    got = load(packed).logits(ids)
    assert largest_difference(got, run(plan).logits(ids)) <= bar(family)
    assert largest_difference(got, answers(family)["logits"][0]) > 10 * LOGITS  # norms at least are halves


def test_angles_are_float32_at_any_position() -> None:
    """At a million positions float64 angles would be 3e-2 away."""
    cos, sin = angles(Rope(16, 500000.0), 10**6, 1)
    inverse = np.float32(1) / np.power(np.float32(500000), np.arange(0, 16, 2, dtype=np.float32) / 16)
    angle = (np.float32(10**6) * inverse).astype(np.float64)
    assert cos.dtype == sin.dtype == np.float32
    assert np.abs(np.stack([cos[0] - np.cos(angle), sin[0] - np.sin(angle)])).max() < 1e-6
