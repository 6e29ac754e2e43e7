"""Choosing tokens: greedy, by chance, and with a head that drafts (§2.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cmfspec.contract.compare import LOGITS, LOGITS_GDN, largest_difference
from cmfspec.engine import Drafts, Model
from cmfspec.engine.mtp import draft
from cmfspec.engine.sample import greedy, sampled
from cmfspec.errors import Unrunnable
from cmfspec.format.blueprint import Blueprint
from tests.oracle import answers, arrays, blueprint, edited, masked, model, run

DRAFTING = {"qwen3_5_mtp": LOGITS_GDN, "deepseek_v3": LOGITS}


@pytest.mark.parametrize("family", DRAFTING)
@pytest.mark.parametrize("cut", [0, 1, 17])
def test_drafts_are_those_of_the_oracle(family: str, cut: int) -> None:
    """Row p drafts token p + 2; in two calls as in one."""
    engine = model(family)
    assert engine.mtp is not None
    for row in range(2):
        ids = answers(family)["mtp_input_ids"][row]
        hidden, state = engine.advance(engine.start(), ids)
        ahead = engine.embedded(state.weights, ids[1:])
        past, parts = None, []
        for piece in (slice(cut), slice(cut, len(ahead))):
            if len(ahead[piece]):
                part, past = draft(engine.arch, state.weights, engine.mtp, ahead[piece], hidden[:-1][piece], past)
                parts.append(part)
        got = engine.scores(state, np.concatenate(parts))
        assert largest_difference(got, answers(family)["mtp_logits"][row]) <= DRAFTING[family]


def mostly_right(family: str, share: float) -> Blueprint:
    """A model whose blocks add only a share of what they did, and a head that drafts as such a model would go on."""
    tensors = arrays(blueprint(family))
    changes: dict[str, Any] = {
        name: value * np.float32(share)
        for name, value in tensors.items()
        if name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight"))
    }
    hidden = tensors["model.mtp.enorm.weight"].shape[0]
    ones = np.full(hidden, 0 if blueprint(family).header["arch"]["norm_style"] == "gemma" else 1, np.float32)
    changes["model.mtp.eh_proj.weight"] = np.concatenate([np.eye(hidden), np.zeros((hidden, hidden))], axis=1)
    changes |= {"model.mtp.enorm.weight": ones, "model.mtp.norm.weight": tensors["model.norm.weight"]}
    return edited(blueprint(family), changes)


@pytest.mark.parametrize("family", DRAFTING)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_drafting_gives_the_greedy_tokens(family: str, share: float) -> None:
    """MTP-007, with drafts that are always right, now and then, and never."""
    engine, counts = run(mostly_right(family, share)), Drafts()
    dice = np.random.default_rng(3)
    for _ in range(6):
        prompt = dice.integers(0, engine.arch.vocab_size, 9)
        assert list(engine.generate(prompt, 24, mtp=counts)) == list(engine.generate(prompt, 24))
    if share == 0:
        assert counts.accepted == counts.proposed == counts.calls
    if share == 0.3:
        assert 0 < counts.accepted < counts.proposed


def test_drafting_under_a_mask_is_greedy_under_it() -> None:
    """The head has no row in a mask, and runs whole; what it drafts is verified by what the mask leaves."""
    bits = {
        "ffn": np.arange(128).reshape(2, 64) % 3 > 0,
        "heads": [[True, True], [True, False]],
        "gates": [False, True],
    }
    engine, counts = run(masked(mostly_right("qwen3_5_mtp", 0.3), task=bits)), Drafts()
    differing = 0
    for start in range(4):
        prompt = range(start, start + 7)
        want = list(engine.generate(prompt, 20, task="task"))
        assert list(engine.generate(prompt, 20, task="task", mtp=counts)) == want
        differing += list(engine.generate(prompt, 20)) != want
    assert counts.accepted
    assert differing


@pytest.mark.parametrize("family", DRAFTING)
def test_drafting_gives_the_greedy_tokens_where_logits_are_equal(family: str) -> None:
    """Every token has a twin with the same logit: what is verified must be the very bits that greedy decoding sees."""
    plan = mostly_right(family, 0.3)
    tensors = arrays(plan)
    name = "lm_head.weight" if "lm_head.weight" in tensors else "model.embed_tokens.weight"
    half = len(tensors[name]) // 2
    engine = run(edited(plan, {name: np.concatenate([tensors[name][:half]] * 2)}))
    for start in range(4):
        prompt = range(start, start + 7)
        assert list(engine.generate(prompt, 40, mtp=Drafts())) == list(engine.generate(prompt, 40))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3_5", "lfm2", "deepseek_v3"])
def test_walking_is_stepping_bit_for_bit(family: str) -> None:
    """And every state on the way can be gone on from."""
    engine = model(family)
    _, start = engine.advance(engine.start(), [3, 5, 9])
    walked, states = engine.walk(start, [7, 2, 11])
    state = start
    for place, token in enumerate([7, 2, 11]):
        stepped, state = engine.advance(state, [token])
        assert np.array_equal(walked[place : place + 1], stepped)
        again, _ = engine.advance(states[place], [1, 4])
        assert np.array_equal(again, engine.advance(state, [1, 4])[0])


@pytest.mark.parametrize("drafts", [None, Drafts()], ids=["greedy", "drafted"])
def test_generation_ends_at_a_stop_id_at_the_limit_and_with_the_context(drafts: Drafts | None) -> None:
    """The stop id isn't given; the last token needs no position."""
    plan = edited(mostly_right("deepseek_v3", 0.1), max_position_embeddings=20)
    header = {**plan.header, "tokenizer_config": {"eos_token_ids": [79]}}
    engine = run(replace(plan, header=header))
    prompt = [3, 5, 9]
    whole = list(engine.generate(prompt, 100, stop=(), mtp=drafts))
    assert len(whole) == 20 - 3 + 1
    assert list(engine.generate(prompt, 4, stop=(), mtp=drafts)) == whole[:4]
    assert list(engine.generate(prompt, 0, mtp=drafts)) == []
    stop = whole[6]
    assert list(engine.generate(prompt, 100, stop=[stop], mtp=drafts)) == whole[: whole.index(stop)]
    assert engine.stops == {79}
    ending = run(replace(plan, header={**header, "tokenizer_config": {"eos_token_ids": [5, stop]}}))
    assert (
        list(ending.generate(prompt, 100, mtp=drafts)) == whole[: min(whole.index(t) for t in (5, stop) if t in whole)]
    )
    full = list(engine.generate(range(20), 100, stop=(), mtp=drafts))
    assert len(full) == 1
    with pytest.raises(Unrunnable, match="21 positions, wanted at most max_position_embeddings, 20"):
        list(engine.generate(range(21), 100, mtp=drafts))


def test_greedy_takes_the_first_of_equals() -> None:
    """The lowest index."""
    assert greedy(np.array([0, 3, 1, 3], np.float32)) == 1


def test_draws_follow_the_probabilities() -> None:
    """Of the smallest set that reaches top_p, each as often as it should be, and nothing else."""
    chances = np.array([0.1, 0.4, 0.2, 0.3])
    logits, dice = np.log(chances).astype(np.float32), np.random.default_rng(5)
    for top_p, kept in ((1.0, [0, 1, 2, 3]), (0.75, [1, 2, 3]), (0.65, [1, 3]), (0.05, [1])):
        seen = np.bincount([sampled(logits, 1.0, top_p, dice) for _ in range(4000)], minlength=4) / 4000
        want = np.where(np.isin(range(4), kept), chances, 0)
        assert np.abs(seen - want / want.sum()).max() < 0.04
        assert (seen[want == 0] == 0).all()
    cold = {sampled(logits, 0.01, 1.0, dice) for _ in range(50)}
    assert cold == {1}


def test_a_seed_repeats_a_draw() -> None:
    """And another seed gives another."""
    engine = model("llama")

    def drawn(seed: int) -> list[int]:
        return list(engine.generate([3, 5, 9], 12, temperature=1.5, top_p=0.9, seed=seed))

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("llama", {"temperature": -1.0}, "ENG-002"),
        ("llama", {"temperature": float("nan")}, "ENG-002"),
        ("llama", {"top_p": 0.0}, "ENG-002"),
        ("llama", {"top_p": 1.5}, "ENG-002"),
        ("llama", {"seed": -1}, "ENG-002"),
        ("llama", {"mtp": Drafts()}, "MTP-001"),
        ("qwen3_5_mtp", {"mtp": Drafts(), "temperature": 1.0}, "MTP-007"),
    ],
)
def test_choices_that_mean_nothing_are_refused(family: str, options: dict[str, Any], words: str) -> None:
    """By name."""
    engine: Model = model(family)
    with pytest.raises(Unrunnable, match=words):
        list(engine.generate([3, 5, 9], 4, **options))
