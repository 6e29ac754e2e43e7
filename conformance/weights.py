"""Weights to hold encoders to: small, the same for ever, each with something that some encoder has got wrong.

Law: all of float32; nothing is invariant under a permutation unless its being so is the point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.layout import GROUP
from golden.numbers import noise

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


@dataclass(frozen=True)
class Probe:
    """name; make: the weights; options: what an encoder is told besides, where it has such an option; refused: no encoding
    with half scales can hold them."""

    name: str
    make: Callable[[], F32]
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False

    @property
    def weights(self) -> F32:
        """Made once, read-only."""
        return _made(self.make)


@cache
def _made(make: Callable[[], F32]) -> F32:
    weights = make()
    weights.flags.writeable = False
    return weights


def uniform(seed: str, *shape: int) -> F32:
    """Float32 in [−1, 1)."""
    count = int(np.prod(shape))
    words = np.frombuffer(noise(f"weights/{seed}", 4 * count), "<u4")
    return (words / 2.0**31 - 1).astype(np.float32).reshape(shape)


def bell(seed: str, *shape: int) -> F32:
    """Something like a normal distribution of spread 1."""
    parts = np.stack([uniform(f"{seed}/{part}", *shape) for part in range(4)])
    spread: F32 = (parts.sum(axis=0) * np.float32(0.87)).astype(np.float32)
    return spread


def _by_groups(seed: str, rows: int, groups: int, span: float) -> F32:
    """Groups of their own loudness, over `span` octaves."""
    loud = np.exp2(span * (uniform(f"{seed}/loud", rows, groups, 1) - 1) / 2)
    return (bell(seed, rows, groups, GROUP) * loud * np.float32(0.07)).astype(np.float32).reshape(rows, groups * GROUP)


def _columns() -> F32:
    weights = bell("columns", 24, 64) * np.float32(0.02)
    weights[:, (3, 17, 40)] *= 30
    return weights


def _rows() -> F32:
    return (bell("rows", 12, 96) * np.exp2(-np.arange(12, dtype=np.float32) / 2)[:, None]).astype(np.float32)


def _far_rows() -> F32:
    return (bell("far", 10, 64) * np.exp2(-3 * np.arange(10, dtype=np.float32))[:, None]).astype(np.float32)


def _quiet() -> F32:
    """Rows whose scales are subnormal halves, or none."""
    loud = np.array([1e-3, 3e-5, 1e-5, 7e-6, 1e-6, 3e-7, 1e-9, 1e-42], np.float32)
    return (bell("quiet", 8, 64) * loud[:, None]).astype(np.float32)


def _zeros_among() -> F32:
    weights = bell("zeros", 5, 96) * np.float32(0.1)
    weights[1] = 0
    weights[3, 32:64] = 0
    return weights


def _two_levels() -> F32:
    """One magnitude a row, exact in a half."""
    signs = np.where(uniform("signs", 6, 64) < 0, np.float32(-1), np.float32(1))
    return signs * np.array([0.5, 0.0625, 1.25, 3.0, 0.8125, 0.1875], np.float32)[:, None]


def _outliers() -> F32:
    weights = bell("outliers", 6, 96) * np.float32(0.05)
    weights[(0, 2, 3, 5), (5, 40, 95, 0)] = (40, -25, 30.5, -61)
    return weights


def _subnormal() -> F32:
    """Around the halves that are subnormal, none of them exact."""
    return (uniform("subnormal", 4, 64) * np.float32(2**-14)).astype(np.float32)


def _with(value: float) -> Callable[[], F32]:
    def make() -> F32:
        weights = bell("wrong", 4, 64) * np.float32(0.1)
        weights[2, 33] = value
        return weights

    return make


WRONG = {value: _with(value) for value in (float("nan"), float("inf"), -float("inf"), 1e7, 3.4e38)}

PROBES: tuple[Probe, ...] = (
    Probe("noise", lambda: uniform("noise", 8, 64) * np.float32(0.05)),
    Probe("bell", lambda: bell("bell", 64, 256) * np.float32(0.03)),
    Probe("ladder", lambda: _by_groups("ladder", 24, 33, 1.0)),
    Probe("long ladder", lambda: _by_groups("long", 6, 9, 9.0)),
    Probe("ragged", lambda: bell("ragged", 5, 33) * np.float32(0.4)),
    Probe("cube", lambda: bell("cube", 2, 3, 33)),
    Probe("columns", _columns),
    Probe("rows", _rows),
    Probe("far rows", _far_rows),
    Probe("amplified", lambda: bell("amplified", 9, 64), {"amplify": np.exp2(-np.arange(9.0))}),
    Probe("quiet", _quiet),
    Probe("zeros among", _zeros_among),
    Probe("zeros", lambda: np.zeros((3, 64), np.float32)),
    Probe("two levels", _two_levels),
    Probe("outliers", _outliers),
    Probe("subnormal", _subnormal),
    Probe("vector", lambda: bell("vector", 96)),
    Probe("few", lambda: bell("few", 2, 8)),
    *(Probe(f"{value:g}", make, refused=True) for value, make in WRONG.items()),
)


def family() -> tuple[F32, ...]:
    """Eight experts, each half as loud as the one before."""
    return tuple((bell(f"expert{e}", 16, 64) * np.float32(2.0**-e)).astype(np.float32) for e in range(8))
