"""Classes that run models, right and wrong, to be wrapped by the Python adapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmfspec.engine import load
from cmfspec.engine.perplexity import likelihood
from tests.readers import Ours


class Engine(Ours):
    """Our own engine."""

    def logits(self, tokens: Any, **how: Any) -> Any:
        return load(self.opened).logits(tokens, **how)

    def generate(self, tokens: Any, max_new: int, stop: Any = None) -> Any:
        return load(self.opened).generate(tokens, max_new, stop=stop)

    def ppl(self, tokens: Any, window: int, stride: int) -> tuple[float, int]:
        found = likelihood(load(self.opened), tokens, window, stride)
        return found.nll, found.count


class Zeros(Engine):
    """The right shape, and no more."""

    def logits(self, tokens: Any, **how: Any) -> Any:
        return np.zeros_like(super().logits(tokens, **how))
