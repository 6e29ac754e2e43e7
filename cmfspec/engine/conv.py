"""Causal depthwise convolution, and LFM2's short convolution (ext).

Law: tap K−1 is the current token's; before the first token there are zeros. The state is the last K−1 inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import Arch, Layer, refuse
from cmfspec.engine.claims import Claims
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


def claim_taps(arch: Arch, claims: Claims, name: str, channels: int) -> None:
    """Claim a kernel [channels, 1, K]. Raises Unrunnable if K isn't the header's."""
    taps = claims.need(name, channels, 1, None)[2]
    if arch.linear_conv_kernel_dim not in (None, taps):
        refuse("HDR-031", "header.arch.linear_conv_kernel_dim", arch.linear_conv_kernel_dim, f"{taps}, as {name} has")


def convolved(kernel: F32, x: F32, history: F32 | None) -> tuple[F32, F32]:
    """kernel [channels, 1, K], x [n, channels] -> the same, and the history [K−1, channels] for what follows."""
    taps = kernel.shape[2]
    if history is None:
        history = np.zeros((taps - 1, x.shape[1]), np.float32)
    line = np.concatenate([history, x])
    out = np.zeros_like(x)
    for tap in range(taps):
        out += line[tap : tap + len(x)] * kernel[:, 0, tap]
    return out, line[len(x) :]


def check(arch: Arch, claims: Claims, layer: Layer) -> None:
    """Claim the layer's tensors. Raises Unrunnable."""
    at, hidden = f"{layer.prefix}short_conv.", arch.hidden_size
    claims.linear(f"{at}in_proj", 3 * hidden, hidden)
    claim_taps(arch, claims, f"{at}conv.weight", hidden)
    claims.linear(f"{at}out_proj", hidden, hidden)


def run(arch: Arch, weights: Weights, layer: Layer, x: F32, history: F32 | None) -> tuple[F32, F32]:  # noqa: ARG001
    """x [n, hidden] after the layer's norm -> what the layer adds, and the history."""
    at = f"{layer.prefix}short_conv."
    before, after, value = np.split(weights.linear(f"{at}in_proj", x), 3, axis=1)
    mixed, history = convolved(weights.tensor(f"{at}conv.weight"), before * value, history)
    return weights.linear(f"{at}out_proj", after * mixed), history
