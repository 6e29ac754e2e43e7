"""The header's `arch` as an engine needs it (§2, §2.1, §2.2, and the fields that public implementations add).

Law: a field that the forward needs and the file lacks is refused by name; a field that changes the forward in a way that
isn't implemented here is refused unless its value is the neutral one. Fields that nobody knows are ignored, as §1.1 wants.
What is marked ext is in no text: it is read because Gemma, LFM2, DeepSeek and others can't run without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta

from cmfspec.errors import Fault, Unanswerable, Unrunnable

FEW = 8  # names in a message
Count = Annotated[int, Meta(ge=1, lt=2**32)]
Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]
Base = Annotated[float, Meta(gt=1, le=1e30)]  # of a rotation

# Fields that make another forward than ours, and the value with which they don't.
FOREIGN: Mapping[str, Any] = {
    "num_loops": 1,
    "loop_final_norm": False,
    "attention_sink": False,
    "attn_v_norm": False,
    "global_head_dim": None,
    "num_global_kv_heads": None,
    "global_partial_rotary_factor": None,
    "g3n": None,
    "kda_gate_lower_bound": None,
    "activation_situ_beta": None,
    "activation_situ_linear_beta": None,
    "head_clusters": None,
    "moe.router_resonance": False,
    "moe.n_group": 1,
    "mla.nope": False,
    "linear_core.nphase": None,
}


@dataclass(frozen=True)
class Moe:
    """§2.2. norm_topk_prob: whether the chosen weights are divided by their sum."""

    num_experts: Count
    top_k: Count
    norm_topk_prob: bool | None = None
    router_sigmoid: bool = False
    routed_scaling_factor: Positive = 1.0


@dataclass(frozen=True)
class Mtp:
    """§2.1."""

    num_layers: Count
    share_lm_head: bool = True
    share_embed: bool = True


@dataclass(frozen=True)
class Yarn:
    """Rotary scaling by YaRN. attention_factor has two defaults in the world, so a file has to say it."""

    factor: Annotated[float, Meta(ge=1, le=1e30)]
    original_max_position_embeddings: Count
    attention_factor: Positive
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    mscale_all_dim: Annotated[float, Meta(ge=0, le=1e30)] | None = None
    truncate: bool = True


@dataclass(frozen=True)
class Mla:
    """Latent attention (ext); widths of a head's parts."""

    kv_lora_rank: Count
    qk_rope_head_dim: Count
    qk_nope_head_dim: Count
    v_head_dim: Count


@dataclass(frozen=True)
class LinearCore:
    """What a LinearAttention layer computes."""

    kind: Literal["gated_delta_net"] = "gated_delta_net"


@dataclass(frozen=True)
class Arch:
    """Sizes are in elements, angles in radians; None where the file says nothing."""

    hidden_size: Count
    num_layers: Count
    num_attention_heads: Count
    num_kv_heads: Count
    head_dim: Count
    vocab_size: Count
    intermediate_size: Count
    max_position_embeddings: Count
    layer_types: tuple[str, ...]
    rms_norm_eps: Positive
    norm_style: Literal["qwen", "gemma"]
    rope_theta: Base | None = None
    tie_word_embeddings: bool = False
    linear_conv_kernel_dim: Count | None = None
    linear_num_key_heads: Count | None = None
    linear_num_value_heads: Count | None = None
    linear_key_head_dim: Count | None = None
    linear_value_head_dim: Count | None = None
    linear_core: LinearCore = LinearCore()
    partial_rotary_factor: Annotated[float, Meta(gt=0, le=1)] = 1.0
    moe: Moe | None = None
    mtp: Mtp | None = None
    yarn: Yarn | None = None
    attention_heads_per_layer: tuple[Count, ...] | None = None
    sliding_window: Count | None = None
    sliding_window_pattern: Count | None = None
    rope_local_base_freq: Base | None = None
    local_partial_rotary_factor: Annotated[float, Meta(gt=0, le=1)] | None = None
    rope_freq_factors: tuple[Positive, ...] | None = None
    hidden_act: Literal["silu", "gelu_tanh"] = "silu"
    embed_multiplier: Positive = 1.0
    logit_multiplier: Positive = 1.0
    query_pre_attn_scalar: Positive | None = None
    attn_logit_softcapping: Positive | None = None
    final_logit_softcapping: Positive | None = None
    mla: Mla | None = None


@dataclass(frozen=True)
class Layer:
    """One decoder block. index: its row in the masks, None for the block of the MTP head; tag: its `layer_types`."""

    prefix: str
    index: int | None
    tag: str


def refuse(rule: str, field: str, found: object, wanted: object) -> NoReturn:
    """Raise Unrunnable."""
    raise Unrunnable(Fault("Other", rule, field, None, str(found), str(wanted)))


def decline(rule: str, field: str, found: object, wanted: object) -> NoReturn:
    """Raise Unanswerable: the request is at fault, not the file."""
    raise Unanswerable(Fault("Other", rule, field, None, str(found), str(wanted)))


def few(names: Iterable[str]) -> str:
    """Names for a message, the first of them if they are many."""
    known = sorted(names)
    return ", ".join(known[:FEW]) + (f" and {len(known) - FEW} more" if len(known) > FEW else "")


def arch_of(header: Mapping[str, Any]) -> Arch:
    """The `arch` of a header. Raises Unrunnable, with the field's name."""
    given = header.get("arch")
    if not isinstance(given, dict):
        refuse("HDR-011", "header.arch", "nothing" if given is None else type(given).__name__, "an object")
    for path, neutral in FOREIGN.items():
        value: Any = given
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value != neutral:
            refuse(
                "HDR-011", f"header.arch.{path}", repr(value)[:80], f"{neutral!r}, or nothing: no more is implemented"
            )
    try:
        arch = msgspec.convert(_present(given), Arch)
    except msgspec.ValidationError as error:
        _refuse_field(str(error))
    for field in ("layer_types", "attention_heads_per_layer"):
        per_layer = getattr(arch, field)
        if per_layer is not None and len(per_layer) != arch.num_layers:
            rule = "HDR-013" if field == "layer_types" else "HDR-026"
            refuse(
                rule, f"header.arch.{field}", f"{len(per_layer)} entries", f"one of each of {arch.num_layers} layers"
            )
    return arch


def _present(node: dict[str, Any]) -> dict[str, Any]:
    """Without the members that are null: they say nothing (HDR-024)."""
    return {
        key: _present(value) if isinstance(value, dict) else value for key, value in node.items() if value is not None
    }


def _refuse_field(message: str) -> NoReturn:
    """The decoder's sentence, as a fault of the field that it is about."""
    said, _, path = message.partition(" - at `$")
    field = f"header.arch{path.rstrip('`')}"
    if said.startswith("Object missing required field"):
        name = said.split("`")[1]
        rule = "HDR-014" if name == "norm_style" else "HDR-011"
        refuse(rule, f"{field}.{name}", "nothing", "a value: the forward needs it")
    wanted, _, found = said.removeprefix("Expected ").partition(", got ")
    rule = "HDR-030" if field.endswith(".norm_style") else "HDR-011"
    refuse(rule, field, found or said, wanted)


def needed(value: Any, field: str, why: str, rule: str = "HDR-011") -> Any:
    """A field that only some layers need. Raises Unrunnable."""
    if value is None:
        refuse(rule, f"header.arch.{field}", "nothing", f"a value: {why}")
    return value
