"""The elementwise and rowwise functions of a forward, in float32 (§2: x/√(mean x² + eps), then ·w or ·(1+w)).

Law: float32 in, float32 out. What overflows does so silently here; a model whose logits aren't finite is refused at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

GELU = 0.7978845608028654  # √(2/π)


def rms(x: F32, eps: float) -> F32:
    """Rows divided by their root mean square."""
    mean = np.square(x, dtype=np.float64).mean(axis=-1, keepdims=True)  # a square may pass what float32 holds
    scaled: F32 = x / np.sqrt(mean + eps).astype(np.float32)
    return scaled


def softmax(x: F32) -> F32:
    """Over the last axis; −inf is nothing."""
    e: F32 = np.exp(x - x.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e


def sigmoid(x: F32) -> F32:
    """1/(1+e^−x)."""
    y: F32 = np.reciprocal(1 + np.exp(-x))
    return y


def softplus(x: F32) -> F32:
    """ln(1+e^x)."""
    y: F32 = np.logaddexp(x, np.float32(0))
    return y


def silu(x: F32) -> F32:
    """x·σ(x)."""
    y: F32 = x / (1 + np.exp(-x))
    return y


def gelu_tanh(x: F32) -> F32:
    """GELU by tanh."""
    y: F32 = np.float32(0.5) * x * (1 + np.tanh(np.float32(GELU) * (x + np.float32(0.044715) * x * x * x)))
    return y


def soft_cap(x: F32, cap: float | None) -> F32:
    """cap·tanh(x/cap); x itself without a cap."""
    if cap is None:
        return x
    y: F32 = np.float32(cap) * np.tanh(x / np.float32(cap))
    return y


ACTIVATIONS: Mapping[str, Callable[[F32], F32]] = {"silu": silu, "gelu_tanh": gelu_tanh}
