"""What a fault of the forward is, and how our own engine is made to have it.

Law: one fault changes one thing: a field of `arch`, or one function of one module of the engine while the fault is applied.
Outside of `applied` the engine is as it was; rotation tables that were kept are forgotten on both sides of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from cmfspec.engine import Model, rope
from cmfspec.engine.arch import Arch

Wrap = Callable[[Any], Any]  # the right function -> the wrong one


@dataclass(frozen=True)
class Fault:
    """name; says: what is done wrongly, in words; arch: fields of `arch` and their wrong values, of the right ones;
    wraps: `module.name` or `module.Class.name`, below `cmfspec.engine`, to what is there instead; stepwise: it only shows
    where tokens come in several calls; drafts: it only shows in the drafts of an MTP head."""

    name: str
    says: str
    arch: Callable[[Arch], Mapping[str, Any]] | None = None
    wraps: Mapping[str, Wrap] = field(default_factory=dict)
    stepwise: bool = False
    drafts: bool = False


@contextmanager
def applied(fault: Fault, model: Model) -> Iterator[Model]:
    """The model as an engine with the fault has it."""
    undo: list[tuple[Any, str, Any]] = []
    try:
        for path, wrap in fault.wraps.items():
            module, *inner, name = path.split(".")
            place: Any = import_module(f"cmfspec.engine.{module}")
            for step in inner:
                place = getattr(place, step)
            undo.append((place, name, getattr(place, name)))
            setattr(place, name, wrap(getattr(place, name)))
        _forget()
        changes = fault.arch(model.arch) if fault.arch else {}
        yield rebuilt(replace(model, arch=replace(model.arch, **changes)), bool(fault.wraps))
    finally:
        for place, name, right in reversed(undo):
            setattr(place, name, right)
        _forget()


def rebuilt(model: Model, anew: bool) -> Model:
    """The model with the functions that its blocks hold looked up again."""
    if not anew:
        return model

    def fresh(block: Any) -> Any:
        mixer = replace(block.mixer, run=getattr(import_module(block.mixer.run.__module__), "run"))  # noqa: B009
        feeder = replace(block.feeder, run=getattr(import_module(block.feeder.run.__module__), "run"))  # noqa: B009
        return replace(block, mixer=mixer, feeder=feeder)

    mtp = model.mtp and replace(model.mtp, block=fresh(model.mtp.block))
    return replace(model, blocks=tuple(fresh(block) for block in model.blocks), mtp=mtp)


def _forget() -> None:
    rope.frequencies.cache_clear()
    rope.angles.cache_clear()
