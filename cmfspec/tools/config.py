"""config.json of a Hugging Face model to the `arch` of a header (§2, §2.1, §2.2).

Law: a family is a row of `FAMILIES`: which parts of the configuration it has, and what transformers assumes for a key that
isn't there. Every key of the file is either carried (read by a part), harmless (it says nothing about what is computed),
or neutral (it has the one value that changes nothing). Anything else is refused by its name and line: a header that
can't say it must not be written. Fields beyond the text (RULINGS, profiles `en` and `ext`) are additive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cmfspec.tools.families import FAMILIES
from cmfspec.tools.parts import layer_types, window
from cmfspec.tools.rope import rope
from cmfspec.tools.settings import MISSING, Settings
from cmfspec.tools.unpackable import JsonFile, shown

# Keys that say nothing about what is computed: training, serving, bookkeeping, and special tokens (§6.1 has those).
_HARMLESS = """
    _attn_implementation _attn_implementation_autoset _commit_hash _experts_implementation _name_or_path architectures
    attention_dropout attn_implementation auto_map bos_token_id cache_implementation chunk_size_feed_forward
    classifier_dropout dtype embd_pdrop eos_token_id finetuning_task hidden_dropout id2label initializer_range
    is_llama_config label2id mamba_ssm_dtype model_type output_attentions output_hidden_states output_router_logits
    pad_token_id pretraining_tp problem_type resid_pdrop return_dict router_aux_loss_coef router_jitter_noise
    task_specific_params tokenizer_class torch_dtype torchscript transformers.js_config transformers_version
    unsloth_fixed unsloth_version use_cache
"""
HARMLESS = frozenset(_HARMLESS.split())
MAX_LAYERS = 4096  # each has a tag in the header: a number alone must not take space
MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers")
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "mlp_bias": (False,), "conv_bias": (False,), "is_decoder": (False, None), "use_mrope": (False,),
    "rope_interleaved": (False,),
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
    count = settings.integer("num_hidden_layers", most=MAX_LAYERS)
    arch: dict[str, Any] = {"arch_name": settings.model_type, "num_layers": count, "norm_style": family.norm}
    arch["layer_types"] = layer_types(settings, count, family.layers, family.listing)
    for part in family.parts:
        part(settings, arch)
    window(settings, arch)
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
