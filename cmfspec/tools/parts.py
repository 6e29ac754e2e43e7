"""The parts of a configuration: each reads the keys that are its own and adds fields to the arch (§2, §2.2).

Law: a key is read in the words of transformers, old and new; a field is written in the words of the header. A part that
finds something for which the header has no word refuses the key.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, sqrt
from typing import Any

from cmfspec.tools.settings import MISSING, Settings
from cmfspec.tools.unpackable import shown

Part = Callable[[Settings, dict[str, Any]], None]
Layers = Callable[[Settings, int], list[str]]  # the kinds of all layers, in transformers' words

# Transformers' name of a layer to the header's tag (§2, and the profiles en and ext).
TAGS = {
    "full_attention": "FullAttention", "linear_attention": "LinearAttention",
    "sliding_attention": "SlidingAttention", "conv": "ShortConv",
}  # fmt: skip
ACTIVATIONS = {"silu": None, "swish": None, "gelu_pytorch_tanh": "gelu_tanh"}  # None: the header's default
MAX_HEAD = 65536  # the width of a head: a pair of dimensions may need a number in the header
# Which layers have a router, the tensors say (§2.2).
SCHEDULES = ("decoder_sparse_step", "mlp_only_layers", "mlp_layer_types", "first_k_dense_replace", "num_dense_layers")


# --- the layers ----------------------------------------------------------------------------------------------------


def full(_: Settings, count: int) -> list[str]:
    """All of them full attention."""
    return ["full_attention"] * count


def windowed(settings: Settings, count: int) -> list[str]:
    """All of them, iff there is a window."""
    return ["sliding_attention" if settings.peek("sliding_window") else "full_attention"] * count


def late_window(settings: Settings, count: int) -> list[str]:
    """From max_window_layers on, iff use_sliding_window."""
    used, first = settings.flag("use_sliding_window", False), settings.integer("max_window_layers", 28)
    window = settings.peek("sliding_window") if used else settings.optional("sliding_window")
    return ["sliding_attention" if used and window and i >= first else "full_attention" for i in range(count)]


def every(key: str, otherwise: str, assumed: int) -> Layers:
    """Each `key`-th layer is full attention."""

    def layers(settings: Settings, count: int) -> list[str]:
        period = settings.integer(key, assumed)
        return ["full_attention" if (i + 1) % period == 0 else otherwise for i in range(count)]

    return layers


def alternating(_: Settings, count: int) -> list[str]:
    """Sliding and full, in turn."""
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(count)]


def short_conv(settings: Settings, count: int) -> list[str]:
    """Convolutions, but for those that are listed."""
    full = settings.optional("full_attn_idxs")
    if full is not None and not isinstance(full, list):
        raise settings.bad("full_attn_idxs", shown(full), "a list of layers")
    return ["full_attention" if full is None or i in full else "conv" for i in range(count)]


def layer_types(settings: Settings, count: int, otherwise: Layers, listing: bool) -> list[str]:
    """The header's tags: as the file lists them, or by the family's rule. listing: transformers reads the list in this
    family; where it doesn't, a list that says otherwise is refused."""
    listed = settings.optional("layer_types")
    derived = otherwise(settings, count)  # reads its keys in any case: they are spoken for
    kinds = derived if listed is None else listed
    if not isinstance(kinds, list) or len(kinds) != count or not all(isinstance(kind, str) for kind in kinds):
        raise settings.bad("layer_types", shown(kinds), f"a list of {count} kinds of layers")
    if not listing and kinds != derived:
        raise settings.bad("layer_types", shown(kinds), f"{shown(derived)}: this family has no other")
    for kind in kinds:
        if kind not in TAGS:
            raise settings.bad("layer_types", shown(kind), f"one of {', '.join(TAGS)}")
    return [TAGS[kind] for kind in kinds]


# --- the parts -----------------------------------------------------------------------------------------------------


def dimensions(*widths: str) -> Part:
    """The numbers that every header has, and what follows from them. widths: the keys that may have the feed-forward width,
    the first that is there counts."""

    def part(settings: Settings, arch: dict[str, Any]) -> None:
        hidden, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
        told = "num_key_value_heads" in settings or "num_key_value_heads" in settings.assumed
        kv = settings.integer("num_key_value_heads", heads if told else MISSING)  # a null means as many
        head_dim = settings.integer("head_dim", 0, most=MAX_HEAD)
        if not head_dim and (hidden % heads or hidden // heads > MAX_HEAD):
            raise settings.bad("num_attention_heads", heads, f"a divisor of hidden_size, {hidden}, or a head_dim")
        if heads % kv:
            raise settings.bad("num_key_value_heads", kv, f"a divisor of num_attention_heads, {heads}")
        arch |= {
            "hidden_size": hidden,
            "intermediate_size": settings.integer(next((key for key in widths if key in settings), widths[0])),
            "num_attention_heads": heads,
            "num_kv_heads": kv,
            "head_dim": head_dim or hidden // heads,
            "vocab_size": settings.integer("vocab_size"),
            "tie_word_embeddings": settings.flag("tie_word_embeddings"),
            "max_position_embeddings": settings.integer("max_position_embeddings"),
        }

    return part


def norm_eps(key: str) -> Part:
    """Which key has the norm's epsilon."""

    def part(settings: Settings, arch: dict[str, Any]) -> None:
        arch["rms_norm_eps"] = settings.number(key)

    return part


def activation(settings: Settings, arch: dict[str, Any]) -> None:
    """`hidden_act`, where it isn't the header's default."""
    found = {key: settings.optional(key) for key in ("hidden_activation", "hidden_act")}
    for key, name in found.items():
        if name is not None and (not isinstance(name, str) or name not in ACTIVATIONS):
            raise settings.bad(key, shown(name), f"one of {', '.join(ACTIVATIONS)}")
    names = {ACTIVATIONS[name] for name in found.values() if name is not None}
    if len(names) != 1:
        raise settings.bad("hidden_act", shown(found), "one activation")
    if (name := names.pop()) is not None:
        arch["hidden_act"] = name


def window(settings: Settings, arch: dict[str, Any]) -> None:
    """`sliding_window`, where a layer has one."""
    if "SlidingAttention" in arch["layer_types"]:
        arch["sliding_window"] = settings.integer("sliding_window")
    else:
        settings.optional("sliding_window")


def biases(settings: Settings, _: dict[str, Any]) -> None:
    """Said by the tensors that are there, in the header's world and in this: both values are carried."""
    for key in ("attention_bias", "qkv_bias"):
        settings.optional(key)


def scaled_embeddings(_: Settings, arch: dict[str, Any]) -> None:
    """`embed_multiplier`, the root of the width."""
    arch["embed_multiplier"] = sqrt(arch["hidden_size"])


def query_scale(settings: Settings, arch: dict[str, Any]) -> None:
    """`query_pre_attn_scalar`."""
    arch["query_pre_attn_scalar"] = settings.number("query_pre_attn_scalar", whole=True)


def cap(key: str) -> Part:
    """A soft cap of logits, under its own name."""

    def part(settings: Settings, arch: dict[str, Any]) -> None:
        if settings.peek(key) is not None:
            arch[key] = settings.number(key)
        settings.optional(key)

    return part


def moe(
    norm: str | bool,
    experts: tuple[str, ...] = ("num_experts", "num_local_experts"),
    width: str = "moe_intermediate_size",
    shared: str = "",
    scaling: str = "",
) -> Part:
    """norm: the key of norm_topk_prob, or what it always is; experts: the keys of their number, by age; shared: that of the
    shared expert's width, or of their count; scaling: that of the factor which goes with a sigmoid router."""

    def part(settings: Settings, arch: dict[str, Any]) -> None:
        named = [key for key in experts if key in settings] or experts[:1]
        numbers = {settings.integer(key) for key in named}
        if len(numbers) != 1:
            raise settings.bad(named[0], shown(sorted(numbers)), "one number of experts")
        moe = arch["moe"] = {
            "num_experts": numbers.pop(),
            "top_k": settings.integer("num_experts_per_tok"),
            "moe_intermediate_size": settings.integer(width),
            "norm_topk_prob": settings.flag(norm) if isinstance(norm, str) else norm,
        }
        if moe["top_k"] > moe["num_experts"]:
            raise settings.bad("num_experts_per_tok", moe["top_k"], f"at most {moe['num_experts']}")
        if shared and settings.peek(shared):
            size = settings.integer(shared)
            moe["shared_expert_intermediate_size"] = size * moe[width] if shared == "n_shared_experts" else size
        if scaling:
            moe |= {"router_sigmoid": True, "routed_scaling_factor": settings.number(scaling)}
        for key in SCHEDULES:
            settings.optional(key)

    return part


def delta_net(settings: Settings, arch: dict[str, Any]) -> None:
    """The `linear_*` fields of gated delta nets."""
    keys = ("conv_kernel_dim", "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    arch |= {f"linear_{key}": settings.integer(f"linear_{key}") for key in keys}
    arch["linear_core"] = {
        "kind": "gated_delta_net",
        "num_heads": arch["linear_num_value_heads"],
        "value_head_dim": arch["linear_value_head_dim"],
    }
    if arch["linear_num_value_heads"] % arch["linear_num_key_heads"]:
        raise settings.bad(
            "linear_num_value_heads", arch["linear_num_value_heads"], "a multiple of linear_num_key_heads"
        )


def latent(settings: Settings, arch: dict[str, Any]) -> None:
    """`mla`, latent attention."""
    keys = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    mla = arch["mla"] = {key: settings.integer(key, most=MAX_HEAD) for key in keys}
    if settings.peek("q_lora_rank") is not None:
        mla["q_lora_rank"] = settings.integer("q_lora_rank")
    settings.optional("q_lora_rank")
    told = {"head_dim": mla["qk_rope_head_dim"], "qk_head_dim": mla["qk_rope_head_dim"] + mla["qk_nope_head_dim"]}
    for key, value in told.items():
        if settings.integer(key, value) != value:
            raise settings.bad(key, settings.peek(key), str(value))
    arch["head_dim"] = mla["qk_rope_head_dim"]


def conv_length(settings: Settings, arch: dict[str, Any]) -> None:
    """`linear_conv_kernel_dim` of short convolutions."""
    arch["linear_conv_kernel_dim"] = settings.integer("conv_L_cache")


def adjusted_width(settings: Settings, arch: dict[str, Any]) -> None:
    """The feed-forward width that the weights really have."""
    settings.optional("intermediate_size")  # not looked at beside block_ff_dim
    width = arch["intermediate_size"]
    multiple, factor = settings.integer("block_multiple_of", 256), settings.optional("block_ffn_dim_multiplier")
    if factor is not None and (type(factor) not in (int, float) or not isfinite(factor)):
        raise settings.bad("block_ffn_dim_multiplier", shown(factor), "a number or null")
    if settings.flag("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        width = int((1.0 if factor is None else factor) * width)
        width = multiple * -(-width // multiple)
    arch["intermediate_size"] = width


def heads_per_layer(settings: Settings, arch: dict[str, Any]) -> None:
    """`attention_heads_per_layer`."""
    heads = settings.optional("num_attention_heads_per_layer")
    if heads is None:
        return
    count = len(arch["layer_types"])
    if not isinstance(heads, list) or len(heads) != count or not all(type(one) is int and one > 0 for one in heads):
        raise settings.bad("num_attention_heads_per_layer", shown(heads), f"a list of {count} numbers of heads")
    arch["attention_heads_per_layer"] = heads
