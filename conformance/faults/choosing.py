"""The faults of routers and experts, and of the head that drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cmfspec.engine import ops
from cmfspec.engine.norm import normed
from conformance.faults.fault import Fault, Wrap
from conformance.faults.table import _fields, _part, _unnormed


def _routed(change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Mapping[str, Wrap]:
    """change: (router logits, chosen, their weights) to what is chosen and weighed instead."""

    def wrap(right: Any) -> Any:
        return lambda logits, *rest, **named: change(logits, *right(logits, *rest, **named))

    return {"moe.route": wrap}


def _asked(change: Callable[..., Mapping[str, Any]]) -> Mapping[str, Wrap]:
    """change: arguments of the router, by name, to others."""

    def wrap(right: Any) -> Any:
        def route(logits: Any, moe: Any, normalise: bool, bias: Any = None, routable: Any = None) -> Any:
            given = {"logits": logits, "moe": moe, "normalise": normalise, "bias": bias, "routable": routable}
            return right(**{**given, **change(**given)})

        return route

    return {"moe.route": wrap}


def _biased_weights(right: Any) -> Any:
    """The bias of the choice is in the weights too."""

    def route(logits: Any, moe: Any, normalise: bool, bias: Any = None, routable: Any = None) -> Any:
        chosen, _ = right(logits, moe, normalise, bias, routable)
        scores = (ops.sigmoid if moe.router_sigmoid else ops.softmax)(logits) + (0 if bias is None else bias)
        weight = np.take_along_axis(scores, chosen, axis=1)
        weight = weight / weight.sum(axis=1, keepdims=True) if normalise else weight
        return chosen, (weight * moe.routed_scaling_factor).astype(np.float32)

    return route


def _lacking(name: str) -> Mapping[str, Wrap]:
    """A tensor that ends so is not seen."""
    return {
        "weights.Weights.has": lambda right: (
            lambda weights, wanted: not wanted.endswith(name) and right(weights, wanted)
        )
    }


def _unbiased(stem: str) -> Mapping[str, Wrap]:
    def wrap(right: Any) -> Any:
        return lambda weights, name, x: (
            weights.matmul(f"{name}.weight", x) if name.endswith(stem) else right(weights, name, x)
        )

    return {"weights.Weights.linear": wrap}


def _neighbour(logits: Any, chosen: Any, weight: Any) -> tuple[Any, Any]:
    return (chosen + 1) % logits.shape[1], weight


ROUTING = (
    _fields("one-expert-fewer", "chooses one fewer", _part("moe", top_k=lambda k: max(1, k - 1))),
    _fields("one-expert-more", "chooses one more", _part("moe", top_k=lambda k: k + 1)),
    _fields("scaling-ignored", "ignores routed_scaling_factor", _part("moe", routed_scaling_factor=lambda _: 1.0)),
    _fields("other-scores", "takes softmax for σ, or σ for softmax", _part("moe", router_sigmoid=lambda s: not s)),
    Fault("renormalises-otherwise", "divides by the sum, or doesn't, where it is the other",
          wraps=_asked(lambda normalise, **_: {"normalise": not normalise})),
    Fault("choice-unbiased", "ignores the bias of the choice", wraps=_asked(lambda **_: {"bias": None})),
    Fault("weights-biased", "takes the bias of the choice into the weights", wraps={"moe.route": _biased_weights}),
    Fault("lowest-first", "chooses the lowest", wraps=_asked(lambda logits, **_: {"logits": -logits})),
    Fault("next-expert", "takes the expert after the chosen", wraps=_routed(_neighbour)),
    Fault("weights-reversed", "gives the first the last one's weight", wraps=_routed(
        lambda _, chosen, weight: (chosen, weight[:, ::-1]))),
    Fault("weights-equal", "gives all the chosen the same weight", wraps=_routed(
        lambda _, chosen, weight: (chosen, np.full_like(weight, 1 / weight.shape[1])))),
    Fault("unweighted", "adds experts unweighted", wraps=_routed(
        lambda _, chosen, weight: (chosen, np.ones_like(weight)))),
    Fault("no-shared-expert", "leaves out the shared expert", wraps=_lacking("shared_expert.gate_proj.weight")),
    Fault("shared-ungated", "adds the shared expert whole", wraps=_lacking("shared_expert_gate.weight")),
    Fault("shared-gate-raw", "gates the shared expert without σ", wraps={"moe.sigmoid": lambda _: lambda x: x}),
    Fault("router-unbiased", "ignores the router's bias", wraps=_unbiased("mlp.gate")),
    Fault("expert-unbiased", "ignores the bias of an expert's down", wraps=_unbiased("down_proj")),
    Fault("slope-one", "takes SiLU for the sloped one", wraps={"moe.ALPHA": lambda _: 1.0}),
    Fault("clamp-narrow", "clamps at 1", wraps={"moe.LIMIT": lambda _: 1.0}),
)  # fmt: skip


def _drafted(change: Callable[..., Any]) -> Mapping[str, Wrap]:
    return {"mtp.draft": lambda right: lambda arch, weights, head, embedded, hidden, past: change(
        right, arch, weights, head, embedded, hidden, past)}  # fmt: skip


def _swap_halves(right: Any) -> Any:
    """eh_proj reads the hidden state first."""

    def matmul(weights: Any, name: str, x: Any) -> Any:
        half = x.shape[1] // 2
        return right(
            weights, name, np.concatenate([x[:, half:], x[:, :half]], axis=1) if name.endswith("eh_proj.weight") else x
        )

    return matmul


def _again(right: Any, arch: Any, weights: Any, head: Any, embedded: Any, hidden: Any, past: Any) -> Any:
    return right(arch, weights, head, embedded, normed(arch, weights, "model.norm.weight", hidden), past)


DRAFTING = (
    Fault("draft-halves-swapped", "puts the hidden state before the embedding", drafts=True,
          wraps={"weights.Weights.matmul": _swap_halves}),
    *(Fault(f"draft-without-{name}", f"leaves out {name}", drafts=True,
            wraps={"mtp.normed": _unnormed(f"model.mtp.{name}.weight")}) for name in ("enorm", "hnorm", "norm")),
    Fault("draft-normed-twice", "norms the hidden state once more", drafts=True, wraps=_drafted(_again)),
    Fault("draft-of-the-same", "embeds the token that is there already", drafts=True, wraps=_drafted(
        lambda right, arch, weights, head, embedded, hidden, past: right(
            arch, weights, head, np.concatenate([embedded[:1], embedded[:-1]]), hidden, past))),
    Fault("draft-ignores-hidden", "drafts from the embedding alone", drafts=True, wraps=_drafted(
        lambda right, arch, weights, head, embedded, hidden, past: right(
            arch, weights, head, embedded, np.zeros_like(hidden), past))),
)  # fmt: skip
