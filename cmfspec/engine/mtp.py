"""The head that drafts one token further (§2.1).

Law: x = eh_proj·[enorm(E[t_{p+1}]) ; hnorm(h_p)], the embedding first; one block over keys and values of its own;
`model.mtp.norm`; the model's own lm_head gives the draft of t_{p+2}. h_p is taken after the final norm, as Hugging Face does:
the text only says h_p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.engine.arch import Arch, Layer, refuse
from cmfspec.engine.attention import FULL
from cmfspec.engine.block import Block, block_of, run_block
from cmfspec.engine.claims import Claims
from cmfspec.engine.norm import normed
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

SPACE = "model.mtp."
KEY = f"{SPACE}eh_proj.weight"
FOREIGN = "mtp."  # Hugging Face's names of such a head, which a public converter keeps: not the model's, by the text


@dataclass(frozen=True)
class Head:
    """The head's one block."""

    block: Block


def head_of(arch: Arch, claims: Claims) -> Head | None:
    """Claim the head's tensors; None for a file without one, whatever the header declares, or with
    one of several layers, or one whose names are not the text's: off then, and no reason to stop. Raises Unrunnable."""
    claims.taken.update(name for name in claims.weights.places if name.startswith(FOREIGN))
    if not claims.weights.has(KEY):
        return None
    for field in ("share_lm_head", "share_embed"):
        if arch.mtp and not getattr(arch.mtp, field):
            refuse("MTP-001", f"header.arch.mtp.{field}", "false", "true: a head of its own has no name in the text")
    several = [name for name in claims.weights.places if name.startswith(SPACE)]
    if any(name.startswith(f"{SPACE}layers.1.") for name in several):
        claims.taken.update(several)  # how several layers follow each other isn't said (MTP-009)
        return None
    claims.need(KEY, arch.hidden_size, 2 * arch.hidden_size)
    for name in ("enorm", "hnorm", "norm"):
        claims.need(f"{SPACE}{name}.weight", arch.hidden_size)
    return Head(block_of(arch, claims, Layer(f"{SPACE}layers.0.", None, FULL)))


def draft(arch: Arch, weights: Weights, head: Head, embedded: F32, hidden: F32, past: Any) -> tuple[F32, Any]:
    """What the lm_head reads, float32 [n, hidden], and the head's state.

    embedded [n, hidden]: of tokens p+1, hidden [n, hidden]: the trunk's at p, after the final norm; past: None at first.
    """
    with np.errstate(all="ignore"):
        both = [
            normed(arch, weights, f"{SPACE}{name}.weight", x) for name, x in (("enorm", embedded), ("hnorm", hidden))
        ]
        x = weights.matmul(KEY, np.concatenate(both, axis=1))
        x, past = run_block(arch, weights, head.block, x, past)
        return normed(arch, weights, f"{SPACE}norm.weight", x), past
