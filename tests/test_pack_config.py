"""config.json: every key is carried, harmless, neutral, or refused by name and line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cmfspec.tools.config import model_of
from cmfspec.tools.families import FAMILIES
from cmfspec.tools.unpackable import Unpackable, json_file
from tests.models import CONFIG

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 96, "max_position_embeddings": 128,
}  # fmt: skip
ASSUMED = ("num_key_value_heads", "max_position_embeddings")  # of a llama
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def arch(folder: Path, config: Any, text_only: bool = False) -> dict[str, Any]:
    """The arch of that configuration."""
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config, indent=1))
    return model_of(json_file(path), text_only).arch


def refused(folder: Path, config: Any, text_only: bool = False) -> str:
    """What is said of it."""
    with pytest.raises(Unpackable) as found:
        arch(folder, config, text_only)
    return str(found.value)


def of(model_type: str, **more: Any) -> dict[str, Any]:
    """A configuration of that family."""
    return {"model_type": model_type, **SIZES, **more}


def test_the_fields_of_the_text_are_all_there(tmp_path: Path) -> None:
    """Those of the example in §2, with numbers of the right kind."""
    found = arch(tmp_path, CONFIG)
    assert found == {
        "arch_name": "llama", "hidden_size": 64, "intermediate_size": 96, "num_layers": 2, "num_attention_heads": 4,
        "num_kv_heads": 2, "head_dim": 16, "vocab_size": 96, "layer_types": ["FullAttention"] * 2, "rms_norm_eps": 1e-5,
        "norm_style": "qwen", "rope_theta": 10000.0, "partial_rotary_factor": 1.0, "tie_word_embeddings": False,
        "max_position_embeddings": 128,
    }  # fmt: skip


@pytest.mark.parametrize("key", [*(key for key in SIZES if key not in ASSUMED), "model_type"])
def test_a_number_that_is_missing_is_named(key: str, tmp_path: Path) -> None:
    """Where transformers would take one of no particular model."""
    said = refused(tmp_path, {name: value for name, value in CONFIG.items() if name != key})
    assert f"config.json: {key}: found no" in said.replace("None", "nothing")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": "64"}, "line 6, hidden_size: found '64', wanted an integer from 1"),
        ({"hidden_size": 64.0}, "hidden_size: found 64.0"),
        ({"hidden_size": True}, "hidden_size: found True"),
        ({"hidden_size": 0}, "hidden_size: found 0"),
        ({"hidden_size": 2**32}, "hidden_size: found 4294967296"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: found -1"),
        ({"num_attention_heads": 5}, "num_attention_heads: found 5, wanted a divisor of hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: found 3, wanted a divisor"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: found 1, wanted true or false"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: found 0, wanted a number above 0"),
        ({"rms_norm_eps": None}, "rms_norm_eps: found null"),
        ({"rope_theta": "1e4"}, "rope_theta: found '1e4'"),
        ({"hidden_act": "relu"}, "hidden_act: found 'relu', wanted one of silu"),
        ({"hidden_act": ["silu"]}, "hidden_act: found ['silu']"),
        ({"hidden_activation": "gelu_pytorch_tanh"}, "wanted one activation"),
        ({"mlp_bias": True}, "mlp_bias: found True, wanted False: the header has no field for it"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor: found 1.5, wanted at most 1"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: found {'bits': 4}"),
        ({"logit_scale": 0.5}, "logit_scale: found 0.5, wanted a key that the header has a field for"),
        ({"layer_types": ["sliding_attention"] * 2}, "this family has no other"),
        ({"sliding_window": 8}, None),
        ({"model_type": "gpt2"}, "model_type: found 'gpt2', wanted one of llama, mistral"),
        ({"model_type": None}, "model_type: found None"),
        ({"\x1b[2J": 1}, "\\x1b[2J"),
    ],
    ids=str,
)
def test_what_the_header_cannot_carry_is_refused_by_name_and_line(
    change: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    """Never dropped, never guessed."""
    if said is None:  # transformers doesn't look at it in this family, and says so by having no such key
        assert "sliding_window" in arch(tmp_path, {**of("mistral"), **change})
        return
    found = refused(tmp_path, {**CONFIG, **change})
    assert said in found or said in ascii(found)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', '{"a": 1, "a": 1}', "\ufeff{}", "[" * 9999])
def test_a_file_that_is_no_json_object_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    """As strictly as a header."""
    assert "config.json: line 1: found" in refused(tmp_path, text)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key", ["some_new_scale", "attention_logit_multiplier"])
def test_no_family_drops_a_key_that_it_does_not_know(family: str, key: str, tmp_path: Path) -> None:
    """The rest of the configuration is right, so that this key is what is refused."""
    more = {
        "linear_attn": {}, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 1, "topk_group": 1,
    }  # fmt: skip
    said = refused(tmp_path, {**of(family, **more), key: 2.0})
    asked = [name for name in more if f" {name}: found" in said] + [key] * (f" {key}: found 2.0" in said)
    needed = {name: value for name, value in more.items() if name not in asked}
    while key not in asked:  # leave out what this family has no use for, until only the strange key is left
        said = refused(tmp_path, {**of(family, **needed), key: 2.0})
        asked = [name for name in needed if f" {name}: found" in said] + [key] * (f" {key}: found 2.0" in said)
        assert asked, said
        needed = {name: value for name, value in needed.items() if name not in asked}
    assert f" {key}: found 2.0, wanted a key that the header has a field for" in said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        (
            {
                "rope_theta": 1e6,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
            },
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 1e6,
                    "factor": 4,
                    "original_max_position_embeddings": 32,
                }
            },
        ),
        (
            {"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}},
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
        ),
        (
            {"partial_rotary_factor": 0.5, "rope_scaling": None},
            {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000}},
        ),
    ],
    ids=["theta", "yarn", "linear", "partial"],
)
def test_old_and_new_words_for_the_rotary_embedding_mean_the_same(old: Any, new: Any, tmp_path: Path) -> None:
    """rope_scaling beside rope_theta, and rope_parameters."""
    bare = {name: value for name, value in CONFIG.items() if name != "rope_theta"}
    found = arch(tmp_path, {**bare, **old})
    assert found == arch(tmp_path, {**bare, **new})
    assert found != arch(tmp_path, {**bare, "rope_theta": 77.0})


def test_yarn_is_written_out(tmp_path: Path) -> None:
    """Since the header's default of attention_factor isn't transformers'."""
    given = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert arch(tmp_path, {**CONFIG, "rope_scaling": given})["yarn"] == {
        "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0,
        "attention_factor": 0.1 * math.log(4) + 1,
    }  # fmt: skip
    both = arch(tmp_path, {**CONFIG, "rope_scaling": {**given, "mscale": 0.7, "mscale_all_dim": 1.0}})["yarn"]
    assert both["attention_factor"] == pytest.approx((0.07 * math.log(4) + 1) / (0.1 * math.log(4) + 1))
    assert both["mscale_all_dim"] == 1.0
    assert (
        arch(tmp_path, {**CONFIG, "rope_scaling": {**given, "attention_factor": 1.5}})["yarn"]["attention_factor"]
        == 1.5
    )
    assert arch(tmp_path, {**CONFIG, "rope_scaling": {**given, "truncate": False}})["yarn"]["truncate"] is False


def test_linear_scaling_divides_every_frequency(tmp_path: Path) -> None:
    """As many factors as there are pairs."""
    found = arch(tmp_path, {**CONFIG, "rope_scaling": {"type": "linear", "factor": 8.0}})
    assert found["rope_freq_factors"] == [8.0] * 8


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        (
            {"rope_type": "dynamic", "factor": 2.0},
            "rope_type: found ['dynamic'], wanted one of default, linear, llama3, yarn",
        ),
        ({"type": "longrope", "short_factor": [1.0]}, "type: found ['longrope']"),
        ({"rope_type": "yarn", "type": "linear"}, "rope_type: found ['yarn', 'linear']"),
        ({"rope_type": ["yarn"]}, "rope_type"),
        ({"rope_type": "yarn"}, "factor: found nothing"),
        ({"rope_type": "yarn", "factor": "4"}, "factor: found '4'"),
        ({"rope_type": "llama3", "factor": 8.0}, "low_freq_factor: found nothing"),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1,
                "high_freq_factor": 1,
                "original_max_position_embeddings": 8,
            },
            "high_freq_factor: found 1.0, wanted another",
        ),
        ({"rope_type": "linear", "factor": 2.0, "novelty": 1}, "novelty: found 1"),
        ({"factor": 2.0}, "factor: found 2.0"),
        ([1], "rope_scaling: found [1], wanted an object or null"),
    ],
    ids=str,
)
def test_a_scaling_that_the_header_has_no_field_for_is_refused(scaling: Any, said: str, tmp_path: Path) -> None:
    """And so is one whose numbers are missing."""
    assert said in refused(tmp_path, {**CONFIG, "rope_scaling": scaling})
    assert "rope_scaling: found" in refused(
        tmp_path, {**CONFIG, "rope_scaling": {"type": "linear", "factor": 1}, "rope_parameters": {}}
    )


def test_sliding_layers_may_have_a_base_of_their_own(tmp_path: Path) -> None:
    """In old words and in new ones."""
    sizes = of("gemma3_text", sliding_window=8)
    old = arch(
        tmp_path,
        {**sizes, "rope_theta": 1e6, "rope_local_base_freq": 5e3, "rope_scaling": {"type": "linear", "factor": 8}},
    )
    kinds = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
    }
    assert old == arch(tmp_path, {**sizes, "rope_parameters": kinds})
    assert (old["rope_theta"], old["rope_local_base_freq"]) == (1e6, 5e3)
    assert old["rope_freq_factors"] == [8.0] * 128
    for wrong, said in (
        ({**kinds, "conv": {}}, "rope_parameters.conv: found {}"),
        ({**kinds, "full_attention": None}, "full_attention: found None"),
        (
            {**kinds, "sliding_attention": {"rope_type": "yarn", "rope_theta": 1.0}},
            "sliding_attention.rope_type: found 'yarn'",
        ),
    ):
        assert said in refused(tmp_path, {**sizes, "rope_parameters": wrong})


@pytest.mark.parametrize(
    ("config", "tags"),
    [
        (of("mistral"), ["SlidingAttention"] * 4),
        (of("mistral", sliding_window=None), ["FullAttention"] * 4),
        (of("phi3"), ["SlidingAttention"] * 4),
        (of("phi3", sliding_window=None), ["FullAttention"] * 4),
        (of("qwen2", sliding_window=8, max_window_layers=2), ["FullAttention"] * 4),
        (
            of("qwen2", sliding_window=8, max_window_layers=2, use_sliding_window=True),
            ["FullAttention"] * 2 + ["SlidingAttention"] * 2,
        ),
        (of("gemma2"), ["SlidingAttention", "FullAttention"] * 2),
        (of("gemma3_text", sliding_window_pattern=2), ["SlidingAttention", "FullAttention"] * 2),
        (of("gemma3_text"), ["SlidingAttention"] * 4),
        (of("qwen3_5_text"), ["LinearAttention"] * 3 + ["FullAttention"]),
        (of("qwen3_5_text", full_attention_interval=2), ["LinearAttention", "FullAttention"] * 2),
        (of("lfm2", full_attn_idxs=[1]), ["ShortConv", "FullAttention", "ShortConv", "ShortConv"]),
        (of("lfm2"), ["FullAttention"] * 4),
        (of("llama", layer_types=["full_attention"] * 4), ["FullAttention"] * 4),
        (of("qwen3", layer_types=["full_attention"] * 4), ["FullAttention"] * 4),
    ],
    ids=lambda value: "-".join(map(str, [value["model_type"], *list(value)[8:]])) if isinstance(value, dict) else "",
)
def test_layers_follow_from_the_family_where_they_are_not_listed(config: Any, tags: list[str], tmp_path: Path) -> None:
    """By the rule that transformers has for them."""
    if config["model_type"] == "phi3" and "sliding_window" not in config:
        config = {**config, "sliding_window": 8}
    found = arch(tmp_path, config)
    assert found["layer_types"] == tags
    assert ("sliding_window" in found) == ("SlidingAttention" in tags)


@pytest.mark.parametrize("kinds", [["full_attention"] * 3, ["mamba"] * 4, "full_attention", [1, 2, 3, 4]], ids=str)
def test_layers_that_cannot_be_are_refused(kinds: Any, tmp_path: Path) -> None:
    """Too few, unknown, none."""
    assert "layer_types: found" in refused(tmp_path, of("qwen3", layer_types=kinds))


def test_a_configuration_of_a_mixture_is_held_to_its_numbers(tmp_path: Path) -> None:
    """Two words for one number have to agree, and no token goes to more experts than there are."""
    good = of("qwen3_moe", **MOE)
    assert arch(tmp_path, good)["moe"] == {
        "num_experts": 4,
        "top_k": 2,
        "moe_intermediate_size": 32,
        "norm_topk_prob": False,
    }
    assert "wanted one number of experts" in refused(tmp_path, {**good, "num_local_experts": 5})
    assert "num_experts_per_tok: found 5, wanted at most 4" in refused(tmp_path, {**good, "num_experts_per_tok": 5})
    assert "norm_topk_prob: found 'yes'" in refused(tmp_path, {**good, "norm_topk_prob": "yes"})
    deep = of("deepseek_v3", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
    assert "n_group: found 8, wanted 1: the header has no field" in refused(
        tmp_path,
        {**deep, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 8},
    )


def test_the_width_of_an_adjusted_feed_forward_is_the_real_one(tmp_path: Path) -> None:
    """Two thirds, rounded up: what the weights have."""
    found = arch(
        tmp_path, {**of("lfm2"), "block_ff_dim": 1000, "block_multiple_of": 64, "block_ffn_dim_multiplier": 1.0}
    )
    assert found["intermediate_size"] == 704
    assert arch(tmp_path, of("lfm2", block_auto_adjust_ff_dim=False))["intermediate_size"] == 96


COMPOSITE = {
    "model_type": "qwen3_5",
    "text_config": of("qwen3_5_text"),
    "vision_config": {"depth": 2},
    "image_token_id": 3,
}


def test_a_composite_model_is_packed_as_text_only_if_one_says_so(tmp_path: Path) -> None:
    """What is left out has to be left out knowingly; a quantised one isn't read in any case."""
    assert "vision_config: found {'depth': 2}, wanted a text model alone; --text-only" in refused(tmp_path, COMPOSITE)
    assert arch(tmp_path, COMPOSITE, text_only=True) == arch(tmp_path, of("qwen3_5_text"))
    assert "quantization_config" in refused(tmp_path, {**COMPOSITE, "quantization_config": {}}, text_only=True)
    alone = {"model_type": "qwen3_5", "text_config": of("qwen3_5_text"), "torch_dtype": "bfloat16"}
    assert arch(tmp_path, alone) == arch(tmp_path, of("qwen3_5_text"))
    wrong = {**alone, "text_config": of("qwen3_5_text", strange=1)}
    assert "text_config.strange: found 1" in refused(tmp_path, wrong)
    assert "text_config: found 7, wanted an object" in refused(tmp_path, {**alone, "text_config": 7})


def test_both_halves_of_a_composite_model_have_to_agree_about_the_head(tmp_path: Path) -> None:
    """One of them may be silent."""
    outer = {"model_type": "qwen3_5", "text_config": of("qwen3_5_text"), "tie_word_embeddings": True}
    assert arch(tmp_path, outer)["tie_word_embeddings"] is True
    outer["text_config"]["tie_word_embeddings"] = False
    assert "tie_word_embeddings: found" in refused(tmp_path, outer)


HUB = {  # as they stand there, shortened where they go on and on
    "old llama": """{"_name_or_path": "x", "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 128256}""",
    "small llama": """{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
        "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
        "rope_theta": 100000, "tie_word_embeddings": true, "transformers.js_config": {"dtype": "q4"}, "vocab_size": 49152}""",
    "qwen2": """{"hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768,
        "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 151936}""",
    "gemma3, composite": """{"boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106], "model_type": "gemma3",
        "image_token_index": 262144, "mm_tokens_per_image": 256, "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}}""",
    "phi3": """{"architectures": ["Phi3ForCausalLM"], "auto_map": {"AutoConfig": "x"}, "attention_bias": false, "embd_pdrop": 0.0,
        "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
        "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
        "tie_word_embeddings": false, "vocab_size": 32064}""",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("old llama", {"head_dim": 64, "tie_word_embeddings": True, "rope_theta": 500000.0}),
        ("small llama", {"head_dim": 64, "rope_theta": 100000.0, "num_kv_heads": 3}),
        ("qwen2", {"head_dim": 64, "layer_types": ["FullAttention"] * 24}),
        (
            "gemma3, composite",
            {
                "arch_name": "gemma3_text", "vocab_size": 262208, "num_attention_heads": 8, "num_kv_heads": 4, "head_dim": 256,
                "tie_word_embeddings": True, "sliding_window": 1024, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                "rope_freq_factors": [8.0] * 128, "query_pre_attn_scalar": 256, "hidden_act": "gelu_tanh",
                "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "embed_multiplier": math.sqrt(2560),
            },
        ),
        ("phi3", {"sliding_window": 2047, "layer_types": ["SlidingAttention"] * 32}),
    ],
)  # fmt: skip
def test_configurations_as_the_hub_has_them_are_understood(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """With their leftovers, and with what they leave to transformers."""
    found = arch(tmp_path, HUB[name], text_only="composite" in name)
    assert {key: found.get(key) for key in fields} == fields
    if name == "old llama":  # long waves slowed 32 times, short ones not, and one way between them
        factors = found["rope_freq_factors"]
        assert (factors[0], factors[-1]) == (1.0, 32.0)
        assert factors == sorted(factors)
        assert any(1 < factor < 32 for factor in factors)
