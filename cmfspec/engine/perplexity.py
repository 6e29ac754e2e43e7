"""How well a model predicts a text: negative log likelihood and perplexity (ENG-004).

Law: float64 over float32 logits, nats; PPL = e^mean. Every token but the first is predicted once: windows of `window` tokens
begin every `stride` tokens, and each counts the tokens that no earlier one has counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.engine.arch import decline
from cmfspec.engine.model import Model

if TYPE_CHECKING:
    from cmfspec.engine.weights import Skill

ROWS = 128  # of logits that are held at once


@dataclass(frozen=True)
class Likelihood:
    """nll: the sum, in nats, over `count` predicted tokens; window, stride: in tokens."""

    nll: float
    count: int
    window: int
    stride: int

    @property
    def perplexity(self) -> float:
        """e^mean; infinite where that is more than a float holds."""
        try:
            return math.exp(self.nll / self.count)
        except OverflowError:
            return math.inf


def likelihood(
    model: Model,
    tokens: Sequence[int],
    window: int | None = None,
    stride: int | None = None,
    task: str | None = None,
    skill: Skill = None,
) -> Likelihood:
    """Of at least two tokens. window: the whole context by default; stride: half of the window. Raises Unanswerable."""
    ids, most = model.ids(tokens), model.arch.max_position_embeddings
    window = min(most, len(ids)) if window is None else window
    stride = max(1, window // 2) if stride is None else stride
    if len(ids) < 2:
        decline("ENG-004", "tokens", "one", "at least two: the first isn't predicted")
    if not (2 <= window <= most and 1 <= stride < window):
        decline("ENG-004", "window", f"{window} with a stride of {stride}", f"2 to {most}, and a smaller stride from 1")
    total, counted = 0.0, 1
    start = model.start(task, skill)
    for begin in range(0, len(ids), stride):
        piece = ids[begin : begin + window]
        hidden, _ = model.advance(start, piece)
        first = counted - begin  # of the piece, to be predicted
        for at in range(first, len(piece), ROWS):
            targets = piece[at : at + ROWS]
            total += _lost(model.scores(start, hidden[at - 1 : at - 1 + len(targets)]).astype(np.float64), targets)
        counted = begin + len(piece)
        if counted == len(ids):
            break
    return Likelihood(total, len(ids) - 1, window, stride)


def _lost(logits: np.ndarray[tuple[int, int], np.dtype[np.float64]], targets: Sequence[int]) -> float:
    """The sum of −log softmax at the targets."""
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return float((total - logits[np.arange(len(targets)), targets]).sum())
