"""Two ways to write one model: what no oracle has, held against what one has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cmfspec.codecs import CODECS
from cmfspec.contract.compare import LOGITS, largest_difference
from cmfspec.engine import weights
from cmfspec.engine.arch import Moe, Yarn
from cmfspec.engine.moe import route
from cmfspec.engine.ops import rms
from cmfspec.engine.rope import Rope, frequencies
from cmfspec.format.blueprint import Blueprint
from tests.oracle import answers, arrays, blueprint, edited, model, run

F32 = np.float32


def same(first: Blueprint, second: Blueprint, other: Blueprint | None = None) -> None:
    """Both files are one model; `other`, the control, is another."""
    ids = np.random.default_rng(2).integers(0, 80, 40)
    got = run(first).logits(ids)
    assert largest_difference(run(second).logits(ids), got) <= LOGITS
    if other is not None:
        assert largest_difference(run(other).logits(ids), got) > 10 * LOGITS


def test_a_pattern_of_windows_is_the_tags_that_it_means() -> None:
    """Every second layer is full; tags, where there are any, win."""
    plan = blueprint("llama")
    full = ["FullAttention", "FullAttention"]
    tags = edited(plan, sliding_window=8, layer_types=["SlidingAttention", "FullAttention"])
    same(tags, edited(plan, sliding_window=8, sliding_window_pattern=2, layer_types=full), plan)
    same(
        tags,
        edited(plan, sliding_window=8, sliding_window_pattern=5, layer_types=["SlidingAttention", "FullAttention"]),
    )


def test_queries_without_a_latent_are_those_with_one_that_changes_nothing() -> None:
    """DeepSeek's smaller models have `q_proj`."""
    hidden, eye = 64, np.eye(64, dtype=F32)
    at = [f"model.layers.{layer}." for layer in (0, 1)]
    rows = np.random.default_rng(4).normal(0, 0.2, (32, hidden)).astype(F32)
    ones = {f"{one}input_layernorm.weight": np.ones(hidden, F32) for one in at}
    latent, plain = dict(ones), dict(ones)
    for one in at:
        latent |= {f"{one}self_attn.q_a_proj.weight": eye, f"{one}self_attn.q_a_layernorm.weight": np.ones(hidden, F32)}
        latent[f"{one}self_attn.q_b_proj.weight"] = rows
        plain[f"{one}self_attn.q_proj.weight"] = rows
    drop = tuple(f"{one}self_attn.{name}.weight" for one in at for name in ("q_a_proj", "q_a_layernorm", "q_b_proj"))
    plan = edited(blueprint("deepseek_v3"), rms_norm_eps=1e-12)  # then a norm of what is normed is what it was
    same(edited(plan, latent), edited(plan, plain, drop), plan)


def test_yarns_mscale_scales_the_scores_of_latent_attention() -> None:
    """(0.1·mscale·ln factor + 1)², which the queries may carry as well."""
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.0}
    plan = blueprint("deepseek_v3")
    scaled = {
        name: value * F32((0.1 * 0.7 * np.log(4) + 1) ** 2)
        for name, value in arrays(plan).items()
        if "q_b_proj" in name and "mtp" not in name
    }
    same(edited(plan, yarn={**yarn, "mscale_all_dim": 0.7}), edited(plan, scaled, yarn=yarn), edited(plan, yarn=yarn))


def test_a_gate_per_channel_may_be_a_gate_per_head() -> None:
    """HDR-027: rows for heads, or for all of their channels."""
    plan, changes = blueprint("laguna"), {}
    for name, value in arrays(plan).items():
        if name.endswith("g_proj.weight"):
            changes[name] = value.repeat(16, axis=0)
    same(plan, edited(plan, changes), edited(plan, {name: value[::-1] for name, value in changes.items()}))


def test_a_multiplier_of_logits_is_a_head_multiplied() -> None:
    """Before the cap."""
    plan = edited(blueprint("gemma2"), {"lm_head.weight": arrays(blueprint("gemma2"))["model.embed_tokens.weight"]})
    head = {"lm_head.weight": arrays(plan)["lm_head.weight"] * F32(0.5)}
    same(edited(plan, logit_multiplier=0.5), edited(plan, head), plan)


def test_key_heads_are_shared_by_neighbours() -> None:
    """Head h takes key head h // group: repeated keys and values are the same model, in that order only."""
    plan = blueprint("qwen3")
    heads = {n: v for n, v in arrays(plan).items() if "k_proj" in n or "v_proj" in n}
    wide = {n: v.reshape(2, 16, -1).repeat(3, axis=0).reshape(96, -1) for n, v in heads.items()}
    wrong = {n: np.tile(v, (3, 1)) for n, v in heads.items()}
    same(plan, edited(plan, wide, num_kv_heads=6), edited(plan, wrong, num_kv_heads=6))


@pytest.mark.parametrize("family", ["llama", "gemma"])
@pytest.mark.parametrize("room", [0, 2**30])
def test_what_is_kept_decoded_changes_nothing(family: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor whether rows of the embedding are read out of the file."""
    monkeypatch.setattr(weights, "CACHE_BYTES", room)
    engine = run(blueprint(family))
    ids = answers(family)["token_ids"][0]
    assert np.array_equal(engine.logits(ids), model(family).logits(ids))
    assert np.array_equal(engine.logits(ids), model(family).logits(ids))
    assert bool(engine.weights.cache) == bool(room)


def test_plain_floats_are_the_encodings_whose_rows_lie_one_behind_the_other() -> None:
    """By their own table of sizes."""
    for codec in CODECS.values():
        width = weights.PLAIN.get(codec.name)
        if width is not None:
            assert codec.nbytes
            assert codec.nbytes(7 * 5, 7, 5) == width * 35


@pytest.mark.parametrize(("original", "theta"), [(64, 1e4), (8, 1e4), (4096, 1e6), (10**6, 1e3)])
def test_yarn_blends_between_two_turns(original: int, theta: float) -> None:
    """Frequencies that turn more than beta_fast times in the old context stay, those below beta_slow are divided; also where
    the old context is so short, or so long, that an end of the ramp lies outside of them."""
    dim, factor = 16, 4.0
    turns = [original / (2 * math.pi * theta ** (2 * i / dim)) for i in range(dim // 2)]
    place = [dim * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(theta)) for beta in (32, 1)]
    low, high = max(math.floor(place[0]), 0), min(math.ceil(place[1]), dim - 1)
    want = []
    for i in range(dim // 2):
        ramp = min(max((i - low) / (high - low or 0.001), 0), 1)
        want.append(theta ** (-2 * i / dim) * ((1 - ramp) + ramp / factor))
    got = frequencies(Rope(dim, theta, Yarn(factor, original, 1.0)))
    assert got.tolist() == pytest.approx(want, rel=1e-5)
    kept = [i for i, turn in enumerate(turns) if turn > 32 * theta ** (2 / dim)]
    assert got[kept].tolist() == pytest.approx([theta ** (-2 * i / dim) for i in kept], rel=1e-5)


def routed(logits: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Chosen experts and weights of one token."""
    moe = Moe(len(logits), options.pop("top_k", 2), router_sigmoid=options.pop("sigmoid", False))
    with np.errstate(over="ignore"):
        chosen, weight = route(np.array([logits], F32), moe, options.pop("normalise", False), **options)
    return chosen[0].tolist(), weight[0].tolist()


def test_of_equal_experts_the_lower_is_chosen() -> None:
    """MOE-005."""
    assert routed([1, 3, 3, 3, 0])[0] == [1, 2]
    assert routed([0, 0, 0, 0], top_k=3)[0] == [0, 1, 2]
    assert routed([0, 1] * 100, top_k=50)[0] == list(range(1, 100, 2))


def test_a_router_is_a_softmax_over_all_that_are_routable() -> None:
    """MOE-004, MOE-006, MOE-013, MOE-014, MOE-016."""
    logits = np.log([4.0, 3.0, 2.0, 1.0])
    assert routed(logits) == ([0, 1], pytest.approx([0.4, 0.3]))
    assert routed(logits, normalise=True) == ([0, 1], pytest.approx([4 / 7, 3 / 7]))
    assert routed(logits, top_k=9) == ([0, 1, 2, 3], pytest.approx([0.4, 0.3, 0.2, 0.1]))
    without = np.array([False, True, True, True])
    assert routed(logits, routable=without) == ([1, 2], pytest.approx([3 / 6, 2 / 6]))
    assert routed(logits, routable=np.array([False, False, True, False])) == ([2], [1])


def test_a_bias_changes_the_choice_and_not_the_weight() -> None:
    """MOE-012; a masked expert stays out whatever its bias."""
    logits, bias = np.array([0.0, -1.0, -2.0]), np.array([0, 0, 5], F32)
    sigma = 1 / (1 + np.exp(-logits))
    assert routed(logits, sigmoid=True, bias=bias) == ([2, 0], pytest.approx([sigma[2], sigma[0]]))
    live = np.array([True, True, False])
    assert routed(logits, sigmoid=True, bias=bias, routable=live) == ([0, 1], pytest.approx([sigma[0], sigma[1]]))
    assert routed([-200.0, -200.0], sigmoid=True, normalise=True)[1] == [0, 0]


def test_a_norm_of_huge_numbers_is_no_zero() -> None:
    """Their squares are more than float32 holds."""
    assert rms(np.full((1, 4), 3e38, F32), 1e-6).tolist() == [[1, 1, 1, 1]]
