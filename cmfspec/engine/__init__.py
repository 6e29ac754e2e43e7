"""The forward pass, in numpy, dispatched by the tensors that are there (§2): `load(container)` gives a `Model`."""

from __future__ import annotations

from cmfspec.engine.model import Model, load
from cmfspec.engine.sample import Drafts
from cmfspec.engine.state import State

__all__ = ["Drafts", "Model", "State", "load"]
