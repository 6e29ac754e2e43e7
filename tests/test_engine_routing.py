"""Which skill a prompt belongs to (§9): φ is the oracle's, E the text's formula, and what can't be understood is refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cmfspec.contract.compare import LOGITS, largest_difference
from cmfspec.engine import block, routing
from cmfspec.engine.routing import phis, route, subspaces
from cmfspec.errors import Unanswerable, Unrunnable
from cmfspec.format.blueprint import Blueprint
from cmfspec.format.build import render
from golden.models import small
from runner.cli import cli
from tests.oracle import answers, model, run, stored

TOKENS = (3, 17, 5, 9, 1, 38)
WIDE = 32  # of the small model


def text(values: Any) -> str:
    return base64.b64encode(np.asarray(values, "<f2").tobytes()).decode()


def selection(seed: int, rank: int = 2, **changes: Any) -> dict[str, Any]:
    """A subspace of orthonormal rows."""
    dice = np.random.default_rng(seed)
    basis = np.linalg.qr(dice.normal(size=(WIDE, rank)))[0].T
    mean = dice.normal(size=WIDE) / 8
    return {"metric": "mse", "phi_layer": 0, "mean": text(mean), "basis": text(basis), **changes}


def with_selections(*selections: Any) -> Blueprint:
    plan = small("plain")
    records = [{"id": f"s{place}", "selection": given} for place, given in enumerate(selections)]
    return replace(plan, header={**plan.header, "skills": records})


def test_phi_is_the_mean_of_the_oracles_residual_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the layer, before the final norm; in one piece or several."""
    ids, engine = answers("qwen3")["token_ids"][0], model("qwen3")
    want = stored("qwen3_skills.npz")["phi0"]
    assert largest_difference(phis(engine, ids, [0])[0], want.astype(np.float32)) <= LOGITS
    out = answers("qwen3")["layer_out"][0] if "layer_out" in answers("qwen3") else None
    found = phis(engine, ids, range(engine.arch.num_layers))
    for layer, phi in found.items():
        if out is not None:
            assert largest_difference(phi, out[layer].mean(axis=0)) <= LOGITS
    monkeypatch.setattr(routing, "CHUNK", 7)
    for layer, phi in phis(engine, ids, range(engine.arch.num_layers)).items():
        assert largest_difference(phi, found[layer]) <= LOGITS
    assert block.CHUNK > 7


def test_energy_is_the_share_that_lies_outside() -> None:
    """By the text's formula, with the projector written out."""
    engine = run(with_selections(selection(1), selection(2, rank=5, phi_layer=1)))
    ranked = dict(route(engine, TOKENS))
    for space in subspaces(engine):
        phi = phis(engine, TOKENS, [space.layer])[space.layer].astype(np.float64)
        r = phi - space.mean
        projector = space.basis.astype(np.float64).T @ space.basis
        want = np.linalg.norm(r - projector @ r) ** 2 / np.linalg.norm(phi) ** 2
        assert ranked[space.identity] == pytest.approx(want, rel=1e-6)
    assert list(ranked.values()) == sorted(ranked.values())
    assert len(ranked) == 2


def test_a_prompt_belongs_to_the_skill_whose_mean_is_its_phi() -> None:
    """E is then next to nothing; and among equals the first registered wins."""
    phi = phis(run(small("plain")), TOKENS, [1])[1]
    near = selection(3, mean=text(phi), phi_layer=1)
    found = route(run(with_selections(selection(4), near, selection(5), near)), TOKENS)
    assert [identity for identity, _ in found[:2]] == ["s1", "s3"]
    assert found[0][1] == found[1][1] < 1e-4 < found[2][1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": "mse_unit"}, "SKILL-008"),
        ({"metric": None}, "SKILL-008"),
        ({"phi_layer": 2}, "phi_layer"),
        ({"phi_layer": -1}, "phi_layer"),
        ({"phi_layer": True}, "phi_layer"),
        ({"mean": "?"}, "base64"),
        ({"mean": None}, "base64"),
        ({"mean": text(np.zeros(WIDE + 1))}, "rows of 32 halves"),
        ({"mean": text(np.zeros(2 * WIDE))}, "64 values"),
        ({"basis": ""}, "0 bytes"),
        ({"basis": text(np.full(WIDE, np.nan))}, "finite"),
        ({"rank": 3}, "rank"),
    ],
)
def test_a_selection_that_cannot_be_understood_is_refused(changes: dict[str, Any], said: str) -> None:
    """By the field's name."""
    with pytest.raises(Unrunnable, match=said):
        route(run(with_selections({**selection(1), **changes})), TOKENS)


def test_nothing_to_choose_from_is_no_answer() -> None:
    """Nor is a prompt of no tokens, or of one that doesn't exist."""
    with pytest.raises(Unanswerable, match="SKILL-008"):
        route(run(with_selections(None)), TOKENS)
    for tokens in ((), (40,)):
        with pytest.raises(Unanswerable, match="tokens"):
            route(run(with_selections(selection(1))), tokens)


def test_the_command_ranks_them(tmp_path: Path) -> None:
    """For people and for machines."""
    path = tmp_path / "m.cmf"
    path.write_bytes(render(with_selections(selection(1), selection(2))))
    ids = ",".join(map(str, TOKENS))
    told = CliRunner().invoke(cli, ["route", str(path), "--tokens", ids, "--json"])
    ranked = json.loads(told.output)["skills"]
    assert [(row["skill"], row["energy"]) for row in ranked] == route(
        run(with_selections(selection(1), selection(2))), TOKENS
    )
    shown = CliRunner().invoke(cli, ["route", str(path), "--tokens", ids])
    assert shown.exit_code == 0
    assert shown.output.split()[1] == ranked[0]["skill"]
    assert CliRunner().invoke(cli, ["route", str(path)]).exit_code == 2
