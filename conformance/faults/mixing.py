"""The faults of mixers: attention, its positions, latent attention, the recurrence and the short convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cmfspec.engine import ops, rope
from conformance.faults import wrong
from conformance.faults.fault import Fault, Wrap
from conformance.faults.table import _fields, _part, _times, everywhere, instead

ATTEND = ("attention.attend", "mla.attend")


def _attend(name: str, says: str, **options: Any) -> Fault:
    return Fault(name, says, wraps=everywhere(ATTEND, instead(wrong.attend, **options)))


def _scaled(by: Callable[[Any], float]) -> Mapping[str, Wrap]:
    """by: q to what its scale is multiplied with."""
    return everywhere(ATTEND, lambda right: lambda q, past, scale, *rest: right(q, past, scale * by(q), *rest))


def _unbiased(role: str) -> Mapping[str, Wrap]:
    def wrap(right: Any) -> Any:
        return lambda weights, stem, x: (
            weights.matmul(f"{stem}.weight", x) if stem.endswith(role) else right(weights, stem, x)
        )

    return {"weights.Weights.linear": wrap}


def _rotation(turned: Callable[[Any, Any, Any, int], Any]) -> Mapping[str, Wrap]:
    """turned: (the right rotation, x, rope, start) to x rotated."""
    return everywhere(("attention.rotate", "mla.rotate"), lambda right: partial(turned, right))


def _only(which: int) -> Mapping[str, Wrap]:
    """Of attention's two rotations, queries' and keys', this one is left out."""

    def wrap(right: Any) -> Any:
        calls = iter(range(1 << 30))
        return lambda x, *rest: x if next(calls) % 2 == which else right(x, *rest)

    return {"attention.rotate": wrap}


def _last_dims(right: Any, x: Any, it: Any, start: int) -> Any:
    return np.concatenate([x[..., : x.shape[-1] - it.dim], right(x[..., x.shape[-1] - it.dim :], it, start)], axis=-1)


def _reflected(_: Any, x: Any, it: Any, start: int) -> Any:
    cos, sin = (table[:, None] for table in rope.angles(it, start, len(x)))
    half = it.dim // 2
    first, second = (slice(0, it.dim, 2), slice(1, it.dim, 2)) if it.interleaved else (slice(half), slice(half, it.dim))
    out = x.copy()
    out[..., first] = x[..., first] * cos + x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def _frequencies(change: Callable[[Any, Any], Any]) -> Mapping[str, Wrap]:
    """change: (frequencies, rope) to others."""

    def wrap(right: Any) -> Any:
        made: Any = lambda it: change(right(it), it).astype(np.float32)  # noqa: E731
        made.cache_clear = right.cache_clear
        return made

    return {"rope.frequencies": wrap}


def _gate(function: Callable[[Any], Any]) -> Mapping[str, Wrap]:
    return {"attention.sigmoid": lambda _: function}


def _gate_first(right: Any) -> Any:
    """A doubled q_proj read as [gate; q] of each head."""

    def linear(weights: Any, stem: str, x: Any) -> Any:
        y = right(weights, stem, x)
        key = stem.replace("q_proj", "k_norm.weight")
        if (
            not stem.endswith("q_proj")
            or not weights.has(key)
            or not weights.has(stem.replace("q_proj", "o_proj") + ".weight")
        ):
            return y
        head, wide = weights.shape(key)[0], weights.shape(stem.replace("q_proj", "o_proj") + ".weight")[1]
        return y if y.shape[1] == wide else y.reshape(len(y), -1, 2, head)[:, :, ::-1].reshape(y.shape)

    return linear


def _blocks_of_gates(right: Any) -> Any:
    """A doubled q_proj read as all queries, then all gates."""

    def linear(weights: Any, stem: str, x: Any) -> Any:
        y = right(weights, stem, x)
        key = stem.replace("q_proj", "k_norm.weight")
        if not stem.endswith("q_proj") or not weights.has(key):
            return y
        head, wide = weights.shape(key)[0], weights.shape(stem.replace("q_proj", "o_proj") + ".weight")[1]
        return y if y.shape[1] == wide else y.reshape(len(y), 2, -1, head).transpose(0, 2, 1, 3).reshape(y.shape)

    return linear


def _out(change: Callable[[Any], Any]) -> Mapping[str, Wrap]:
    return everywhere(
        ("attention.output", "mla.output"), lambda right: lambda w, layer, out: right(w, layer, change(out))
    )


ATTENTION = (
    _attend("sees-one-ahead", "lets a query see the next position", ahead=1),
    _attend("sees-all", "has no causal mask", ahead=1 << 20),
    _attend("not-itself", "hides a position from itself", ahead=-1),
    _attend("window-wider", "sees one position more than the window", wider=1),
    _attend("window-narrower", "sees one position less than the window", wider=-1),
    _attend("no-window", "sees past the window", wider=1 << 20),
    _attend("heads-tiled", "reads key head h mod their number", tiled=True),
    _attend("one-key-head", "reads the first key head only", first_key=True),
    _attend("cap-of-weights", "caps the weights, not the scores", cap_after=True),
    _attend("sink-unexponentiated", "adds a sink as it is", raw_sink=True),
    _attend("uniform", "gives all that is seen the same weight", uniform=True),
    Fault("unscaled", "does not scale scores", wraps=_scaled(lambda q: q.shape[-1] ** 0.5)),
    Fault("scaled-by-dim", "divides scores by the dim, not by its root", wraps=_scaled(lambda q: q.shape[-1] ** -0.5)),
    Fault("scaled-by-heads", "scales by the width of all heads", wraps=_scaled(lambda q: q.shape[1] ** -0.5)),
    _fields("scaled-by-head-dim", "ignores query_pre_attn_scalar", lambda _: {"query_pre_attn_scalar": None}),
    _fields("scores-uncapped", "does not cap scores", lambda _: {"attn_logit_softcapping": None}),
    _fields("scores-cap-twice", "caps scores at twice the cap", _times("attn_logit_softcapping", 2)),
    Fault("sinkless", "ignores sinks", wraps=everywhere(
        ATTEND, lambda right: lambda q, past, scale, window, cap=None, _=None: right(q, past, scale, window, cap))),
    *(Fault(f"no-{role}-bias", f"ignores the bias of {role}_proj", wraps=_unbiased(f"self_attn.{role}_proj"))
      for role in "qkvo"),
    Fault("ungated", "does not gate the output", wraps=_gate(np.ones_like)),
    Fault("gate-by-silu", "gates by SiLU", wraps=_gate(ops.silu)),
    Fault("gate-raw", "gates by what the gate is, without σ", wraps=_gate(lambda x: x)),
    Fault("gate-first", "takes a head's first half for the gate", wraps={"weights.Weights.linear": _gate_first}),
    Fault("gates-last", "takes all queries before all gates", wraps={"weights.Weights.linear": _blocks_of_gates}),
    Fault("head-gate-by-sigmoid", "gates heads by σ", wraps={"attention.softplus": lambda _: ops.sigmoid}),
    Fault("head-gate-missing", "does not gate heads", wraps={"attention.softplus": lambda _: np.ones_like}),
    Fault("heads-transposed", "joins heads dim by dim", wraps=_out(lambda out: out.transpose(0, 2, 1).reshape(out.shape))),
    Fault("heads-reversed", "joins heads from last to first", wraps=_out(lambda out: np.ascontiguousarray(out[:, ::-1]))),
)  # fmt: skip

POSITIONS = (
    _fields("theta-twice", "doubles rope_theta", _times("rope_theta", 2)),
    _fields("theta-by-default", "takes 10000 for rope_theta", lambda _: {"rope_theta": 10000.0}),
    _fields("rotates-all", "ignores partial_rotary_factor", lambda _: {"partial_rotary_factor": 1.0}),
    _fields("one-theta", "takes rope_theta in sliding layers too",
            lambda arch: {"rope_local_base_freq": arch.rope_theta} if arch.rope_local_base_freq else {}),
    _fields("no-yarn", "ignores YaRN", lambda _: {"yarn": None}),
    _fields("yarn-unscaled", "ignores YaRN's attention_factor", _part("yarn", attention_factor=lambda _: 1.0)),
    _fields("yarn-factor-twice", "doubles YaRN's factor", _part("yarn", factor=lambda f: 2 * f)),
    _fields("yarn-length-twice", "doubles YaRN's original length", _part(
        "yarn", original_max_position_embeddings=lambda n: 2 * n)),
    _fields("yarn-beta", "takes the two betas for each other", _part(
        "yarn", beta_fast=lambda _: 1.0, beta_slow=lambda _: 32.0)),
    _fields("no-factors", "ignores the factors of frequencies", lambda _: {"rope_freq_factors": None}),
    _fields("factors-multiplied", "multiplies frequencies by their factors", lambda arch: {
        "rope_freq_factors": arch.rope_freq_factors and tuple(1 / f for f in arch.rope_freq_factors)}),
    Fault("other-pairs", "pairs neighbours, or halves, where it is the other", wraps=_rotation(
        lambda right, x, it, start: right(x, replace(it, interleaved=not it.interleaved), start))),
    Fault("from-one", "counts positions of keys from one", wraps={"attention.rotate": lambda right: _keys_later(right)}),
    Fault("queries-unrotated", "does not rotate queries", wraps=_only(0)),
    Fault("keys-unrotated", "does not rotate keys", wraps=_only(1)),
    Fault("last-dims", "rotates the last dims of a head", wraps=_rotation(_last_dims)),
    Fault("reflects", "has a wrong sign in the rotation", wraps=_rotation(_reflected)),
    Fault("exponents-over-head", "runs exponents over head_dim", wraps=_frequencies(
        lambda f, it: f ** (it.dim / (it.dim + 8)))),
    Fault("exponents-off-by-one", "runs exponents from 2", wraps=_frequencies(
        lambda f, it: f * it.theta ** (-2 / it.dim))),
    Fault("positions-anew", "counts positions anew with each call", stepwise=True, wraps=_rotation(
        lambda right, x, it, _: right(x, it, 0))),
)  # fmt: skip


def _keys_later(right: Any) -> Any:
    calls = iter(range(1 << 30))
    return lambda x, it, start: right(x, it, start + next(calls) % 2)


def _gdn(name: str, says: str, *, stepwise: bool = False, **options: Any) -> Fault:
    return Fault(name, says, wraps={"gdn.run": instead(wrong.recurrence, **options)}, stepwise=stepwise)


RECURRENCE = (
    _gdn("gdn-unscaled", "does not scale queries", scaled=False),
    _gdn("gdn-queries-not-unit", "does not bring queries to length one", unit_q=False),
    _gdn("gdn-keys-not-unit", "does not bring keys to length one", unit_k=False),
    _gdn("gdn-conv-unactivated", "does not activate the convolution", active=False),
    _gdn("gdn-conv-reversed", "runs the taps backwards", reverse=True),
    _gdn("gdn-conv-forgets", "convolves each call from zeros", remembers=False, stepwise=True),
    _gdn("gdn-no-dt-bias", "ignores dt_bias", bias=False),
    _gdn("gdn-step-by-relu", "takes ReLU for softplus", plus=False),
    _gdn("gdn-a-not-exp", "takes A_log for its exponential", exp_a=False),
    _gdn("gdn-no-decay", "does not decay the state", decays=False),
    _gdn("gdn-decay-last", "decays after the update", decay_last=True),
    _gdn("gdn-no-correction", "adds v, not what is new in v", corrects=False),
    _gdn("gdn-beta-one", "takes 1 for beta", beta_one=True),
    _gdn("gdn-reads-first", "reads before it writes", read_first=True),
    _gdn("gdn-gate-by-sigmoid", "gates by σ", gate="sigmoid"),
    _gdn("gdn-ungated", "does not gate", gate="none"),
    _gdn("gdn-gate-first", "gates before the norm", gate_first=True),
    _gdn("gdn-unnormed", "does not norm the output", norm="none"),
    _gdn("gdn-norm-one-plus", "takes 1+w for the norm's w", norm="1+w"),
    _gdn("gdn-keys-first", "takes keys for queries", order=(1, 0, 2)),
    _gdn("gdn-heads-tiled", "repeats key heads as a whole", tiled=True),
)


def _convolution(right: Any, order: Callable[[Any], Any] = lambda k: k) -> Any:
    return lambda kernel, x, history: right(order(kernel), x, history)


def _short(change: Callable[[Any, Any, Any], tuple[Any, Any, Any]]) -> Mapping[str, Wrap]:
    """change: the three parts of in_proj, before, after and value, to others."""

    def wrap(right: Any) -> Any:
        def linear(weights: Any, stem: str, x: Any) -> Any:
            y = right(weights, stem, x)
            return np.concatenate(change(*np.split(y, 3, axis=1)), axis=1) if stem.endswith("short_conv.in_proj") else y

        return linear

    return {"weights.Weights.linear": wrap}


SHORT = (
    Fault("conv-reversed", "runs the taps backwards", wraps={"conv.convolved": lambda right: _convolution(
        right, lambda kernel: kernel[:, :, ::-1])}),
    Fault("conv-one-tap", "takes the current tap only", wraps={"conv.convolved": lambda right: _convolution(
        right, lambda kernel: kernel * (np.arange(kernel.shape[2]) == kernel.shape[2] - 1))}),
    Fault("conv-forgets", "convolves each call from zeros", stepwise=True, wraps={
        "conv.convolved": lambda right: lambda kernel, x, _: right(kernel, x, None)}),
    Fault("conv-gates-swapped", "takes the gate after for the one before", wraps=_short(lambda b, a, v: (a, b, v))),
    Fault("conv-ungated-before", "does not gate before", wraps=_short(lambda b, a, v: (np.ones_like(b), a, v))),
    Fault("conv-ungated-after", "does not gate after", wraps=_short(lambda b, a, v: (b, np.ones_like(a), v))),
)  # fmt: skip


def _latent(name: str) -> Mapping[str, Wrap]:
    """The norm of this latent is left out: it is the one whose width the tensor has."""

    def wrap(right: Any) -> Any:
        calls = iter(range(1 << 30))
        return lambda x, eps: x if next(calls) % 2 == ("q_a", "kv_a").index(name) else right(x, eps)

    return {"mla.rms": wrap}


LATENT = (
    Fault("mla-queries-unnormed", "does not norm the latent of queries", wraps=_latent("q_a")),
    Fault("mla-keys-unnormed", "does not norm the latent of keys and values", wraps=_latent("kv_a")),
    Fault("mla-scaled-by-nope", "scales by the unrotated width alone", wraps={
        "mla._scale": lambda _: lambda _, mla: mla.qk_nope_head_dim**-0.5}),
    Fault("mla-rope-first", "takes a head's first dims for the rotated ones", wraps={
        "mla.rotate": lambda right: lambda x, it, start: right(x[..., ::-1].copy(), it, start)}),
    Fault("mla-unrotated", "rotates nothing", wraps={"mla.rotate": lambda _: lambda x, *_: x}),
)  # fmt: skip
