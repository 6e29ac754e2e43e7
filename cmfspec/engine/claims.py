"""What a forward asks of a file while it is loaded: each tensor, with its shape.

Law: a tensor that is needed and missing, one of another shape, and one that nobody has asked for at the end are refusals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cmfspec.engine.arch import refuse
from cmfspec.engine.weights import SKILL_PREFIX, Weights


@dataclass
class Claims:
    """The tensors that a forward has asked for, while a model is loaded."""

    weights: Weights
    taken: set[str] = field(default_factory=set)

    def may(self, name: str, *shape: int | None) -> bool:
        """Whether it is there, with that shape (None: any). Raises Unrunnable for another shape."""
        if not self.weights.has(name):
            return False
        found = self.weights.shape(name)
        if len(found) != len(shape) or any(want not in (None, dim) for dim, want in zip(found, shape, strict=True)):
            wanted = ", ".join("any" if dim is None else str(dim) for dim in shape)
            refuse("DEFRAG-005", f"tensor {name}", list(found), f"[{wanted}]")
        if 0 in found:
            refuse("DEFRAG-005", f"tensor {name}", list(found), "no dimension of 0")
        self.taken.add(name)
        return True

    def need(self, name: str, *shape: int | None) -> tuple[int, ...]:
        """Its shape. Raises Unrunnable if it is missing or has another."""
        if not self.may(name, *shape):
            refuse("HDR-018", f"tensor {name}", "none of that name", "one: the forward needs it")
        return self.weights.shape(name)

    def linear(self, stem: str, rows: int | None, cols: int | None) -> int:
        """`{stem}.weight` of that shape and perhaps `{stem}.bias`; the rows. Raises Unrunnable."""
        found = self.need(f"{stem}.weight", rows, cols)[0]
        self.may(f"{stem}.bias", found)
        return found

    def rest(self) -> list[str]:
        """Tensors of the backbone that nobody asked for."""
        return [name for name in self.weights.places if name not in self.taken and not name.startswith(SKILL_PREFIX)]
