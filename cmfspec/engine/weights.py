"""The tensors of a model under a task and a skill (§5, §9): the only place that knows either.

Law: for each tensor either the backbone's entry or the skill's, where there is one; never their sum. A blend of skills is
Σ wᵢ·Tᵢ, the backbone standing in where a skill has none. Weights are never changed: a mask only says what counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.engine.arch import Arch, Layer, decline, few, refuse
from cmfspec.engine.masks import Mask, mask_named
from cmfspec.format.container import Container

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

    Skill = str | Mapping[str, float] | None

PLAIN = {"f32": 4, "f16": 2, "bf16": 2}  # bytes of an element; rows lie one behind the other
SKILL_PREFIX = "skill."
ROUNDING = 1e-6  # of weights that sum to 1
LOG = logging.getLogger("cmfspec")  # silent until somebody listens
LOG.addHandler(logging.NullHandler())
CACHE_BYTES = 2 * 2**30  # of decoded tensors that are kept, first come


@dataclass(frozen=True)
class Weights:
    """The tensors by name. skills: (id, weight) of what overlays them; cache: decoded tensors by place;
    told: unmeasured masks that a warning has been logged of."""

    container: Container
    places: Mapping[str, int]
    skills: tuple[tuple[str, float], ...] = ()
    mask: Mask | None = None
    cache: dict[int, F32] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    @staticmethod
    def of(container: Container) -> Weights:
        """The backbone of a file."""
        return Weights(container, {tensor.name: tensor.index for tensor in container})

    def under(self, arch: Arch, task: str | None, skill: Skill) -> Weights:
        """The same tensors under a task and a skill, or a blend of skills by id. Raises Unanswerable."""
        blend = {skill: 1.0} if isinstance(skill, str) else dict(skill or {})
        records = self._records()
        for identity in blend:
            prefix = f"{SKILL_PREFIX}{identity}."
            if identity not in records and not any(name.startswith(prefix) for name in self.places):
                decline("SKILL-019", "skill", repr(identity), few(records) or "no skill: the file has none")
            self._check_overlay(prefix)
        if blend and not (min(blend.values()) >= 0 and abs(sum(blend.values()) - 1) <= ROUNDING):
            decline("SKILL-010", "skill", f"weights {list(blend.values())}", "weights from 0 that sum to 1")
        if task is None and len(blend) == 1:
            task = records.get(*blend)  # SKILL-020: the skill's own mask comes with it
        mask = mask_named(self.container, arch, task)
        if mask and not mask.measured and task not in self.told:  # MASK-023; once for a file is enough
            self.told.add(str(task))
            LOG.warning("mask %s: nobody measured what it costs: its quality is null", ascii(task))
        return replace(self, skills=tuple(blend.items()), mask=mask)

    def _records(self) -> dict[str, str | None]:
        """Skill ids of the header, each with the task that it activates."""
        listed = self.container.header.get("skills") or []
        found: dict[str, str | None] = {}
        for number, record in enumerate(listed if isinstance(listed, list) else [listed]):
            identity = record.get("id") if isinstance(record, dict) else None
            if not isinstance(identity, str):
                refuse("SKILL-006", f"header.skills[{number}].id", repr(identity)[:80], "a string")
            task = record.get("input_mask_task")
            found[identity] = task if isinstance(task, str) else None
        return found

    def _check_overlay(self, prefix: str) -> None:
        for name in self.places:
            if name.startswith(prefix):
                target = name.removeprefix(prefix)
                if target not in self.places:
                    refuse("SKILL-003", f"tensor {name}", "no backbone tensor of that name", "one that it replaces")
                if self.shape(name) != self.shape(target):
                    refuse(
                        "SKILL-002", f"tensor {name}", list(self.shape(name)), f"the shape {list(self.shape(target))}"
                    )

    # --- what is there -------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the backbone has it: a skill replaces, and adds nothing."""
        return name in self.places

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is there."""
        shape: tuple[int, ...] = self.container[self.places[name]].shape
        return shape

    # --- values --------------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> F32:
        """The decoded tensor, float32 of its shape, not to be written to. Raises Bounds or Parse."""
        if not self.skills:
            return self._decoded(self.places[name])
        places = [self.places.get(f"{SKILL_PREFIX}{identity}.{name}", self.places[name]) for identity, _ in self.skills]
        if len(set(places)) == 1:
            return self._decoded(places[0])  # all of them agree
        blended = np.zeros(self.shape(name), np.float32)
        for place, (_, weight) in zip(places, self.skills, strict=True):
            blended += np.float32(weight) * self._decoded(place)
        return blended

    def rows(self, name: str, ids: Sequence[int]) -> F32:
        """Some rows of a matrix, in that order; a matrix of plain floats is not decoded for it."""
        tensor = self.container[self.places[name]]
        width = PLAIN.get(tensor.dtype_name)
        if self.skills or width is None or tensor.index in self.cache:
            chosen: F32 = self.tensor(name)[np.asarray(ids)]
            return chosen
        raw, cols, codec = self.container.raw(tensor.index), tensor.shape[1], CODECS[tensor.dtype]
        size = width * cols
        return np.concatenate([codec.decode(raw[at * size : (at + 1) * size], (1, cols)) for at in ids])

    def _decoded(self, place: int) -> F32:
        found = self.cache.get(place)
        if found is None:
            found = self.container.values(place)
            if sum(kept.nbytes for kept in self.cache.values()) + found.nbytes <= CACHE_BYTES:
                self.cache[place] = found
        return found

    def matmul(self, name: str, x: F32) -> F32:
        """x·Wᵀ: [n, in] by `[out, in]` to [n, out]."""
        y: F32 = x @ self.tensor(name).T
        return y

    def linear(self, stem: str, x: F32) -> F32:
        """x·Wᵀ + b for `{stem}.weight` and, where the file has it, `{stem}.bias`."""
        y = self.matmul(f"{stem}.weight", x)
        if self.has(f"{stem}.bias"):
            y += self.tensor(f"{stem}.bias")
        return y

    # --- what counts ---------------------------------------------------------------------------------------------------

    def alive(self, layer: Layer) -> bool:
        """Whether the layer runs at all."""
        return self.mask is None or layer.index is None or bool(self.mask.gates[layer.index])

    def neurons(self, layer: Layer, width: int) -> NDArray[np.bool_] | None:
        """Of `width` FFN neurons, those that count; None: all. Raises Unrunnable for a mask of another width."""
        return self._row("ffn", layer, width)

    def heads(self, layer: Layer, count: int) -> NDArray[np.bool_] | None:
        """Of `count` query heads, those that count; None: all. Raises Unrunnable for a mask of another width."""
        return self._row("heads", layer, count)

    def experts(self, layer: Layer, count: int) -> NDArray[np.bool_] | None:
        """Of `count` experts, those that can be chosen; None: all. Raises Unrunnable for another width, or for none."""
        row = self._row("experts", layer, count)
        if row is not None and not row.any():
            refuse("MASK-015", f"masks.{layer.prefix}experts", "no expert left", "at least one")
        return row

    def _row(self, kind: str, layer: Layer, width: int) -> NDArray[np.bool_] | None:
        rows = None if self.mask is None else getattr(self.mask, kind)
        if rows is None or layer.index is None or rows[layer.index].all():
            return None
        row: NDArray[np.bool_] = rows[layer.index]
        if len(row) != width:
            refuse("MASK-006", f"masks.{layer.prefix}{kind}", f"a row of {len(row)} bits", f"{width}, as the layer has")
        return row
