"""Skills in the forward (§9): the overlay is the file with the tensor replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.contract.compare import LOGITS, largest_difference
from cmfspec.engine import load
from cmfspec.errors import Unrunnable
from cmfspec.format.blueprint import Blueprint
from tests.oracle import answers, blueprint, edited, entries, masked, run, stored
from tests.shared import INTEROP, needs_interop

GATE, DOWN = "model.layers.1.mlp.gate_proj.weight", "model.layers.0.mlp.down_proj.weight"
BLEND = {"A": 0.7, "B": 0.3}


def with_skills(*records: Any) -> Blueprint:
    """qwen3 with the oracle's skills."""
    skills = stored("qwen3_skills.npz")
    changes = {
        f"skill.A.{GATE}": skills["A_gate"],
        f"skill.B.{GATE}": skills["B_gate"],
        f"skill.B.{DOWN}": skills["B_down"],
    }
    plan = edited(blueprint("qwen3"), changes)
    return replace(plan, header={**plan.header, "skills": list(records or ({"id": "A"}, {"id": "B"}))})


@pytest.mark.parametrize(
    ("skill", "key"), [("A", "skillA"), ("B", "skillB"), (BLEND, "blend")], ids=["A", "B", "blend"]
)
def test_an_active_skill_replaces_its_tensors(skill: Any, key: str) -> None:
    """And a blend is per tensor, the backbone standing in."""
    engine = run(with_skills())
    for row, ids in enumerate(answers("qwen3")["token_ids"]):
        want = stored("qwen3_skills.npz")[f"{key}_logits"][row]
        assert largest_difference(engine.logits(ids, skill=skill), want) <= LOGITS
        assert largest_difference(engine.logits(ids, [5] + [1] * 19, skill=skill), want) <= LOGITS
        assert largest_difference(engine.logits(ids), answers("qwen3")["logits"][row]) <= LOGITS


def test_a_skill_is_the_file_with_the_tensor_replaced() -> None:
    """Bit for bit."""
    skills = stored("qwen3_skills.npz")
    replaced = run(edited(blueprint("qwen3"), {GATE: skills["B_gate"], DOWN: skills["B_down"]}))
    ids = answers("qwen3")["token_ids"][0]
    assert np.array_equal(run(with_skills()).logits(ids, skill="B"), replaced.logits(ids))


def test_a_skill_is_known_by_its_record_or_by_its_tensors() -> None:
    """SKILL-017; a record without tensors is the backbone."""
    engine = run(with_skills({"id": "empty"}))
    ids = answers("qwen3")["token_ids"][0]
    assert np.array_equal(engine.logits(ids, skill="A"), run(with_skills()).logits(ids, skill="A"))
    assert np.array_equal(engine.logits(ids, skill="empty"), engine.logits(ids))


def test_the_task_of_a_skill_comes_with_it() -> None:
    """SKILL-020; a task that is named wins."""
    bits = np.ones((2, 96), bool)
    bits[:, ::2] = False
    engine = run(masked(with_skills({"id": "A", "input_mask_task": "half"}), half={"ffn": bits}))
    ids = answers("qwen3")["token_ids"][0]
    assert np.array_equal(engine.logits(ids, skill="A"), engine.logits(ids, task="half", skill="A"))
    assert largest_difference(engine.logits(ids, task="dense", skill="A"), engine.logits(ids, skill="A")) > LOGITS


@pytest.mark.parametrize(
    ("skill", "records", "words"),
    [
        ("C", (), "SKILL-019"),
        ("a", (), "SKILL-019"),
        ("A.model", (), "SKILL-003"),  # its tensors then have names that replace nothing
        ({"A": 0.5, "C": 0.5}, (), "SKILL-019"),
        ({"A": float("nan")}, (), "SKILL-010"),
        ({"A": 0.5}, (), "SKILL-010"),
        ({"A": 1.5, "B": -0.5}, (), "SKILL-010"),
        ("A", ({"id": 5},), "SKILL-006"),
        ("A", (5,), "SKILL-006"),
    ],
)
def test_a_skill_that_cannot_be_had_is_refused(skill: Any, records: tuple[Any, ...], words: str) -> None:
    """Never the backbone in its place."""
    with pytest.raises(Unrunnable, match=words):
        run(with_skills(*records)).logits([3, 5, 9], skill=skill)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [(GATE, (95, 64), "SKILL-002"), ("model.layers.9.mlp.gate_proj.weight", (96, 64), "SKILL-003")],
)
def test_an_overlay_has_the_shape_of_what_it_replaces(name: str, shape: tuple[int, ...], words: str) -> None:
    """And replaces something. Other skills of the file still run."""
    plan = with_skills()
    bad = {f"skill.bad.{name}": np.zeros(shape, np.float32)}
    engine = run(replace(plan, tensors=(*plan.tensors, *entries(bad))))
    with pytest.raises(Unrunnable, match=words):
        engine.logits([3, 5, 9], skill="bad")
    assert np.isfinite(engine.logits([3, 5, 9], skill="A")).all()


@needs_interop
def test_a_skill_that_was_applied_is_the_specialist() -> None:
    """On files that the reference tools wrote."""
    names = ("skill-applied", "skill-specialist", "skill-base")
    applied, specialist, base = (
        load(cmfspec.open(INTEROP / "rust" / f"{name}.cmf")).logits([3, 5, 9]) for name in names
    )
    assert np.array_equal(applied, specialist)
    assert largest_difference(applied, base) > LOGITS


def test_the_skills_differ() -> None:
    """Or nothing above would mean anything."""
    engine, ids = run(with_skills()), answers("qwen3")["token_ids"][0]
    seen = [engine.logits(ids, skill=skill) for skill in (None, "A", "B", BLEND)]
    assert all(largest_difference(a, b) > 10 * LOGITS for i, a in enumerate(seen) for b in seen[:i])
