"""One decoder block: norms, a mixer and a feed, each chosen by the tensors that are there (§2).

Law: the first row of a table whose tensor is present wins; none present is a refusal at load. The header's tag only has to
agree: what a layer is follows from its tensors, and a tag that says otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cmfspec.engine import attention, conv, ffn, gdn, mla, moe
from cmfspec.engine.arch import Arch, Layer, refuse
from cmfspec.engine.claims import Claims
from cmfspec.engine.norm import normed
from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

    Check = Callable[[Arch, Claims, Layer], None]
    Mix = Callable[[Arch, Weights, Layer, F32, Any], tuple[F32, Any]]
    Feed = Callable[[Arch, Weights, Layer, F32], F32]


@dataclass(frozen=True)
class Mixer:
    """A row: the tensor that shows it, the tags that agree with it, and its functions."""

    key: str
    tags: tuple[str, ...]
    check: Check
    run: Mix


@dataclass(frozen=True)
class Feeder:
    """A row: the tensor that shows it, and its functions."""

    key: str
    check: Check
    run: Feed


@dataclass(frozen=True)
class Norms:
    """Where a block norms. key: the tensor that shows it; the others: names of norms, None: none there."""

    key: str
    before_mixer: str | None
    after_mixer: str | None
    before_feed: str | None
    after_feed: str | None


CHUNK = 256  # tokens that go through a layer at once
MIXERS = (
    Mixer("self_attn.kv_a_proj_with_mqa.weight", (attention.FULL,), mla.check, mla.run),
    Mixer("self_attn.q_proj.weight", (attention.FULL, attention.SLIDING), attention.check, attention.run),
    Mixer("linear_attn.in_proj_qkv.weight", ("LinearAttention",), gdn.check, gdn.run),
    Mixer("short_conv.in_proj.weight", ("ShortConv",), conv.check, conv.run),
)
FEEDERS = (
    Feeder("mlp.gate.weight", moe.check, moe.run),
    Feeder("mlp.gate_proj.weight", ffn.check, ffn.run),
)
IN, POST = "input_layernorm.weight", "post_attention_layernorm.weight"
PRE_FEED, POST_FEED = "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"
NORMS = (
    Norms(PRE_FEED, IN, POST, PRE_FEED, POST_FEED),  # Gemma 2 and 3: around both
    Norms(IN, IN, None, POST, None),
    Norms(POST_FEED, None, POST, None, POST_FEED),  # OLMo 2: after both
)


@dataclass(frozen=True)
class Block:
    """A layer and the rows that it is made of."""

    layer: Layer
    norms: Norms
    mixer: Mixer
    feeder: Feeder


def block_of(arch: Arch, claims: Claims, layer: Layer) -> Block:
    """Choose the rows of a layer, and claim its tensors. Raises Unrunnable."""
    rows: list[Any] = []
    for table in (NORMS, MIXERS, FEEDERS):
        there = [row for row in table if claims.weights.has(layer.prefix + row.key)]
        if not there:
            keys = ", ".join(row.key for row in table)
            refuse("HDR-018", f"layer {layer.prefix.rstrip('.')}", f"none of {keys}", "one of them")
        rows.append(there[0])
    norms, mixer, feeder = rows
    if layer.tag not in mixer.tags:
        where = "header.arch.layer_types" + ("" if layer.index is None else f"[{layer.index}]")
        refuse("HDR-029", where, repr(layer.tag)[:80], f"{' or '.join(mixer.tags)}: the layer has {mixer.key}")
    for name in (norms.before_mixer, norms.after_mixer, norms.before_feed, norms.after_feed):
        if name is not None:
            claims.need(layer.prefix + name, arch.hidden_size)
    mixer.check(arch, claims, layer)
    feeder.check(arch, claims, layer)
    return Block(layer, norms, mixer, feeder)


def run_block(arch: Arch, weights: Weights, block: Block, h: F32, past: Any) -> tuple[F32, Any]:
    """h [n, hidden], the residual stream, and the layer's state (None at the start) -> both, after the layer."""
    layer, norms = block.layer, block.norms
    if not weights.alive(layer):
        return h, past  # a layer whose gate is 0 is the identity

    def norm(name: str | None, x: F32) -> F32:
        return normed(arch, weights, name and layer.prefix + name, x)

    mixed, past = block.mixer.run(arch, weights, layer, norm(norms.before_mixer, h), past)
    h = h + norm(norms.after_mixer, mixed)
    h = h + norm(norms.after_feed, block.feeder.run(arch, weights, layer, norm(norms.before_feed, h)))
    return h, past
