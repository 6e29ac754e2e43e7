"""The tensors of a Hugging Face model to the tensors of a `.cmf` (§2.1, §2.2, §3).

Law: names are the source's, one to one, but for the documented renames below and for what is stored fused: a fused tensor
becomes the rows of its parts, which moves values and computes none. A tensor that has no canonical name, one that is
missing, and one of another shape than the configuration says are refused by name; nothing is dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmfspec.tools.fused import FUSED, NUMBER, Arch, Cut, wants
from cmfspec.tools.safetensors import Stored
from cmfspec.tools.unpackable import Unpackable, shown

# --- names ---------------------------------------------------------------------------------------------------------

# A composite model's text part, the MTP head (§2.1), and the families that name things otherwise; all that match, in order.
RENAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"^model\.language_model\.", "model."),
        (r"^language_model\.(model|lm_head)\.", r"\1."),
        (r"^mtp\.fc\.", "model.mtp.eh_proj."),
        (r"^mtp\.pre_fc_norm_embedding\.", "model.mtp.enorm."),
        (r"^mtp\.pre_fc_norm_hidden\.", "model.mtp.hnorm."),
        (r"^mtp\.", "model.mtp."),
        (r"\.mlp\.shared_experts\.", ".mlp.shared_expert."),  # deepseek
        (r"\.mlp\.(gate|experts)\.e_score_correction_bias$", ".mlp.expert_bias"),
        (r"\.mlp\.router\.", ".mlp.gate."),  # gpt_oss
        (r"^model\.embedding_norm\.", "model.norm."),  # lfm2
        (r"\.operator_norm\.", ".input_layernorm."),
        (r"\.ffn_norm\.", ".post_attention_layernorm."),
        (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."),
        (r"\.self_attn\.([qk])_layernorm\.", r".self_attn.\1_norm."),
        (r"\.conv\.(conv|in_proj|out_proj)\.", r".short_conv.\1."),
        (r"\.feed_forward\.", ".mlp."),
        (r"(\.mlp\.(?:experts\.\d+\.)?)w1\.", r"\1gate_proj."),
        (r"(\.mlp\.(?:experts\.\d+\.)?)w3\.", r"\1up_proj."),
        (r"(\.mlp\.(?:experts\.\d+\.)?)w2\.", r"\1down_proj."),
    )
)
BUFFERS = re.compile(r"\.rotary_emb\.inv_freq$")  # recomputed from the configuration by whoever loads it
OTHER_MODALITIES = re.compile(
    r"^(model\.)?(visual|vision_tower|vision_model|audio_tower|multi_modal_projector|vision_embed_tokens)\."
)
_LAYER = re.compile(rf"^model\.layers\.({NUMBER})\.(.+)$")
_MTP_ITS_OWN = {"shared_head.norm.weight": "norm.weight"}  # of a head stored as one more layer
_MTP_OUTSIDE = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "norm.weight")

_PROJECTION = r"(gate|up|down)_proj\.(weight|bias)"
CANONICAL = re.compile(
    r"""
    model\.embed_tokens\.weight | model\.norm\.weight | lm_head\.weight
    | model\.mtp\.(enorm|hnorm|norm|eh_proj)\.weight
    | model\.(mtp\.)?layers\.NUMBER\.(
        (input|post_attention|pre_feedforward|post_feedforward)_layernorm\.weight
        | self_attn\.( [qkvo]_proj\.(weight|bias) | [qk]_norm\.weight | g_proj\.weight | sinks
            | (q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj)\.weight | (q_a|kv_a)_layernorm\.weight )
        | linear_attn\.( (in_proj_qkv|in_proj_z|in_proj_a|in_proj_b|conv1d|norm|out_proj)\.weight | A_log | dt_bias )
        | short_conv\.(in_proj|conv|out_proj)\.weight
        | mlp\.( (gate|up|down)_proj\.weight | gate\.(weight|bias) | expert_bias | experts\.NUMBER\.PROJECTION
            | shared_expert\.(gate|up|down)_proj\.weight | shared_expert_gate\.weight )
      )
    """.replace("PROJECTION", _PROJECTION).replace("NUMBER", NUMBER),
    re.VERBOSE,
)


def canonical(name: str, arch: Arch, mtp: bool) -> str:
    """The canonical name of a tensor as the hub has it; fused ones keep their own. mtp: the configuration speaks of an
    MTP head, which may be stored as one more layer."""
    for pattern, new in RENAMES:
        name = pattern.sub(new, name)
    found, count = _LAYER.match(name), arch["num_layers"]
    if not found or int(found[1]) < count or not mtp:
        return name
    rest = _MTP_ITS_OWN.get(found[2], found[2])
    return f"model.mtp.{rest}" if rest in _MTP_OUTSIDE else f"model.mtp.layers.{int(found[1]) - count}.{rest}"


# --- all of them ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is to be written, and what is not. cuts: in order; copies: (stored, the stored one that it has to equal);
    left_out: prefixes of what `text_only` leaves out, and how many tensors each has."""

    cuts: tuple[Cut, ...]
    copies: tuple[tuple[Stored, Stored], ...]
    left_out: Mapping[str, int]


def plan_of(folder: Path, stored: Mapping[str, Stored], arch: Arch, mtp: bool = False, text_only: bool = False) -> Plan:
    """Every tensor of the source, accounted for. folder: where they are; mtp: see `canonical`. Raises Unpackable."""
    found: dict[str, Cut] = {}
    doubles: list[tuple[Stored, str]] = []
    left_out: dict[str, int] = {}
    for one in stored.values():
        if BUFFERS.search(one.name):
            continue
        if text_only and (other := OTHER_MODALITIES.match(one.name)):
            left_out[other[0]] = left_out.get(other[0], 0) + 1
            continue
        name = canonical(one.name, arch, mtp)
        if (first := _double(name, arch)) is not None:
            doubles.append((one, first))
            continue
        for cut in _cuts(name, one, arch):
            if cut.name in found:
                raise Unpackable(
                    one.file,
                    f"tensor {shown(one.name)}",
                    f"a second {cut.name}, after {shown(found[cut.name].stored.name)}",
                    "one",
                )
            found[cut.name] = cut
    for name in _needed(arch, found):
        if name not in found:
            raise Unpackable(folder, "tensors", f"no {name}", "all that the configuration speaks of")
    copies = tuple((one, found[first].stored) for one, first in doubles if first in found)
    return Plan(tuple(sorted(found.values(), key=_order)), copies, left_out)


def _cuts(name: str, stored: Stored, arch: Arch) -> Iterator[Cut]:
    if (wrong := _foreign(name, arch)) is not None:
        raise Unpackable(stored.file, f"tensor {shown(stored.name)}", wrong, "what the configuration speaks of")
    for pattern, cuts, needs in FUSED:
        if (found := pattern.match(name)) and (not needs or needs in arch):
            yield from cuts(stored, f"{found[1]}.", arch)
            return
    if not CANONICAL.fullmatch(name):
        hint = " (--text-only leaves other modalities out)" if OTHER_MODALITIES.match(stored.name) else ""
        raise Unpackable(
            stored.file, f"tensor {shown(stored.name)}", "a name that no engine knows", f"a tensor of the model{hint}"
        )
    if (wanted := _shape(name, arch)) is not None:
        wants(stored, wanted)
    yield Cut(name, stored, stored.shape, ((0, stored.rows),))


def _foreign(name: str, arch: Arch) -> str | None:
    """In words, what the configuration has nothing of: an engine would go by the tensor that is there."""
    layer = re.match(rf"^model\.(mtp\.)?layers\.({NUMBER})\.(\w+)\.?(.*)$", name)
    if not layer:
        return None
    if not layer[1] and int(layer[2]) >= arch["num_layers"]:
        return f"layer {layer[2]} of {arch['num_layers']}"
    if layer[3] in ("self_attn", "linear_attn", "short_conv"):
        tag = "FullAttention" if layer[1] else arch["layer_types"][int(layer[2])]
        return None if layer[3] == _MIXER_OF.get(tag, "self_attn") else f"{layer[3]} in a layer of {tag}"
    if layer[3] != "mlp" or not re.match(
        r"(experts|gate|shared_expert|shared_expert_gate|expert_bias)(\.|$)", layer[4]
    ):
        return None
    if "moe" not in arch:
        return "a mixture of experts"
    expert = re.match(rf"experts\.({NUMBER})\.", layer[4])
    many = arch["moe"]["num_experts"]
    return f"expert {expert[1]} of {many}" if expert and int(expert[1]) >= many else None


def _double(name: str, arch: Arch) -> str | None:
    """The tensor that this one has to be a copy of: a tied head, or what an MTP head shares with the model."""
    if name == "lm_head.weight" and arch["tie_word_embeddings"]:
        return "model.embed_tokens.weight"
    found = re.match(r"^model\.mtp\.(?:layers\.\d+\.)?(shared_head\.head|lm_head|embed_tokens)\.weight$", name)
    if not found:
        return None
    tied = found[1] == "embed_tokens" or arch["tie_word_embeddings"]
    return "model.embed_tokens.weight" if tied else "lm_head.weight"


def _shape(name: str, arch: Arch) -> tuple[int, ...] | None:
    """The shape that the configuration asks for; None where the tensors decide."""
    hidden, vocab = arch["hidden_size"], arch["vocab_size"]
    if name in ("model.embed_tokens.weight", "lm_head.weight"):
        return vocab, hidden
    if name == "model.mtp.eh_proj.weight":
        return hidden, 2 * hidden
    moe = arch.get("moe", {})
    found = re.search(r"\.mlp\.(experts\.\d+\.|shared_expert\.|)(gate|up|down)_proj\.weight$", name)
    if found:
        kind = found[1].partition(".")[0]
        keys = {"experts": "moe_intermediate_size", "shared_expert": "shared_expert_intermediate_size"}
        inner = moe.get(keys[kind]) if kind else arch["intermediate_size"]
        return None if inner is None else (hidden, inner) if found[2] == "down" else (inner, hidden)
    if name.endswith(".mlp.gate.weight"):
        return (moe["num_experts"], hidden) if moe else None
    if re.search(r"^model\.norm\.|_layernorm\.weight$", name) and ".self_attn." not in name:
        return (hidden,)
    return None


_MIXERS = {
    "self_attn": {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight"},
    "latent": {
        "self_attn.kv_a_proj_with_mqa.weight", "self_attn.kv_a_layernorm.weight", "self_attn.kv_b_proj.weight",
        "self_attn.o_proj.weight",
    },
    "linear_attn": {
        *(f"linear_attn.{name}.weight" for name in
          ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "conv1d", "norm", "out_proj")),
        "linear_attn.A_log", "linear_attn.dt_bias",
    },
    "short_conv": {"short_conv.in_proj.weight", "short_conv.conv.weight", "short_conv.out_proj.weight"},
}  # fmt: skip
_MIXER_OF = {"LinearAttention": "linear_attn", "ShortConv": "short_conv"}
_FEED = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
MTP = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "norm.weight")


def _needed(arch: Arch, found: Mapping[str, Cut]) -> Iterator[str]:
    """The names without which no engine could run the model."""
    yield "model.embed_tokens.weight"
    for layer, tag in enumerate(arch["layer_types"]):
        yield from _needed_of_layer(f"model.layers.{layer}.", tag, arch, found)
    yield "model.norm.weight"
    if not arch["tie_word_embeddings"]:
        yield "lm_head.weight"
    if any(name.startswith("model.mtp.") for name in found):
        yield from (f"model.mtp.{name}" for name in MTP)
        for layer in range(mtp_layers(found)):
            yield from _needed_of_layer(f"model.mtp.layers.{layer}.", "FullAttention", arch, found)


def _needed_of_layer(prefix: str, tag: str, arch: Arch, found: Mapping[str, Cut]) -> Iterator[str]:
    mixer = _MIXER_OF.get(tag, "latent" if "mla" in arch else "self_attn")
    yield from (f"{prefix}{name}" for name in sorted(_MIXERS[mixer]))
    if f"{prefix}mlp.gate.weight" in found:
        banks = [f"experts.{expert}." for expert in range(arch["moe"]["num_experts"] if "moe" in arch else 0)]
        shared = "shared_expert_intermediate_size" in arch.get("moe", {})
        for bank in banks + ["shared_expert."] * shared:
            yield from (f"{prefix}mlp.{bank}{name}" for name in _FEED)
    else:
        yield from (f"{prefix}mlp.{name}" for name in _FEED)


def mtp_layers(found: Mapping[str, Cut]) -> int:
    """How many layers the MTP head has (§2.1); 0 where there is none. A head always has one."""
    layers = [int(m[1]) for name in found if (m := re.match(r"^model\.mtp\.layers\.(\d+)\.", name))]
    return max(layers, default=0) + 1 if any(name.startswith("model.mtp.") for name in found) else 0


# --- their order ---------------------------------------------------------------------------------------------------

_ROLES = (
    "input_layernorm", "self_attn", "linear_attn", "short_conv", "post_attention_layernorm", "pre_feedforward_layernorm",
    "mlp", "post_feedforward_layernorm",
)  # fmt: skip
_PROJECTIONS = ("gate", "up", "down")


def _order(cut: Cut) -> tuple[Any, ...]:
    """As a forward pass meets them; the experts of a layer by role, then by number (§2.2)."""
    name = cut.name
    place = ("model.embed_tokens", "model.layers", "model.norm", "lm_head", "model.mtp")
    block = next(i for i, prefix in enumerate(place) if name.startswith(prefix))
    layer = re.match(r"^model\.(?:mtp\.)?layers\.(\d+)\.(\w+)\.", name)
    if not layer:
        return block, -1, 0, 0, 0, 0, name
    role = _ROLES.index(layer[2])
    expert = re.search(r"\.mlp\.experts\.(\d+)\.(\w+)_proj\.(\w+)$", name)
    if not expert:
        return block, int(layer[1]), role, 0, 0, 0, name
    kind = _PROJECTIONS.index(expert[2]) + len(_PROJECTIONS) * (expert[3] == "bias")
    return block, int(layer[1]), role, 1, kind, int(expert[1]), name
