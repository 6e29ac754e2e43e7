"""The dense feed-forward: down(act(gate·x) ⊙ up·x) (§2, §11).

Law: its width is that of the tensors; `intermediate_size` is nominal. A neuron that doesn't count is 0 before `down`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmfspec.engine.arch import Arch, Layer
from cmfspec.engine.claims import Claims
from cmfspec.engine.ops import ACTIVATIONS
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32


def claim_gated(arch: Arch, claims: Claims, stem: str) -> None:
    """Claim gate, up and down below `stem`, of one width. Raises Unrunnable."""
    width = claims.linear(f"{stem}gate_proj", None, arch.hidden_size)
    claims.linear(f"{stem}up_proj", width, arch.hidden_size)
    claims.linear(f"{stem}down_proj", arch.hidden_size, width)


def gated(arch: Arch, weights: Weights, stem: str, x: F32, live: NDArray[np.bool_] | None = None) -> F32:
    """x [n, hidden] -> [n, hidden]. live: the neurons that count, None: all."""
    inner = ACTIVATIONS[arch.hidden_act](weights.linear(f"{stem}gate_proj", x)) * weights.linear(f"{stem}up_proj", x)
    if live is not None:
        inner *= live
    return weights.linear(f"{stem}down_proj", inner)


def check(arch: Arch, claims: Claims, layer: Layer) -> None:
    """Claim the layer's tensors. Raises Unrunnable."""
    claim_gated(arch, claims, f"{layer.prefix}mlp.")


def run(arch: Arch, weights: Weights, layer: Layer, x: F32) -> F32:
    """x [n, hidden] after the norm -> what the layer adds."""
    stem = f"{layer.prefix}mlp."
    return gated(arch, weights, stem, x, weights.neurons(layer, weights.shape(f"{stem}gate_proj.weight")[0]))
