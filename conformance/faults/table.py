"""The faults, part by part of a forward. Each is one slip that a reader of the text, or of another engine, could make.

Law: a name is unique, and a fault is in the table because on some golden model it moves a logit by at least three times the
tolerance (`python -m conformance.faults.effects`): one that moves none is not a fault that these models can show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cmfspec.engine import ops
from cmfspec.engine.arch import Arch
from conformance.faults import wrong
from conformance.faults.fault import Fault, Wrap

Change = Callable[[Arch], Mapping[str, Any]]


def instead(function: Callable[..., Any], **options: Any) -> Wrap:
    """This function with these options, whatever the right one is."""
    return lambda _: partial(function, **options)


def everywhere(paths: tuple[str, ...], wrap: Wrap) -> Mapping[str, Wrap]:
    """The same in all modules that look the function up."""
    return dict.fromkeys(paths, wrap)


def _fields(name: str, says: str, change: Change) -> Fault:
    return Fault(name, says, arch=change)


def _part(field: str, **changes: Callable[[Any], Any]) -> Change:
    """A part of `arch` with fields changed; nothing where there is no such part."""

    def change(arch: Arch) -> Mapping[str, Any]:
        part = getattr(arch, field)
        wanted = {name: new(getattr(part, name)) for name, new in changes.items()} if part else {}
        return {field: replace(part, **wanted)} if part else {}

    return change


def _times(field: str, by: float) -> Change:
    return lambda arch: {field: getattr(arch, field) * by} if getattr(arch, field) else {}


# --- norms ---------------------------------------------------------------------------------------------------------

RMS = ("norm.rms", "gdn.rms", "mla.rms")


def _rms(how: Callable[[Any, float], Any]) -> Mapping[str, Wrap]:
    return everywhere(RMS, lambda _: lambda x, eps: how(x.astype(np.float64), eps).astype(np.float32))


def _mean(x: Any) -> Any:
    return np.square(x).mean(axis=-1, keepdims=True)


def _unweighted(suffix: str) -> Wrap:
    """A norm without its weight where the name ends so."""

    def wrap(right: Any) -> Any:
        def normed(arch: Any, weights: Any, name: str | None, x: Any) -> Any:
            ends = name is not None and name.endswith(suffix)
            return ops.rms(x, arch.rms_norm_eps) if ends else right(arch, weights, name, x)

        return normed

    return wrap


def _unnormed(suffix: str) -> Wrap:
    """No norm at all where the name ends so."""

    def wrap(right: Any) -> Any:
        def normed(arch: Any, weights: Any, name: str | None, x: Any) -> Any:
            return x if name is not None and name.endswith(suffix) else right(arch, weights, name, x)

        return normed

    return wrap


NORMS = (
    _fields("eps-ten", "adds ten times eps", _times("rms_norm_eps", 10)),
    _fields("other-style", "takes w for 1+w, or 1+w for w",
            lambda arch: {"norm_style": "gemma" if arch.norm_style == "qwen" else "qwen"}),
    Fault("eps-outside", "adds eps to the root", wraps=_rms(lambda x, eps: x / (np.sqrt(_mean(x)) + eps))),
    Fault("layer-norm", "takes the mean off", wraps=_rms(
        lambda x, eps: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps))),
    Fault("norm-of-sum", "divides by the root of the sum", wraps=_rms(
        lambda x, eps: x / np.sqrt(_mean(x) * x.shape[-1] + eps))),
    Fault("mean-magnitude", "divides by the mean magnitude", wraps=_rms(
        lambda x, eps: x / (np.abs(x).mean(-1, keepdims=True) + eps))),
    Fault("final-unnormed", "leaves out the final norm", wraps={"model.normed": _unnormed("model.norm.weight")}),
    Fault("final-unweighted", "leaves out the final norm's weight", wraps={
        "model.normed": _unweighted("model.norm.weight")}),
    Fault("queries-unnormed", "does not norm queries", wraps={"attention.normed": _unnormed("q_norm.weight")}),
    Fault("keys-unnormed", "does not norm keys", wraps={"attention.normed": _unnormed("k_norm.weight")}),
    Fault("queries-unweighted", "norms queries without the weight", wraps={
        "attention.normed": _unweighted("q_norm.weight")}),
    *(Fault(f"without-{place.replace('_', '-')}", f"leaves out the norm {place.replace('_', ' ')}", wraps=everywhere(
        ("model.run_block", "mtp.run_block"), instead(wrong.block, without=place)))
      for place in ("before_mixer", "after_mixer", "before_feed", "after_feed")),
)  # fmt: skip

# --- the block, embedding and head ---------------------------------------------------------------------------------


def _block(name: str, says: str, **options: bool) -> Fault:
    return Fault(name, says, wraps=everywhere(("model.run_block", "mtp.run_block"), instead(wrong.block, **options)))


def _embedded(change: Callable[[Any, Any], Any]) -> Mapping[str, Wrap]:
    return {"model.Model.embedded": lambda right: lambda model, *rest: change(model, right(model, *rest))}


BLOCKS = (
    _block("no-first-residual", "does not add the mixer's input", first_residual=False),
    _block("no-second-residual", "does not add the feed's input", second_residual=False),
    _block("parallel", "lets mixer and feed read the same", parallel=True),
    _block("feed-first", "runs the feed before the mixer", swapped=True),
    _block("residual-of-norm", "adds to the normed input", residual_of_norm=True),
    _fields("embeds-unscaled", "does not scale embeddings", lambda _: {"embed_multiplier": 1.0}),
    Fault("embeds-twice-scaled", "scales embeddings twice", wraps=_embedded(
        lambda model, x: x * np.float32(model.arch.embed_multiplier))),
    _fields("final-uncapped", "leaves out the cap of logits", lambda _: {"final_logit_softcapping": None}),
    _fields("final-cap-twice", "caps logits at twice the cap", _times("final_logit_softcapping", 2)),
    Fault("layers-reversed", "runs the layers from last to first", wraps={
        "model.Model.advance": lambda right: lambda model, *rest: right(
            replace(model, blocks=model.blocks[::-1]), *rest)}),
    Fault("last-layer-missing", "leaves out the last layer", wraps={
        "model.Model.advance": lambda right: lambda model, state, tokens: right(
            replace(model, blocks=model.blocks[:-1]), replace(state, past=state.past[:-1]), tokens)}),
)  # fmt: skip

# --- the dense feed ------------------------------------------------------------------------------------------------

GATED = ("ffn.gated", "moe.gated")


def _gated(combine: Callable[[Any, Any, Any], Any]) -> Mapping[str, Wrap]:
    """combine: (activation, gate, up) to what `down` reads."""

    def gated(arch: Any, weights: Any, stem: str, x: Any, live: Any = None) -> Any:
        gate, up = (weights.linear(f"{stem}{role}_proj", x) for role in ("gate", "up"))
        inner = combine(ops.ACTIVATIONS[arch.hidden_act], gate, up)
        return weights.linear(f"{stem}down_proj", (inner if live is None else inner * live).astype(np.float32))

    return everywhere(GATED, lambda _: gated)


def _erf_gelu(x: Any) -> Any:
    from math import erf, sqrt

    return 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2)))


FEEDS = (
    _fields("other-activation", "takes GELU for SiLU, or SiLU for GELU",
            lambda arch: {"hidden_act": "gelu_tanh" if arch.hidden_act == "silu" else "silu"}),
    Fault("gate-and-up-swapped", "activates up in place of gate", wraps=_gated(lambda act, g, u: g * act(u))),
    Fault("activates-the-product", "activates gate times up", wraps=_gated(lambda act, g, u: act(g * u))),
    Fault("no-activation", "activates nothing", wraps=_gated(lambda _, g, u: g * u)),
    Fault("gate-alone", "leaves out up", wraps=_gated(lambda act, g, _: act(g))),
    Fault("adds-up", "adds gate and up", wraps=_gated(lambda act, g, u: act(g) + u)),
    Fault("relu", "takes ReLU", wraps=_gated(lambda _, g, u: np.maximum(g, 0) * u)),
    Fault("quick-gelu", "takes x·σ(1.702 x)", wraps=_gated(lambda _, g, u: g * ops.sigmoid(1.702 * g) * u)),
    Fault("sigmoid-gate", "takes σ", wraps=_gated(lambda _, g, u: ops.sigmoid(g) * u)),
    Fault("gelu-by-erf", "takes GELU by erf", wraps=_gated(
        lambda act, g, u: (_erf_gelu(g) if act is ops.gelu_tanh else act(g)) * u)),
)  # fmt: skip
