"""Choosing the next token: greedy, by temperature and top-p, or greedy with a drafting head (§2.1).

Law: greedy takes the highest logit, the lowest index among equals. Drafts change how often the trunk is called, and nothing
else: each is verified by the trunk, with the very bits that greedy decoding sees, and a rejected one leaves no trace in any
state. Generation stops at a stop id, which
isn't given, at `max_new` tokens, or at the end of the context.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cmfspec.engine.arch import Arch, decline
from cmfspec.engine.mtp import Head, draft
from cmfspec.engine.state import State
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32
    from cmfspec.engine.weights import Skill


class Trunk(Protocol):
    """What is asked of a model here; see `cmfspec.engine.model.Model`."""

    @property
    def arch(self) -> Arch:
        """Its sizes."""

    @property
    def mtp(self) -> Head | None:
        """The head that drafts."""

    @property
    def stops(self) -> frozenset[int]:
        """The file's stop ids."""

    def ids(self, tokens: Sequence[int]) -> list[int]:
        """The tokens, checked."""

    def start(self, task: str | None = None, skill: Skill = None) -> State:
        """The beginning of a text."""

    def advance(self, state: State, tokens: Sequence[int]) -> tuple[F32, State]:
        """The residual stream, and the state after these tokens."""

    def walk(self, state: State, tokens: Sequence[int]) -> tuple[F32, list[State]]:
        """The same, bit for bit what one call for each token gives, with the state after each."""

    def scores(self, state: State, hidden: F32) -> F32:
        """Logits."""

    def embedded(self, weights: Weights, ids: Sequence[int]) -> F32:
        """What the first layer reads."""


@dataclass
class Drafts:
    """How a run with a drafting head went. calls: of the trunk, after the prompt."""

    proposed: int = 0
    accepted: int = 0
    calls: int = 0


def greedy(logits: F32) -> int:
    """The index of the first highest."""
    return int(np.argmax(logits))


def sampled(logits: F32, temperature: float, top_p: float, dice: np.random.Generator) -> int:
    """One draw from the smallest set of likeliest tokens whose probabilities reach top_p; takes one number from `dice`."""
    scaled = logits.astype(np.float64) / temperature
    chances = np.exp(scaled - scaled.max())
    order = np.argsort(-chances, kind="stable")
    reach = np.cumsum(chances[order])
    kept = order[: int(np.searchsorted(reach, top_p * reach[-1])) + 1]
    ladder = np.cumsum(chances[kept])
    return int(kept[min(int(np.searchsorted(ladder, dice.random() * ladder[-1], side="right")), len(kept) - 1)])


def generate(
    model: Trunk,
    prompt: Sequence[int],
    max_new: int,
    *,
    stop: Collection[int] | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    mtp: Drafts | None = None,
    task: str | None = None,
    skill: Skill = None,
) -> Iterator[int]:
    """New tokens, one by one.

    stop: ids that end it, the file's by default. temperature: 0 is greedy. mtp: draft with the model's head, and count there.
    Raises Unanswerable.
    """
    if not (np.isfinite(temperature) and temperature >= 0 and 0 < top_p <= 1 and max_new >= 0 and seed >= 0):
        found = f"temperature {temperature}, top_p {top_p}, max_new {max_new}, seed {seed}"
        decline("ENG-002", "sampling", found, "temperature, max_new and seed from 0, top_p above 0 and up to 1")
    if mtp is not None and temperature:
        decline(
            "MTP-007", "sampling", f"temperature {temperature} and drafts", "greedy: drafts are verified against it"
        )
    state, ids = model.start(task, skill), model.ids(prompt)
    if mtp is not None:
        if model.mtp is None:
            decline("MTP-001", "model.mtp", "none, or one of several layers", "a head of one layer that drafts")
        tokens = _drafted(model, model.mtp, state, ids, mtp)
    else:
        tokens = _plain(model, state, ids, temperature, top_p, seed)
    stops = model.stops if stop is None else frozenset(stop)
    room = model.arch.max_position_embeddings - len(ids) + 1  # the last one needs no position
    for token in itertools.islice(tokens, min(max_new, max(room, 1))):  # too long a prompt is refused by the first
        if token in stops:
            return
        yield token


def _plain(model: Trunk, state: State, ids: list[int], temperature: float, top_p: float, seed: int) -> Iterator[int]:
    dice = np.random.default_rng(seed)
    while True:
        hidden, state = model.advance(state, ids)
        logits = model.scores(state, hidden[-1:])[0]
        token = sampled(logits, temperature, top_p, dice) if temperature else greedy(logits)
        yield token
        ids = [token]


def _drafted(model: Trunk, head: Head, state: State, ids: list[int], counts: Drafts) -> Iterator[int]:
    """Greedy tokens; where a draft is right, two of them come out of one call of the trunk."""
    hidden, state = model.advance(state, ids)
    token = greedy(model.scores(state, hidden[-1:])[0])
    past: Any = None
    follow = [*ids[1:], token]  # the token after each row of `hidden`
    while True:
        yield token
        ahead, past = draft(model.arch, state.weights, head, model.embedded(state.weights, follow), hidden, past)
        guess = greedy(model.scores(state, ahead[-1:])[0])
        room = model.arch.max_position_embeddings - state.length
        hidden, states = model.walk(state, [token, guess][:room])
        counts.proposed += 1
        counts.calls += 1
        follow = [greedy(model.scores(state, hidden[:1])[0])]
        if follow[0] == guess and len(states) == 2:
            counts.accepted += 1
            yield guess
            follow.append(greedy(model.scores(state, hidden[1:])[0]))
        hidden, state, token = hidden[: len(follow)], states[len(follow) - 1], follow[-1]
