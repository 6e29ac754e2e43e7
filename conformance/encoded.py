"""One answer of an encoder, and how a law about it says no.

Law: what doesn't decode is wrong, whatever it was asked for; NaN is within no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.contract.outcome import WrongValue
from cmfspec.errors import Refusal
from cmfspec.layout import DTYPE_IDS


@dataclass(frozen=True)
class Encoded:
    """One answer of an encoder.

    name: of the encoding; weights: float32 that were to be encoded; payload: what came; options: what the encoder was
    told besides (vbit: bits, amplify).
    """

    name: str
    weights: Any
    payload: bytes
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def values(self) -> Any:
        """What the payload decodes to. Raises WrongValue if to nothing."""
        codec, shape = CODECS[DTYPE_IDS[self.name]], self.weights.shape
        wanted = codec.shape_fault(len(shape), shape[-1] if shape else 1)
        if wanted:
            raise WrongValue(f"{self.name} for {wanted}", f"a tensor of {list(shape)}")
        try:
            return codec.decode(memoryview(self.payload), shape)
        except Refusal as refusal:
            raise WrongValue(f"a payload of {self.name} for {list(self.weights.shape)}", str(refusal)) from refusal

    def must_decode(self) -> None:
        """Raises WrongValue if the payload doesn't."""
        _ = self.values

    @cached_property
    def wide(self) -> Any:
        """The weights as float64, so that a bound isn't rounded."""
        return self.weights.astype(np.float64)

    @cached_property
    def lost(self) -> Any:
        """How far each value is off."""
        return np.abs(self.values.astype(np.float64) - self.wide)


def demand(right: Any, expected: str, got: Callable[[tuple[int, ...]], str]) -> None:
    """Raise WrongValue for the first place where `right` is not true. got: place to what is there."""
    wrong = ~np.asarray(right)
    if wrong.any():
        place = tuple(int(axis) for axis in np.unravel_index(int(wrong.argmax()), wrong.shape))
        raise WrongValue(expected, got(place))


def within(case: Encoded, allowed: Any, what: str) -> None:
    """Raise WrongValue for the first value that is off by more than `allowed`; what: the right one, in words."""
    allowed = np.broadcast_to(allowed, case.lost.shape)
    demand(
        case.lost <= allowed,  # NaN is not
        what,
        lambda at: (
            f"{case.values[at]:.8g} for {case.weights[at]:.8g} at {list(at)}, off by more than {allowed[at]:.3g}"
        ),
    )
