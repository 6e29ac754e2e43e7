"""RMSNorm with a weight of the file (§2): ·w or ·(1+w), as `norm_style` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch
from cmfspec.engine.ops import rms
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


def normed(arch: Arch, weights: Weights, name: str | None, x: F32) -> F32:
    """x with its rows normed by the weight of that name; x itself for None."""
    if name is None:
        return x
    weight = weights.tensor(name)
    return rms(x, arch.rms_norm_eps) * (weight if arch.norm_style == "qwen" else np.float32(1) + weight)
