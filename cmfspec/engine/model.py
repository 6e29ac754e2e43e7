"""A model that runs: embedding, blocks, head (§2).

Law: what `load` returns can compute: every tensor that it needs is there with the right shape, and every tensor of the
backbone is used. Everything else is a refusal, at load where the file is at fault, when asked where the request is. Logits
that aren't finite are refused. However the tokens are split over calls, the answer is the same up to rounding.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cmfspec.engine import sample
from cmfspec.engine.arch import Arch, Layer, arch_of, decline, few, refuse
from cmfspec.engine.block import CHUNK, Block, block_of, run_block
from cmfspec.engine.claims import Claims
from cmfspec.engine.mtp import Head, head_of
from cmfspec.engine.norm import normed
from cmfspec.engine.ops import soft_cap
from cmfspec.engine.state import State
from cmfspec.engine.weights import Weights
from cmfspec.format.container import Container
from cmfspec.layout import SKILL_FILE

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32
    from cmfspec.engine.weights import Skill

EMBEDDING, FINAL_NORM, LM_HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
PIPELINE_SPACES = ("te.", "dit.", "vae.")  # §12
FINITE = "a finite number (`cmfspec verify --values` finds weights that are not)"


@dataclass(frozen=True)
class Model:
    """mtp: the head that drafts (§2.1), None without one. head: the tensor that gives logits; stops: the file's eos ids."""

    arch: Arch
    weights: Weights
    blocks: tuple[Block, ...]
    mtp: Head | None
    head: str
    stops: frozenset[int]

    def start(self, task: str | None = None, skill: Skill = None) -> State:
        """The beginning of a text under a task and a skill (an id, or a blend {id: weight}). Raises Unanswerable."""
        return State(self.weights.under(self.arch, task, skill), (None,) * len(self.blocks))

    def advance(self, state: State, tokens: Sequence[int]) -> tuple[F32, State]:
        """The residual stream after the final norm, float32 [n, hidden], of these tokens, and the state after them.

        Raises Unanswerable: no tokens, an id outside the vocabulary, a context that is too long.
        """
        ids = self.prompt(tokens, state.length)
        parts: list[F32] = []
        with np.errstate(all="ignore"):
            for at in range(0, len(ids), CHUNK):
                h, past = self.embedded(state.weights, ids[at : at + CHUNK]), []
                for block, before in zip(self.blocks, state.past, strict=True):
                    h, after = run_block(self.arch, state.weights, block, h, before)
                    past.append(after)
                parts.append(normed(self.arch, state.weights, FINAL_NORM, h))
                state = replace(state, past=tuple(past), length=state.length + len(h))
        return np.concatenate(parts), state

    def walk(self, state: State, tokens: Sequence[int]) -> tuple[F32, list[State]]:
        """As `advance`, with the state after each token; bit for bit what one call for each token gives.

        Layer by layer all the same, so that a layer's weights are read once for all of them.
        """
        rows = [self.embedded(state.weights, [token]) for token in self.prompt(tokens, state.length)]
        pasts: list[list[Any]] = [[] for _ in rows]
        with np.errstate(all="ignore"):
            for block, past in zip(self.blocks, state.past, strict=True):
                for place, h in enumerate(rows):
                    rows[place], past = run_block(self.arch, state.weights, block, h, past)
                    pasts[place].append(past)
            rows = [normed(self.arch, state.weights, FINAL_NORM, h) for h in rows]
        states = [replace(state, past=tuple(past), length=state.length + at) for at, past in enumerate(pasts, 1)]
        return np.concatenate(rows), states

    def scores(self, state: State, hidden: F32) -> F32:
        """Logits, float32 [n, vocab], of rows that `advance` gave. Raises Unrunnable if they aren't finite."""
        with np.errstate(all="ignore"):
            logits = state.weights.matmul(self.head, hidden) * np.float32(self.arch.logit_multiplier)
            logits = soft_cap(logits, self.arch.final_logit_softcapping)
        if not np.isfinite(logits).all():
            row, column = np.argwhere(~np.isfinite(logits))[0]
            refuse("ENG-001", f"logits[{row}, {column}]", logits[row, column], FINITE)
        return logits

    def logits(
        self,
        tokens: Sequence[int],
        split: Sequence[int] | None = None,
        rows: Literal["all", "last"] = "all",
        task: str | None = None,
        skill: Skill = None,
    ) -> F32:
        """Float32 [n, vocab], row i predicting token i + 1; [1, vocab] with rows "last".

        split: how many tokens each call of the forward takes, all by default. Raises Unanswerable, or
        Unrunnable for logits that aren't finite.
        """
        pieces = [len(tokens)] if split is None else list(split)
        if split is not None and (min(pieces, default=0) < 1 or sum(pieces) != len(tokens)):
            decline("ENG-001", "split", pieces, f"positive numbers with the sum {len(tokens)}")
        state, at, hidden = self.start(task, skill), 0, []
        for piece in pieces:
            part, state = self.advance(state, tokens[at : at + piece])
            hidden.append(part)
            at += piece
        return self.scores(state, hidden[-1][-1:] if rows == "last" else np.concatenate(hidden))

    generate = sample.generate

    def embedded(self, weights: Weights, ids: Sequence[int]) -> F32:
        """[n, hidden]: what the first layer reads."""
        rows: F32 = weights.rows(EMBEDDING, ids) * np.float32(self.arch.embed_multiplier)
        return rows

    def prompt(self, tokens: Sequence[int], before: int = 0) -> list[int]:
        """The tokens as ids that can follow `before` others. Raises Unanswerable."""
        ids = self.ids(tokens)
        total, most = before + len(ids), self.arch.max_position_embeddings
        if total > most:
            decline("ENG-001", "tokens", f"{total} positions", f"at most max_position_embeddings, {most}")
        return ids

    def ids(self, tokens: Sequence[int]) -> list[int]:
        """The tokens as whole numbers. Raises Unanswerable; TypeError for what is no whole number."""
        if not len(tokens):
            decline("ENG-001", "tokens", "none", "at least one")
        ids = [operator.index(token) for token in tokens]
        for place, token in enumerate(ids):
            if not 0 <= token < self.arch.vocab_size:
                decline("ENG-001", f"tokens[{place}]", token, f"from 0 to {self.arch.vocab_size - 1}")
        return ids


def load(container: Container) -> Model:
    """A model out of an opened file. Reads no weight. Raises Unrunnable."""
    _runnable(container)
    arch = arch_of(container.header)
    claims = Claims(Weights.of(container))
    claims.need(EMBEDDING, arch.vocab_size, arch.hidden_size)
    claims.need(FINAL_NORM, arch.hidden_size)
    head = LM_HEAD
    if not claims.may(LM_HEAD, arch.vocab_size, arch.hidden_size):
        if not arch.tie_word_embeddings:
            refuse("HDR-022", f"tensor {LM_HEAD}", "none of that name", "one, or tie_word_embeddings")
        head = EMBEDDING
    layers = (Layer(f"model.layers.{i}.", i, tag) for i, tag in enumerate(arch.layer_types))
    blocks = tuple(block_of(arch, claims, layer) for layer in layers)
    mtp = head_of(arch, claims)
    rest = claims.rest()
    if rest:
        refuse("HDR-018", f"tensor {few(rest)}", "no part of the forward", "only tensors that it uses")
    return Model(arch, claims.weights, blocks, mtp, head, _stops(container))


def _runnable(container: Container) -> None:
    """Refuse what is valid and no model."""
    if not len(container):
        refuse("HDR-018", "dir.count", "no tensors", "a model's")
    skills = container.header.get("skills")
    bound = isinstance(skills, list) and any(
        isinstance(record, dict) and "base_dir_hash" in record for record in skills
    )
    if bound or container.view.envelope["required_features"] >> SKILL_FILE & 1:
        refuse("FEAT-015", "header.skills", "a standalone skill file", "a model: apply the skill to its base first")
    for tensor in container:
        if tensor.name.startswith(PIPELINE_SPACES):
            refuse("PIPE-008", f"tensor {tensor.name}", "a pipeline's component", "a language model")


def _stops(container: Container) -> frozenset[int]:
    """The ids at which the file says that generation stops (CHAT-005). Raises Unrunnable."""
    config = container.header.get("tokenizer_config")
    given = config.get("eos_token_ids") if isinstance(config, dict) else None
    if given is None:
        return frozenset()
    if not isinstance(given, list) or not all(type(token) is int for token in given):
        refuse("CHAT-005", "header.tokenizer_config.eos_token_ids", repr(given)[:80], "a list of whole numbers")
    return frozenset(given)
