"""The families of models that can be packed, one row each.

Law: a family is data: the parts that its configuration has, what transformers assumes for a key that isn't there, and the
keys that have to have one value because the header has no field for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cmfspec.tools.parts import (
    Layers,
    Part,
    activation,
    adjusted_width,
    alternating,
    biases,
    cap,
    conv_length,
    delta_net,
    dimensions,
    every,
    full,
    heads_per_layer,
    late_window,
    latent,
    moe,
    norm_eps,
    query_scale,
    scaled_embeddings,
    short_conv,
    windowed,
)
from cmfspec.tools.settings import MISSING

Neutral = Mapping[str, tuple[Any, ...]]
ANY = (MISSING,)  # of a key that transformers doesn't read either


@dataclass(frozen=True)
class Family:
    """What is particular about a model_type.

    norm: the header's norm_style. layers: the layers' kinds. parts: what it has, in this order. assumed: what transformers
    takes for a key that isn't there. neutral: key to the values with which the header's meaning is transformers' own.
    listing: a list of `layer_types` counts.
    """

    norm: str
    layers: Layers
    parts: tuple[Part, ...]
    assumed: Mapping[str, Any] = field(default_factory=dict)
    neutral: Neutral = field(default_factory=dict)
    listing: bool = True


ATTENTION = (dimensions("intermediate_size", "moe_intermediate_size"), norm_eps("rms_norm_eps"), activation, biases)
GEMMA_SCALES = (*ATTENTION, scaled_embeddings, query_scale, cap("final_logit_softcapping"))
LFM2 = (dimensions("block_ff_dim", "intermediate_size"), norm_eps("norm_eps"), conv_length)
GATED = every("full_attention_interval", "linear_attention", 4)
SHARED = "shared_expert_intermediate_size"

COMMON: dict[str, Any] = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu", "rope_theta": 1e4}
LLAMA = {**COMMON, "num_key_value_heads": None}  # none said: as many as there are heads
QWEN = {**COMMON, "max_position_embeddings": 32768}
DELTA_NET = {
    **QWEN, "head_dim": 256, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "norm_topk_prob": True,
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh", "head_dim": 256,
    "rope_theta": 1e4, "max_position_embeddings": 8192, "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip
LFM: dict[str, Any] = {
    "norm_eps": 1e-5, "tie_word_embeddings": True, "rope_theta": 1e6, "max_position_embeddings": 128000, "conv_L_cache": 3,
    "num_key_value_heads": 8, "block_auto_adjust_ff_dim": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
}  # fmt: skip
LONG = {**COMMON, "max_position_embeddings": 131072}

CAUSAL: Neutral = {"use_bidirectional_attention": (False, None), "sliding_window_size": ANY}
GATED_ONLY: Neutral = {
    "mtp_use_dedicated_embeddings": (False,), "attn_output_gate": (True,), "use_sliding_window": (False,),
    "max_window_layers": ANY,
}  # fmt: skip
UNWINDOWED: Neutral = {"use_sliding_window": (False,)}
OLD_LFM: Neutral = dict.fromkeys(
    ("block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_xavier_init", "conv_dim",
     "conv_dim_out", "conv_use_xavier_init", "num_heads"),
    ANY,
)  # fmt: skip
ONE_GROUP: Neutral = {  # of experts: the header has no field for more
    "n_group": (1,), "topk_group": (1,), "rope_interleave": (True,), "scoring_func": ("sigmoid",), "moe_layer_freq": (1,),
    "topk_method": ("noaux_tc",), "ep_size": ANY, "aux_loss_alpha": ANY, "seq_aux": ANY,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": Family("qwen", full, ATTENTION, {**LLAMA, "max_position_embeddings": 2048}, listing=False),
    "mistral": Family("qwen", windowed, ATTENTION, {**LONG, "sliding_window": 4096, "num_key_value_heads": 8}, listing=False),
    "qwen2": Family("qwen", late_window, ATTENTION, QWEN),
    "qwen3": Family("qwen", late_window, ATTENTION, {**QWEN, "head_dim": 128}),
    "qwen2_moe": Family(
        "qwen",
        late_window,
        (*ATTENTION, moe("norm_topk_prob", shared=SHARED)),
        {**QWEN, "norm_topk_prob": False},
        UNWINDOWED,
    ),
    "qwen3_moe": Family(
        "qwen",
        late_window,
        (*ATTENTION, moe("norm_topk_prob")),
        {**QWEN, "norm_topk_prob": False},
        UNWINDOWED,
        listing=False,
    ),
    "qwen3_next": Family(
        "gemma", GATED, (*ATTENTION, delta_net, moe("norm_topk_prob", shared=SHARED)), DELTA_NET, GATED_ONLY
    ),
    "qwen3_5_text": Family("gemma", GATED, (*ATTENTION, delta_net), DELTA_NET, GATED_ONLY),
    "qwen3_5_moe_text": Family(
        "gemma",
        GATED,
        (*ATTENTION, delta_net, moe(True, shared=SHARED)),
        DELTA_NET,
        {**GATED_ONLY, "norm_topk_prob": (True,)},
    ),
    "gemma": Family("gemma", full, (*ATTENTION, scaled_embeddings), GEMMA, CAUSAL, listing=False),
    "gemma2": Family(
        "gemma",
        alternating,
        (*GEMMA_SCALES, cap("attn_logit_softcapping")),
        {**GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        CAUSAL,
    ),
    "gemma3_text": Family(
        "gemma",
        every("sliding_window_pattern", "sliding_attention", 6),
        GEMMA_SCALES,
        {
            **GEMMA, "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "rope_theta": 1e6,
            "rope_local_base_freq": 1e4, "max_position_embeddings": 131072,
        },
        {**CAUSAL, "attn_logit_softcapping": (None,), "_sliding_window_pattern": ANY},
    ),
    "phi3": Family(
        "qwen",
        windowed,
        ATTENTION,
        {**LLAMA, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
        {"original_max_position_embeddings": ANY},  # read for longrope alone, which is refused
        listing=False,
    ),
    "olmo2": Family("qwen", full, ATTENTION, {**LLAMA, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048}, listing=False),
    "lfm2": Family(
        "qwen", short_conv, (*LFM2, adjusted_width), LFM, {**OLD_LFM, "block_use_swiglu": (True,), "use_pos_enc": (True,)}
    ),
    "lfm2_moe": Family(
        "qwen",
        short_conv,
        (*LFM2, moe("norm_topk_prob", scaling="routed_scaling_factor")),
        LFM,
        {"use_expert_bias": (True,)},
    ),
    "deepseek_v3": Family(
        "qwen",
        full,
        (
            *ATTENTION,
            latent,
            moe("norm_topk_prob", ("n_routed_experts",), shared="n_shared_experts", scaling="routed_scaling_factor"),
        ),
        {
            **COMMON, "max_position_embeddings": 4096, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
            "n_group": 8, "topk_group": 4,
        },
        ONE_GROUP,
        listing=False,
    ),
    "gpt_oss": Family(
        "qwen",
        alternating,
        (*ATTENTION, moe(False, width="intermediate_size")),
        {**LONG, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64, "sliding_window": 128},
        {"swiglu_alpha": (1.702,), "swiglu_limit": (7.0,), "experts_per_token": ANY, "initial_context_length": ANY},
    ),
    "laguna": Family(
        "qwen",
        full,
        (*ATTENTION, heads_per_layer, moe(True, shared=SHARED, scaling="moe_routed_scaling_factor")),
        {**LONG, "moe_routed_scaling_factor": 1.0, "head_dim": 128, "sliding_window": 512},
        {
            "gating": (True, "per-head", "per-element"), "moe_apply_router_weight_on_input": (False,),
            "moe_router_logit_softcapping": (0.0,), "norm_topk_prob": (True,),
        },
    ),
}  # fmt: skip
