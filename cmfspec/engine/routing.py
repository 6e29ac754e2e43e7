"""Which skill a prompt belongs to: recon-argmin over φ (§9).

Law: φ is the mean over the prompt's tokens of the residual stream after the backbone's layer `phi_layer`; r = φ − mean;
E = ‖r − BᵀB·r‖²/‖φ‖² with a basis of orthonormal rows. The least E wins, the first registered among equals. Skills without a
`selection` can be asked for and not routed to.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.engine.arch import decline, refuse
from cmfspec.engine.block import CHUNK, run_block

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32
    from cmfspec.engine.model import Model

METRIC = "mse"


@dataclass(frozen=True)
class Subspace:
    """What a skill is chosen by. layer: 0-based; mean: float32 [hidden]; basis: float32 [rank, hidden]."""

    identity: str
    layer: int
    mean: F32
    basis: F32

    def energy(self, phi: F32) -> float:
        """E of a φ, float32 [hidden], in float64: the share of it that lies outside. Raises Unanswerable for a φ of zeros."""
        whole = float(np.square(phi, dtype=np.float64).sum())
        if not whole or not np.isfinite(whole):
            decline("SKILL-008", "phi", f"a squared length of {whole}", "a finite number above 0")
        r = phi.astype(np.float64) - self.mean
        left = r - (self.basis.astype(np.float64).T @ (self.basis @ r))
        return float(np.square(left).sum()) / whole


def subspaces(model: Model) -> list[Subspace]:
    """Of every routable skill, as registered. Raises Unrunnable for a selection that can't be understood."""
    skills = model.weights.container.header.get("skills")
    records = skills if isinstance(skills, list) else []
    return [_subspace(model, number, record) for number, record in enumerate(records) if _routable(record)]


def _routable(record: Any) -> bool:
    return isinstance(record, dict) and record.get("selection") is not None


def _subspace(model: Model, number: int, record: Mapping[str, Any]) -> Subspace:
    at, given, hidden = f"header.skills[{number}].selection", record["selection"], model.arch.hidden_size
    if not isinstance(given, dict):
        refuse("SKILL-006", at, repr(given)[:80], "an object")
    if not isinstance(record.get("id"), str):
        refuse("SKILL-006", f"header.skills[{number}].id", repr(record.get("id"))[:80], "a string")
    if given.get("metric") != METRIC:
        refuse("SKILL-008", f"{at}.metric", repr(given.get("metric"))[:80], f"{METRIC!r}: the text has no other")
    layer = given.get("phi_layer")
    if type(layer) is not int or not 0 <= layer < model.arch.num_layers:
        refuse("SKILL-006", f"{at}.phi_layer", repr(layer)[:80], f"a layer, 0 to {model.arch.num_layers - 1}")
    mean, basis = (_halves(given.get(name), f"{at}.{name}", hidden) for name in ("mean", "basis"))
    if len(mean) != 1:
        refuse("SKILL-007", f"{at}.mean", f"{mean.size} values", f"{hidden}, as the model is wide")
    rank = given.get("rank", len(basis))
    if rank != len(basis):
        refuse("SKILL-007", f"{at}.rank", repr(rank)[:80], f"{len(basis)}, as the basis has rows")
    return Subspace(record["id"], layer, mean[0], basis)


def _halves(text: Any, field: str, hidden: int) -> F32:
    """Rows of f16 out of base64, as float32 [rows, hidden]."""
    try:
        raw = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        raw = None
    if raw is None:
        refuse("SKILL-007", field, repr(text)[:80], "base64")
    if not raw or len(raw) % (2 * hidden):
        refuse("SKILL-007", field, f"{len(raw)} bytes", f"rows of {hidden} halves")
    rows = np.frombuffer(raw, "<f2").astype(np.float32).reshape(-1, hidden)
    if not np.isfinite(rows).all():
        refuse("SKILL-007", field, "a value that isn't finite", "finite halves")
    return rows


def phis(model: Model, tokens: Sequence[int], layers: Sequence[int], task: str | None = None) -> dict[int, F32]:
    """φ after each of these layers, float32 [hidden]: by the backbone under a task. Raises Unanswerable."""
    weights, ids = model.start(task).weights, model.prompt(tokens)
    blocks = model.blocks[: max(layers, default=-1) + 1]
    sums = {layer: np.zeros(model.arch.hidden_size) for layer in layers}
    pasts: list[Any] = [None] * len(blocks)
    with np.errstate(all="ignore"):
        for at in range(0, len(ids), CHUNK):
            h = model.embedded(weights, ids[at : at + CHUNK])
            for number, block in enumerate(blocks):
                h, pasts[number] = run_block(model.arch, weights, block, h, pasts[number])
                if number in sums:
                    sums[number] += h.sum(axis=0, dtype=np.float64)
    return {layer: (total / len(ids)).astype(np.float32) for layer, total in sums.items()}


def route(model: Model, tokens: Sequence[int], task: str | None = None) -> list[tuple[str, float]]:
    """Skills and their E, the least first: the prompt belongs to the first of them.

    Raises Unanswerable for a file without routable skills, or tokens that it can't take; Unrunnable for a wrong selection.
    """
    known = subspaces(model)
    if not known:
        decline("SKILL-008", "header.skills", "no skill with a selection", "at least one to choose from")
    found = phis(model, tokens, [space.layer for space in known], task)
    energies = [(space.identity, space.energy(found[space.layer])) for space in known]
    return sorted(energies, key=lambda pair: pair[1])
