"""Wrong versions of what the engine does inside one function: attention, the recurrence, a block.

Law: each is the right function but for what its options say; with none it is the right one (a test).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.engine.conv import convolved
from cmfspec.engine.gdn import L2_EPS, Memory, sizes
from cmfspec.engine.norm import normed
from cmfspec.engine.ops import rms, sigmoid, silu, soft_cap, softplus

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32


def attend(
    q: F32,
    past: Any,
    scale: float,
    window: int | None,
    cap: float | None = None,
    sinks: F32 | None = None,
    *,
    ahead: int = 0,
    wider: int = 0,
    tiled: bool = False,
    first_key: bool = False,
    cap_after: bool = False,
    raw_sink: bool = False,
    uniform: bool = False,
) -> F32:
    """ahead: positions past its own that a query sees; wider: of the window; tiled: head h reads key head h mod their number;
    first_key: all read the first; cap_after: softcap of the weights; raw_sink: no exponential; uniform: equal weights."""
    count, heads = q.shape[:2]
    start, keys, values = past.length - count, past.keys, past.values
    group = heads // len(keys)
    which = np.arange(heads) % len(keys) if tiled else np.zeros(heads, int) if first_key else np.arange(heads) // group
    keys, values = keys[which], values[which]
    scores = np.matmul(q.transpose(1, 0, 2) * np.float32(scale), keys.transpose(0, 2, 1))
    scores = scores if cap_after else soft_cap(scores, cap)
    row, column = np.arange(start, past.length)[:, None], np.arange(past.length)[None]
    hidden = (column > np.maximum(row + ahead, 0)) if ahead < 0 else column > row + ahead
    if window is not None:
        hidden |= column <= row - (window + wider)
    if uniform:
        scores = np.zeros_like(scores)
    scores = np.where(hidden, np.float32(-np.inf), scores)
    top = scores.max(axis=-1, keepdims=True)
    top = top if sinks is None else np.maximum(top, sinks.reshape(-1, 1, 1))
    weight = np.exp(scores - top)
    total = weight.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + (np.abs(sinks.reshape(-1, 1, 1)) if raw_sink else np.exp(sinks.reshape(-1, 1, 1) - top))
    weight = soft_cap(weight / total, cap) if cap_after else weight / total
    mixed: F32 = (weight.astype(np.float32) @ values).transpose(1, 0, 2)
    return mixed


def recurrence(
    arch: Any,
    weights: Any,
    layer: Any,
    x: F32,
    memory: Any,
    *,
    scaled: bool = True,
    unit_q: bool = True,
    unit_k: bool = True,
    eps_ten: bool = False,
    tiled: bool = False,
    active: bool = True,
    reverse: bool = False,
    remembers: bool = True,
    bias: bool = True,
    plus: bool = True,
    exp_a: bool = True,
    decays: bool = True,
    decay_last: bool = False,
    corrects: bool = True,
    beta_one: bool = False,
    read_first: bool = False,
    gate: str = "silu",
    gate_first: bool = False,
    norm: str = "w",
    order: tuple[int, int, int] = (0, 1, 2),
) -> tuple[F32, Any]:
    """Gated DeltaNet with steps left out, swapped or changed, as the options are called."""
    at, size, count = f"{layer.prefix}linear_attn.", sizes(arch, weights, layer), len(x)
    mixed = weights.matmul(f"{at}in_proj_qkv.weight", x)
    kernel = weights.tensor(f"{at}conv1d.weight")
    mixed, history = convolved(
        kernel[:, :, ::-1] if reverse else kernel, mixed, memory.history if memory and remembers else None
    )
    wide = size.keys * size.key_dim
    parts = np.split(silu(mixed) if active else mixed, [wide, 2 * wide], axis=1)
    q, k, v = (parts[place] for place in order)
    q, k = (part.reshape(count, size.keys, size.key_dim) for part in (q, k))
    eps = 10 * L2_EPS if eps_ten else L2_EPS
    q, k = (_unit(part, eps) if unit else part for part, unit in ((q, unit_q), (k, unit_k)))
    repeats = size.values // size.keys
    q, k = (np.tile(part, (1, repeats, 1)) if tiled else part.repeat(repeats, axis=1) for part in (q, k))
    q = q * np.float32(size.key_dim**-0.5) if scaled else q
    v = v.reshape(count, size.values, size.value_dim)

    step = weights.matmul(f"{at}in_proj_a.weight", x) + (weights.tensor(f"{at}dt_bias") if bias else 0)
    step = softplus(step) if plus else np.maximum(step, 0)
    slope = weights.tensor(f"{at}A_log")
    decay = np.exp(-(np.exp(slope) if exp_a else np.abs(slope)) * step) if decays else np.ones_like(step)
    beta = np.ones_like(step) if beta_one else sigmoid(weights.matmul(f"{at}in_proj_b.weight", x))
    state = memory.state if memory else np.zeros((size.values, size.key_dim, size.value_dim), np.float32)
    out = np.empty((count, size.values, size.value_dim), np.float32)
    for t in range(count):
        before = state
        state = state if decay_last else state * decay[t, :, None, None]
        known = (k[t, :, None, :] @ state)[:, 0] if corrects else np.float32(0)
        state = state + k[t, :, :, None] * (beta[t, :, None] * (v[t] - known))[:, None, :]
        state = state * decay[t, :, None, None] if decay_last else state
        out[t] = (q[t, :, None, :] @ (before if read_first else state))[:, 0]

    z = weights.matmul(f"{at}in_proj_z.weight", x).reshape(out.shape)
    gates = {"silu": silu(z), "sigmoid": sigmoid(z), "none": np.ones_like(z)}[gate]
    weight = weights.tensor(f"{at}norm.weight")
    out = out * gates if gate_first else out
    out = out if norm == "none" else rms(out, arch.rms_norm_eps) * (weight if norm == "w" else 1 + weight)
    out = out if gate_first else out * gates
    return weights.matmul(f"{at}out_proj.weight", out.reshape(count, -1)), Memory(history, state)


def _unit(x: F32, eps: float) -> F32:
    y: F32 = x / np.sqrt(np.square(x, dtype=np.float64).sum(axis=-1, keepdims=True) + eps).astype(np.float32)
    return y


def block(
    arch: Any,
    weights: Any,
    it: Any,
    h: F32,
    past: Any,
    *,
    first_residual: bool = True,
    second_residual: bool = True,
    parallel: bool = False,
    swapped: bool = False,
    residual_of_norm: bool = False,
    without: str = "",
) -> tuple[F32, Any]:
    """A block. parallel: the feed reads what the mixer read; swapped: the feed comes first; residual_of_norm: what is added
    to is the normed input; without: a norm's place, whose norm is left out."""
    norms = it.norms

    def norm(place: str, value: F32) -> F32:
        name = getattr(norms, place)
        return value if place == without or name is None else normed(arch, weights, it.layer.prefix + name, value)

    def mix(value: F32) -> tuple[F32, Any]:
        seen = norm("before_mixer", value)
        mixed, after = it.mixer.run(arch, weights, it.layer, seen, past)
        base = seen if residual_of_norm else value if first_residual else np.float32(0)
        return base + norm("after_mixer", mixed), after

    def feed(value: F32, read: F32) -> F32:
        fed = it.feeder.run(arch, weights, it.layer, norm("before_feed", read))
        return (value if second_residual else np.float32(0)) + norm("after_feed", fed)

    if swapped:
        return mix(feed(h, h))
    mixed, after = mix(h)
    return feed(mixed, h if parallel else mixed), after
