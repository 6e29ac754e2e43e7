"""config.json of a Hugging Face model to the `arch` of a header (§2, §2.1, §2.2).

Law: a family is a row of `FAMILIES`: which parts of the configuration it has, and what transformers assumes for a key that
isn't there. Every key of the file is either carried (read by a part), harmless (it says nothing about what is computed),
or neutral (it has the one value that changes nothing). Anything else is refused by its name and line: a header that
can't say it must not be written. Fields beyond the text (RULINGS, profiles `en` and `ext`) are additive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any

from cmfspec.tools.rope import rope
from cmfspec.tools.settings import MISSING, Settings
from cmfspec.tools.unpackable import JsonFile, shown

Part = Callable[[Settings, dict[str, Any]], None]  # reads keys, adds fields to the arch
Layers = Callable[[Settings, int], list[str]]  # the tags of all layers, in transformers' words

# Keys that say nothing about what is computed: training, serving, bookkeeping, and special tokens (§6.1 has those).
HARMLESS = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _experts_implementation _name_or_path architectures
    attention_dropout attn_implementation auto_map bos_token_id cache_implementation chunk_size_feed_forward
    classifier_dropout dtype embd_pdrop eos_token_id finetuning_task hidden_dropout id2label initializer_range label2id
    mamba_ssm_dtype model_type output_attentions output_hidden_states output_router_logits pad_token_id pretraining_tp
    problem_type resid_pdrop return_dict router_aux_loss_coef router_jitter_noise task_specific_params tokenizer_class
    torch_dtype torchscript transformers_version unsloth_fixed unsloth_version use_cache
    """.split()
)

# Transformers' name of a layer to the header's tag (§2, and the profiles en and ext).
TAGS = {
    "full_attention": "FullAttention", "linear_attention": "LinearAttention",
    "sliding_attention": "SlidingAttention", "conv": "ShortConv",
}  # fmt: skip
ACTIVATIONS = {"silu": None, "swish": None, "gelu_pytorch_tanh": "gelu_tanh"}  # None: the header's default
MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers")
NEUTRAL: dict[str, tuple[Any, ...]] = {"mlp_bias": (False,), "conv_bias": (False,), "is_decoder": (False, None)}


@dataclass(frozen=True)
class Family:
    """What is particular about a model_type.

    norm: the header's norm_style. layers: the layers' kinds. parts: what else it has. assumed: what transformers takes
    for a key that isn't there. neutral: key to the values with which the header's meaning is transformers' own.
    """

    norm: str
    layers: Layers
    parts: tuple[Part, ...] = ()
    assumed: Mapping[str, Any] = field(default_factory=dict)
    neutral: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


# --- the layers ----------------------------------------------------------------------------------------------------


def _full(_: Settings, count: int) -> list[str]:
    return ["full_attention"] * count


def _windowed(settings: Settings, count: int) -> list[str]:
    """All of them, iff there is a window."""
    return ["sliding_attention" if settings.peek("sliding_window") else "full_attention"] * count


def _late_window(settings: Settings, count: int) -> list[str]:
    """From max_window_layers on, iff use_sliding_window."""
    used, first = settings.flag("use_sliding_window", False), settings.integer("max_window_layers", 28)
    window = settings.peek("sliding_window") if used else settings.optional("sliding_window")
    return ["sliding_attention" if used and window and i >= first else "full_attention" for i in range(count)]


def _every(key: str, otherwise: str, assumed: int) -> Layers:
    """Each `key`-th layer is full attention."""

    def layers(settings: Settings, count: int) -> list[str]:
        period = settings.integer(key, assumed)
        return ["full_attention" if (i + 1) % period == 0 else otherwise for i in range(count)]

    return layers


def _alternating(_: Settings, count: int) -> list[str]:
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(count)]


def _short_conv(settings: Settings, count: int) -> list[str]:
    full = settings.optional("full_attn_idxs")
    if full is not None and not isinstance(full, list):
        raise settings.bad("full_attn_idxs", shown(full), "a list of layers")
    return ["full_attention" if full is None or i in full else "conv" for i in range(count)]


def _layer_types(settings: Settings, count: int, otherwise: Layers) -> list[str]:
    """The header's tags: as the file lists them, or by the family's rule."""
    listed = settings.optional("layer_types")
    derived = otherwise(settings, count)  # reads its keys in any case: they are spoken for
    kinds = derived if listed is None else listed
    if not isinstance(kinds, list) or len(kinds) != count or not all(isinstance(kind, str) for kind in kinds):
        raise settings.bad("layer_types", shown(kinds), f"a list of {count} kinds of layers")
    for kind in kinds:
        if kind not in TAGS:
            raise settings.bad("layer_types", shown(kind), f"one of {', '.join(TAGS)}")
    return [TAGS[kind] for kind in kinds]


# --- the parts -----------------------------------------------------------------------------------------------------


def _dimensions(settings: Settings, arch: dict[str, Any]) -> None:
    """The numbers that every header has, and the widths that follow from them."""
    hidden, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    told = "num_key_value_heads" in settings or "num_key_value_heads" in settings.assumed
    kv = settings.integer("num_key_value_heads", heads if told else MISSING)  # a null means as many
    head_dim = settings.integer("head_dim", 0)
    if not head_dim and hidden % heads:
        raise settings.bad("num_attention_heads", heads, f"a divisor of hidden_size, {hidden}, or a head_dim")
    if heads % kv:
        raise settings.bad("num_key_value_heads", kv, f"a divisor of num_attention_heads, {heads}")
    wide = "intermediate_size" in settings or "moe_intermediate_size" not in settings
    arch |= {
        "hidden_size": hidden,
        "intermediate_size": settings.integer("intermediate_size" if wide else "moe_intermediate_size"),
        "num_attention_heads": heads,
        "num_kv_heads": kv,
        "head_dim": head_dim or hidden // heads,
        "vocab_size": settings.integer("vocab_size"),
        "tie_word_embeddings": settings.flag("tie_word_embeddings"),
        "max_position_embeddings": settings.integer("max_position_embeddings"),
    }


def _norm(key: str = "rms_norm_eps") -> Part:
    def part(settings: Settings, arch: dict[str, Any]) -> None:
        arch["rms_norm_eps"] = settings.number(key)

    return part


def _activation(settings: Settings, arch: dict[str, Any]) -> None:
    found = {key: settings.optional(key) for key in ("hidden_activation", "hidden_act")}
    for key, name in found.items():
        if name is not None and (not isinstance(name, str) or name not in ACTIVATIONS):
            raise settings.bad(key, shown(name), f"one of {', '.join(ACTIVATIONS)}")
    names = {ACTIVATIONS[name] for name in found.values() if name is not None}
    if len(names) != 1:
        raise settings.bad("hidden_act", shown(found), "one activation")
    if (name := names.pop()) is not None:
        arch["hidden_act"] = name


def _window(settings: Settings, arch: dict[str, Any]) -> None:
    if "SlidingAttention" in arch["layer_types"]:
        arch["sliding_window"] = settings.integer("sliding_window")
    else:
        settings.optional("sliding_window")


def _biases(settings: Settings, _: dict[str, Any]) -> None:
    """Said by the tensors that are there, in the header's world and in this: both values are carried."""
    for key in ("attention_bias", "qkv_bias"):
        settings.optional(key)


def _scaled_embeddings(settings: Settings, arch: dict[str, Any]) -> None:
    arch["embed_multiplier"] = sqrt(arch["hidden_size"])


def _query_scale(settings: Settings, arch: dict[str, Any]) -> None:
    arch["query_pre_attn_scalar"] = settings.number("query_pre_attn_scalar", whole=True)


def _cap(key: str) -> Part:
    def part(settings: Settings, arch: dict[str, Any]) -> None:
        if settings.peek(key) is not None:
            arch[key] = settings.number(key)
        settings.optional(key)

    return part


def _moe(
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
        for key in ("decoder_sparse_step", "mlp_only_layers", "mlp_layer_types", "first_k_dense_replace", "num_dense_layers"):
            settings.optional(key)  # which layers have a router, the tensors say (§2.2)

    return part


def _delta_net(settings: Settings, arch: dict[str, Any]) -> None:
    keys = ("conv_kernel_dim", "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    arch |= {f"linear_{key}": settings.integer(f"linear_{key}") for key in keys}
    arch["linear_core"] = {
        "kind": "gated_delta_net",
        "num_heads": arch["linear_num_value_heads"],
        "value_head_dim": arch["linear_value_head_dim"],
    }
    if arch["linear_num_value_heads"] % arch["linear_num_key_heads"]:
        raise settings.bad("linear_num_value_heads", arch["linear_num_value_heads"], "a multiple of linear_num_key_heads")


def _latent(settings: Settings, arch: dict[str, Any]) -> None:
    keys = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    mla = arch["mla"] = {key: settings.integer(key) for key in keys}
    if settings.peek("q_lora_rank") is not None:
        mla["q_lora_rank"] = settings.integer("q_lora_rank")
    settings.optional("q_lora_rank")
    told = {"head_dim": mla["qk_rope_head_dim"], "qk_head_dim": mla["qk_rope_head_dim"] + mla["qk_nope_head_dim"]}
    for key, value in told.items():
        if settings.integer(key, value) != value:
            raise settings.bad(key, settings.peek(key), str(value))
    arch["head_dim"] = mla["qk_rope_head_dim"]


def _conv_length(settings: Settings, arch: dict[str, Any]) -> None:
    arch["linear_conv_kernel_dim"] = settings.integer("conv_L_cache")


def _adjusted_width(settings: Settings, arch: dict[str, Any]) -> None:
    """The feed-forward width that the weights really have."""
    width = settings.integer("block_ff_dim", arch["intermediate_size"])
    multiple, factor = settings.integer("block_multiple_of", 256), settings.optional("block_ffn_dim_multiplier")
    if factor is not None and (type(factor) not in (int, float) or not isfinite(factor)):
        raise settings.bad("block_ffn_dim_multiplier", shown(factor), "a number or null")
    if settings.flag("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        width = int((1.0 if factor is None else factor) * width)
        width = multiple * -(-width // multiple)
    arch["intermediate_size"] = width


def _heads_per_layer(settings: Settings, arch: dict[str, Any]) -> None:
    heads = settings.optional("num_attention_heads_per_layer")
    if heads is None:
        return
    count = len(arch["layer_types"])
    if not isinstance(heads, list) or len(heads) != count or not all(type(one) is int and one > 0 for one in heads):
        raise settings.bad("num_attention_heads_per_layer", shown(heads), f"a list of {count} numbers of heads")
    arch["attention_heads_per_layer"] = heads


# --- the families --------------------------------------------------------------------------------------------------

_COMMON: dict[str, Any] = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu", "rope_theta": 1e4}
_QWEN = {**_COMMON, "max_position_embeddings": 32768}
_GDN = {
    **_QWEN, "head_dim": 256, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip
_GEMMA: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh", "head_dim": 256,
    "rope_theta": 1e4, "max_position_embeddings": 8192,
}  # fmt: skip
_LFM = {"norm_eps": 1e-5, "tie_word_embeddings": True, "rope_theta": 1e6, "max_position_embeddings": 128000, "conv_L_cache": 3}
_PLAIN = {**_COMMON, "num_key_value_heads": None}
_ATTENTION: tuple[Part, ...] = (_dimensions, _norm(), _activation, _biases)
_GATED = _every("full_attention_interval", "linear_attention", 4)
_NO_WINDOW = {"use_sliding_window": (False,)}
_UNDIRECTED = {"use_bidirectional_attention": (False, None)}
_MROPE = {"mtp_use_dedicated_embeddings": (False,), "attn_output_gate": (True,)}

FAMILIES: dict[str, Family] = {
    "llama": Family("qwen", _full, _ATTENTION, {**_PLAIN, "max_position_embeddings": 2048}),
    "mistral": Family(
        "qwen",
        _windowed,
        _ATTENTION,
        {**_COMMON, "max_position_embeddings": 131072, "sliding_window": 4096, "num_key_value_heads": 8},
    ),
    "qwen2": Family("qwen", _late_window, _ATTENTION, _QWEN),
    "qwen3": Family("qwen", _late_window, _ATTENTION, {**_QWEN, "head_dim": 128}),
    "qwen2_moe": Family(
        "qwen",
        _late_window,
        (*_ATTENTION, _moe("norm_topk_prob", shared="shared_expert_intermediate_size")),
        {**_QWEN, "norm_topk_prob": False},
        _NO_WINDOW,
    ),
    "qwen3_moe": Family(
        "qwen", _late_window, (*_ATTENTION, _moe("norm_topk_prob")), {**_QWEN, "norm_topk_prob": False}, _NO_WINDOW
    ),
    "qwen3_next": Family(
        "gemma",
        _GATED,
        (*_ATTENTION, _delta_net, _moe("norm_topk_prob", shared="shared_expert_intermediate_size")),
        {**_GDN, "norm_topk_prob": True},
        _MROPE,
    ),
    "qwen3_5_text": Family("gemma", _GATED, (*_ATTENTION, _delta_net), _GDN, _MROPE),
    "qwen3_5_moe_text": Family(
        "gemma",
        _GATED,
        (*_ATTENTION, _delta_net, _moe(True, shared="shared_expert_intermediate_size")),
        _GDN,
        {**_MROPE, "norm_topk_prob": (True,)},
    ),
    "gemma": Family("gemma", _full, (*_ATTENTION, _scaled_embeddings), _GEMMA, _UNDIRECTED),
    "gemma2": Family(
        "gemma",
        _alternating,
        (
            *_ATTENTION,
            _scaled_embeddings,
            _query_scale,
            _cap("attn_logit_softcapping"),
            _cap("final_logit_softcapping"),
        ),
        {
            **_GEMMA, "query_pre_attn_scalar": 256, "sliding_window": 4096,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        },
        _UNDIRECTED,
    ),  # fmt: skip
    "gemma3_text": Family(
        "gemma",
        _every("sliding_window_pattern", "sliding_attention", 6),
        (*_ATTENTION, _scaled_embeddings, _query_scale, _cap("final_logit_softcapping")),
        {
            **_GEMMA, "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 4096, "max_position_embeddings": 131072,
            "final_logit_softcapping": None,
        },
        # transformers reads neither of the two in this family
        {**_UNDIRECTED, "attn_logit_softcapping": (None,), "_sliding_window_pattern": (MISSING,)},
    ),  # fmt: skip
    "phi3": Family(
        "qwen",
        _windowed,
        _ATTENTION,
        {**_PLAIN, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "sliding_window": None},
        {"original_max_position_embeddings": (MISSING,)},  # read by longrope alone, which is refused
    ),
    "olmo2": Family(
        "qwen", _full, _ATTENTION, {**_PLAIN, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048}
    ),
    "lfm2": Family(
        "qwen",
        _short_conv,
        (_dimensions, _norm("norm_eps"), _conv_length, _adjusted_width),
        {**_LFM, "block_auto_adjust_ff_dim": True, "num_key_value_heads": 8},
        {"block_norm_eps": (MISSING,), "block_dim": (MISSING,), "conv_dim": (MISSING,), "num_heads": (MISSING,),
         "conv_dim_out": (MISSING,), "conv_use_xavier_init": (MISSING,), "block_mlp_init_scale": (MISSING,),
         "block_out_init_scale": (MISSING,), "block_use_swiglu": (True,), "block_use_xavier_init": (MISSING,),
         "use_pos_enc": (True,)},
    ),
    "lfm2_moe": Family(
        "qwen",
        _short_conv,
        (_dimensions, _norm("norm_eps"), _conv_length, _moe("norm_topk_prob", scaling="routed_scaling_factor")),
        {**_LFM, "norm_topk_prob": True, "routed_scaling_factor": 1.0, "num_key_value_heads": 8},
        {"use_expert_bias": (True,)},
    ),
    "deepseek_v3": Family(
        "qwen",
        _full,
        (*_ATTENTION, _latent, _moe(
            "norm_topk_prob", experts=("n_routed_experts",), shared="n_shared_experts", scaling="routed_scaling_factor"
        )),
        {**_COMMON, "max_position_embeddings": 4096, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
         "n_group": 8, "topk_group": 4},
        # groups of experts have no field in the header, so there may be one only
        {"n_group": (1,), "topk_group": (1,), "rope_interleave": (True,), "scoring_func": ("sigmoid",),
         "topk_method": ("noaux_tc",), "moe_layer_freq": (1,), "ep_size": (MISSING,), "aux_loss_alpha": (MISSING,),
         "seq_aux": (MISSING,)},
    ),
    "gpt_oss": Family(
        "qwen",
        _alternating,
        (*_ATTENTION, _moe(False, width="intermediate_size")),
        {**_COMMON, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64, "sliding_window": 128,
         "max_position_embeddings": 131072},
        {"swiglu_alpha": (1.702,), "swiglu_limit": (7.0,), "experts_per_token": (MISSING,), "initial_context_length": (MISSING,)},
    ),
    "laguna": Family(
        "qwen",
        _full,
        (*_ATTENTION, _heads_per_layer,
         _moe(True, shared="shared_expert_intermediate_size", scaling="moe_routed_scaling_factor")),
        {**_COMMON, "max_position_embeddings": 131072, "moe_routed_scaling_factor": 1.0, "head_dim": 128,
         "sliding_window": 512},
        {"gating": (True, "per-head", "per-element"), "moe_apply_router_weight_on_input": (False,),
         "moe_router_logit_softcapping": (0.0,), "norm_topk_prob": (True,)},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A configuration as the header has it. arch: without `mtp`, which the tensors decide; mtp: layers of that head
    according to the file, None if it is silent; file: where it came from."""

    arch: dict[str, Any]
    mtp: int | None
    file: JsonFile


def model_of(file: JsonFile, text_only: bool = False) -> Model:
    """The header's arch. text_only: leave out what a composite model has besides its text model. Raises Unpackable."""
    settings = _text_settings(file, text_only)
    family = FAMILIES[settings.model_type]
    settings = settings.assuming(family.assumed)
    count = settings.integer("num_hidden_layers")
    arch: dict[str, Any] = {"arch_name": settings.model_type, "num_layers": count, "norm_style": family.norm}
    arch["layer_types"] = _layer_types(settings, count, family.layers)
    for part in family.parts:
        part(settings, arch)
    _window(settings, arch)
    rope(settings, arch)
    mtp = [settings.integer(key, least=0) for key in MTP_KEYS if settings.peek(key) is not None]
    for key in MTP_KEYS:
        settings.optional(key)
    _nothing_left(settings, {**NEUTRAL, **family.neutral})
    return Model(arch, max(mtp) if mtp else None, file)


def _nothing_left(settings: Settings, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """Raises Unpackable for the first key that nobody has read and that isn't known to change nothing."""
    for key, values in neutral.items():
        found = settings.optional(key)
        if MISSING in values or (key not in settings and found is None):
            continue
        if not any(found == value and type(found) is type(value) for value in values):
            raise settings.bad(key, shown(found), f"{' or '.join(map(str, values))}: the header has no field for it")
    for key, value in settings.unread().items():
        if key not in HARMLESS:
            raise settings.bad(key, shown(value), "a key that the header has a field for, or that changes nothing")


def _text_settings(file: JsonFile, text_only: bool) -> Settings:
    """The part of the file that describes the text model."""
    outer = Settings(file, file.value)
    nested = outer.optional("text_config")
    if nested is None:
        return _known(outer)
    if not isinstance(nested, dict):
        raise outer.bad("text_config", shown(nested), "an object")
    for key in outer.unread():
        if key == "quantization_config" or (not text_only and key not in HARMLESS | {"tie_word_embeddings"}):
            raise outer.bad(
                key, shown(file.value[key]), "a text model alone; --text-only leaves what else the model has out"
            )
    tied = [node["tie_word_embeddings"] for node in (file.value, nested) if "tie_word_embeddings" in node]
    if len(set(map(str, tied))) > 1:
        raise outer.bad("tie_word_embeddings", shown(tied), "one answer")
    return _known(Settings(file, nested | ({"tie_word_embeddings": tied[0]} if tied else {}), "text_config."))


def _known(settings: Settings) -> Settings:
    found = settings.optional("model_type")
    if not isinstance(found, str) or found not in FAMILIES:
        raise settings.bad("model_type", shown(found), f"one of {', '.join(FAMILIES)}")
    return settings
