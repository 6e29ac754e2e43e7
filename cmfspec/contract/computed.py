"""Answers of an engine: logits, a continuation, a likelihood, and what one can hold them to.

Law: what isn't finite is wrong before anything is compared, and so is any other shape than was asked for. Tolerances are
those of compare.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cmfspec.contract import compare
from cmfspec.contract.answers import Answer, written
from cmfspec.contract.outcome import WrongValue

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


@dataclass(frozen=True)
class Scores(Answer):
    """Logits as the subject computes them."""

    out: str = ""

    def of_shape(self, rows: int, vocab: int) -> F32:
        """The logits. Raises WrongReject where there are none, WrongValue for others than of this shape, or not finite."""
        self.must_be_accepted()
        told, raw = self.reply.value.shape, written(self.out)
        if told != [rows, vocab]:
            raise WrongValue(f"logits of shape {[rows, vocab]}", f"shape {told}")
        if len(raw) != 4 * rows * vocab:
            raise WrongValue(f"{4 * rows * vocab} bytes of logits", f"{len(raw)} bytes")
        got = np.frombuffer(raw, "<f4").astype(np.float32).reshape(rows, vocab)
        if not np.isfinite(got).all():
            row, column = np.argwhere(~np.isfinite(got))[0]
            raise WrongValue("finite logits", f"logits[{row}, {column}] = {got[row, column]}")
        return got

    def must_be(self, want: F32, tolerance: float = compare.LOGITS) -> None:
        """These, every row of them."""
        rows, vocab = want.shape
        differ = compare.logits_differ(self.of_shape(rows, vocab), want, tolerance)
        if differ:
            raise WrongValue(f"logits within {tolerance:g}", differ)

    def must_be_as_likely(self, want: F32, tokens: Sequence[int]) -> None:
        """Logits under which these tokens are as likely: what is asked of an engine that rounds activations."""
        got, right = (compare.nll(logits, tokens) for logits in (self.of_shape(*want.shape), want))
        allowed = compare.NLL_ROUNDED * (len(tokens) - 1)
        if not abs(got - right) <= allowed:
            raise WrongValue(f"an NLL of {right:.6g}, give or take {allowed:.3g}", f"{got:.6g}")

    def must_be_or_refuse(self, want: F32, tolerance: float = compare.LOGITS) -> None:
        """These, or a refusal: never others."""
        if self.accepted:
            self.must_be(want, tolerance)


@dataclass(frozen=True)
class Continuation(Answer):
    """Tokens as the subject goes on."""

    def must_be(self, want: Sequence[int]) -> None:
        """These and no more."""
        self.must_be_accepted()
        got = self.reply.value.tokens
        if got != [*want]:
            at = next((i for i, (g, w) in enumerate(zip(got, want, strict=False)) if g != w), min(len(got), len(want)))
            found = f"{got[at]}" if at < len(got) else "none"
            raise WrongValue(f"{len(want)} tokens {[*want]}", f"{len(got)}, token {at} is {found}")


@dataclass(frozen=True)
class Surprise(Answer):
    """A negative log likelihood as the subject finds it."""

    def must_be(self, nll: float, count: int) -> None:
        """This sum, over as many tokens."""
        self.must_be_accepted()
        got = self.reply.value
        if got.count != count:
            raise WrongValue(f"{count} tokens predicted", f"{got.count}")
        if not compare.same_likelihood(got.nll, nll):
            raise WrongValue(f"a sum of {nll:.6g}", f"{got.nll:.6g}")
