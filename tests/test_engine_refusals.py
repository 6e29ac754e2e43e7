"""What can't be computed is refused by name; nothing else leaves the engine, whatever the file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.engine import Drafts, load
from cmfspec.engine.arch import FOREIGN, Arch
from cmfspec.errors import Refusal, Unanswerable, Unrunnable
from cmfspec.format.blueprint import Blueprint
from cmfspec.format.build import render
from cmfspec.format.container import Container
from cmfspec.format.view import View
from tests.oracle import FAMILIES, arrays, blueprint, edited, entries, model, run
from tests.shared import INTEROP, needs_interop

# One family of each mixer and feed.
KINDS = ("qwen2", "gemma2", "laguna", "qwen3_5_mtp", "qwen2_moe", "lfm2_moe", "deepseek_v3", "gpt_oss")
NASTY: tuple[Any, ...] = (
    "x",
    "",
    [],
    {},
    [1],
    {"a": 1},
    True,
    False,
    -1,
    0,
    1,
    2,
    3,
    7,
    0.5,
    1e300,
    1e-300,
    2**40,
    2**70,
)
NESTED = {"moe": ("num_experts", "top_k", "norm_topk_prob", "router_sigmoid", "routed_scaling_factor"),
          "yarn": ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale_all_dim"),
          "mla": ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"),
          "mtp": ("num_layers", "share_lm_head", "share_embed"),
          "linear_core": ("kind",)}  # fmt: skip
REQUIRED = ("hidden_size", "num_layers", "num_attention_heads", "num_kv_heads", "head_dim", "vocab_size", "intermediate_size",
            "max_position_embeddings", "layer_types", "rms_norm_eps", "norm_style", "rope_theta")  # fmt: skip


def answered(plan: Blueprint | Container) -> bool:
    """Whether the file runs, with finite logits; if not, it is refused. Anything else is raised."""
    try:
        engine = load(plan) if isinstance(plan, Container) else run(plan)
        logits = engine.logits([3, 5, 9, 11])
    except Refusal:
        return False
    assert np.isfinite(logits).all()
    return True


@lru_cache(maxsize=1)
def content(family: str) -> bytes:
    """The bytes of a family's file."""
    return render(blueprint(family))


def saying(family: str, **arch: Any) -> Container:
    """The file as if its header said this, without being written again."""
    view = View(content(family))
    view.header["arch"] = {**blueprint(family).header["arch"], **arch}
    return Container(view)


@pytest.mark.parametrize("family", KINDS)
def test_a_header_full_of_anything_is_answered_or_refused(family: str) -> None:
    """Each field that the engine knows, with each nasty value. The control: as it stands, the file runs."""
    assert answered(saying(family))
    refused = 0
    for field in [field.name for field in fields(Arch)]:
        refused += sum(not answered(saying(family, **{field: value})) for value in NASTY)
    for group, names in NESTED.items():
        given = blueprint(family).header["arch"].get(group)
        for name in names if given is not None else ():
            refused += sum(not answered(saying(family, **{group: {**given, name: value}})) for value in NASTY)
    assert refused > len(NASTY)


@pytest.mark.parametrize("field", REQUIRED)
def test_a_field_that_is_missing_is_named(field: str) -> None:
    """Never guessed."""
    with pytest.raises(Unrunnable, match=rf"header\.arch\.{field}: found nothing"):
        run(edited(blueprint("qwen2"), **{field: None}))


@pytest.mark.parametrize(
    ("family", "field", "where"),
    [
        ("mistral", "sliding_window", "sliding_window"),
        ("qwen3_moe", "moe", "moe"),
        ("qwen3_5", "linear_num_key_heads", "linear_num_key_heads"),
        ("deepseek_v3", "mla", "mla"),
        ("deepseek_v3", "rope_theta", "rope_theta"),
    ],
)
def test_a_field_that_some_layers_need_is_named(family: str, field: str, where: str) -> None:
    """It is no fault of a file without such layers."""
    with pytest.raises(Unrunnable, match=rf"header\.arch\.{where}: found nothing"):
        run(edited(blueprint(family), **{field: None}))


def test_families_differ_in_what_a_router_sums_to_so_the_file_must_say_it() -> None:
    """MOE-006."""
    moe = {key: value for key, value in blueprint("qwen3_moe").header["arch"]["moe"].items() if key != "norm_topk_prob"}
    with pytest.raises(Unrunnable, match=r"moe\.norm_topk_prob"):
        run(edited(blueprint("qwen3_moe"), moe=moe))


def test_yarns_attention_factor_has_two_defaults_so_the_file_must_say_it() -> None:
    """1, or 0.1·ln(factor) + 1."""
    yarn = {**blueprint("llama_yarn").header["arch"]["yarn"], "attention_factor": None}
    with pytest.raises(Unrunnable, match=r"header\.arch\.yarn\.attention_factor: found nothing"):
        run(edited(blueprint("llama_yarn"), yarn=yarn))


@pytest.mark.parametrize("path", FOREIGN)
def test_a_field_that_makes_another_forward_is_refused(path: str) -> None:
    """Unless its value is the neutral one; a field that nobody knows is ignored."""
    group, _, name = path.rpartition(".")
    for value, runs in ((FOREIGN[path], True), (3, False)):
        given: Any = {"num_experts": 4, "top_k": 2, "kind": "gated_delta_net"} if group else None
        if group == "mla":
            given = blueprint("deepseek_v3").header["arch"]["mla"]
        arch = {group: {**given, name: value}} if group else {name: value}
        plan = blueprint("qwen2")
        plan = replace(plan, header={"arch": {**plan.header["arch"], **arch, "nobody_knows": 5}})
        assert answered(plan) == runs


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tensor_is_needed_or_optional_and_none_is_too_many(family: str) -> None:
    """Without it the file runs or names it; under another name it is never passed over."""
    tensors = arrays(blueprint(family))
    layer = max(name.split("layers.")[1].split(".")[0] for name in tensors if name.startswith("model.layers."))
    names = [name for name in tensors if f"layers.{layer}." in name or "layers" not in name]
    optional = 0
    for name in names:
        optional += answered(edited(blueprint(family), drop=(name,)))
        renamed = edited(blueprint(family), {f"{name}.x": tensors[name]}, drop=(name,))
        with pytest.raises(Unrunnable, match=r"no part of the forward|the forward needs it|none of|wanted"):
            run(renamed)
    assert optional < len(names) / 2


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tensor_has_one_shape(family: str) -> None:
    """One row less, one column more, another rank: refused at load."""
    tensors = arrays(blueprint(family))
    for name in tensors:
        if "layers.0." not in name and "layers" in name:
            continue
        value = tensors[name]
        for other in (value[:-1], np.concatenate([value, value[..., :1]], axis=-1), value[None]):
            with pytest.raises(Unrunnable, match=name.replace(".", r"\.").split("layers")[0]):
                run(edited(blueprint(family), {name: np.ascontiguousarray(other)}))


@pytest.mark.parametrize("role", ["gate", "up", "down"])
def test_widths_that_disagree_are_refused(role: str) -> None:
    """DEFRAG-005: gate, up and down of one width; a narrower layer as such is no fault."""
    at = "model.layers.0.mlp."
    tensors = arrays(blueprint("llama"))
    narrow = {name: tensors[name][:64] for name in (f"{at}gate_proj.weight", f"{at}up_proj.weight")}
    narrow[f"{at}down_proj.weight"] = tensors[f"{at}down_proj.weight"][:, :64]
    assert answered(edited(blueprint("llama"), narrow))
    del narrow[f"{at}{role}_proj.weight"]
    with pytest.raises(Unrunnable, match="DEFRAG-005"):
        run(edited(blueprint("llama"), narrow))


def test_a_dimension_of_nothing_is_refused() -> None:
    """A layer without neurons, and a convolution without taps."""
    at = "model.layers.0.mlp."
    none = {f"{at}{role}_proj.weight": np.zeros((0, 64), np.float32) for role in ("gate", "up")}
    none[f"{at}down_proj.weight"] = np.zeros((64, 0), np.float32)
    with pytest.raises(Unrunnable, match="no dimension of 0"):
        run(edited(blueprint("llama"), none))
    with pytest.raises(Unrunnable, match="no dimension of 0"):
        run(edited(blueprint("lfm2"), {"model.layers.0.short_conv.conv.weight": np.zeros((64, 1, 0), np.float32)}))


def test_a_router_has_a_row_for_each_expert() -> None:
    """MOEDEFRAG-004; a gap in the experts leaves some that nobody asks for."""
    name = "model.layers.0.mlp.gate.weight"
    with pytest.raises(Unrunnable, match="MOEDEFRAG-004"):
        run(edited(blueprint("qwen3_moe"), {name: arrays(blueprint("qwen3_moe"))[name][:4]}))
    gap = tuple(f"model.layers.0.mlp.experts.1.{role}_proj.weight" for role in ("gate", "up", "down"))
    with pytest.raises(Unrunnable, match="MOEDEFRAG-004"):
        run(edited(blueprint("qwen3_moe"), drop=gap))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["model.norm.weight", "model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight"]
)
def test_logits_that_are_not_finite_are_refused(name: str, value: float) -> None:
    """Whatever they come from."""
    weights = arrays(blueprint("llama"))[name].copy()
    weights[..., :] = value
    with pytest.raises(Unrunnable, match=r"logits\[0, \d+\]: found (nan|inf|-inf), wanted a finite number"):
        run(edited(blueprint("llama"), {name: weights})).logits([3, 5, 9])


@pytest.mark.parametrize("value", ["LinearAttention", "ShortConv", "zzz", ""])
def test_a_tag_that_disagrees_with_the_tensors_is_refused(value: str) -> None:
    """HDR-029: never other logits."""
    with pytest.raises(Unrunnable, match=r"layer_types\[1\]"):
        run(edited(blueprint("llama"), layer_types=["FullAttention", value]))


def test_a_head_is_there_or_tied() -> None:
    """HDR-022; of both, the head."""
    with pytest.raises(Unrunnable, match="HDR-022"):
        run(edited(blueprint("llama"), drop=("lm_head.weight",)))
    assert answered(edited(blueprint("llama"), drop=("lm_head.weight",), tie_word_embeddings=True))
    both = run(edited(blueprint("llama"), tie_word_embeddings=True))
    assert np.array_equal(both.logits([3, 5, 9]), model("llama").logits([3, 5, 9]))


def test_a_drafting_head_that_is_declared_and_not_there_is_off() -> None:
    """MTP-008."""
    assert run(edited(blueprint("qwen3"), mtp={"num_layers": 1})).mtp is None


def test_a_drafting_head_of_several_layers_is_off_and_no_reason_to_stop() -> None:
    """MTP-004, MTP-009: nobody says how they follow each other; the model itself runs."""
    first = {n: v for n, v in arrays(blueprint("qwen3_5_mtp")).items() if n.startswith("model.mtp.layers.0.")}
    second = {name.replace("layers.0.", "layers.1."): value for name, value in first.items()}
    engine = run(edited(blueprint("qwen3_5_mtp"), second, mtp={"num_layers": 2}))
    assert np.array_equal(engine.logits([3, 5, 9]), model("qwen3_5_mtp").logits([3, 5, 9]))
    with pytest.raises(Unanswerable, match="one of several layers"):
        list(engine.generate([3, 5, 9], 3, mtp=Drafts()))


@pytest.mark.parametrize("field", ["share_lm_head", "share_embed"])
def test_a_drafting_head_shares_what_has_no_name_of_its_own(field: str) -> None:
    """MTP-001."""
    with pytest.raises(Unrunnable, match=field):
        run(edited(blueprint("qwen3_5_mtp"), mtp={"num_layers": 1, field: False}))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], "found none, wanted at least one"),
        ([3, 128], r"tokens\[1\]: found 128, wanted from 0 to 127"),
        ([-1], r"tokens\[0\]: found -1"),
        ([2**70], r"tokens\[0\]"),
        ([3] * 257, "257 positions, wanted at most max_position_embeddings, 256"),
    ],
)
def test_tokens_that_are_none_of_the_models_are_refused(tokens: Sequence[int], words: str) -> None:
    """Before anything is computed, also when they come in pieces and to be generated from."""
    engine = model("llama")
    with pytest.raises(Unrunnable, match=words):
        engine.logits(tokens)
    with pytest.raises(Unrunnable, match=words):
        list(engine.generate(tokens, 3))
    if tokens:
        with pytest.raises(Unrunnable):
            engine.logits(tokens, [1] * len(tokens))


@pytest.mark.parametrize("split", [[], [3, 0], [4, -1], [2], [3, 3]])
def test_a_split_is_a_split_of_the_tokens(split: list[int]) -> None:
    """Positive pieces, all of them."""
    with pytest.raises(Unrunnable, match="split"):
        model("llama").logits([3, 5, 9], split)


def test_a_token_is_a_whole_number() -> None:
    """3.7 isn't 3."""
    with pytest.raises(TypeError):
        model("llama").logits([3.7])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, "header.arch: found nothing"),
        ({"arch": 5}, "header.arch: found int"),
        ({"arch": {}}, "header.arch.hidden_size: found nothing"),
    ],
)
def test_a_header_without_an_architecture_is_refused(header: dict[str, Any], words: str) -> None:
    """It may be a valid file all the same."""
    plan = replace(blueprint("llama"), header=header)
    assert len(cmfspec.open(render(plan)))
    with pytest.raises(Unrunnable, match=words):
        run(plan)


@pytest.mark.parametrize("value", [5, "x", ["x"], [1.5], [True], {}])
def test_stop_ids_are_whole_numbers(value: Any) -> None:
    """CHAT-005."""
    plan = blueprint("llama")
    with pytest.raises(Unrunnable, match="eos_token_ids"):
        run(replace(plan, header={**plan.header, "tokenizer_config": {"eos_token_ids": value}}))


def test_what_is_valid_and_no_model_is_refused() -> None:
    """No tensors, a pipeline, a skill without its base."""
    plan = blueprint("llama")
    with pytest.raises(Unrunnable, match="no tensors"):
        run(replace(plan, tensors=()))
    with pytest.raises(Unrunnable, match="PIPE-008"):
        run(edited(plan, {"te.norm.weight": np.zeros(3, np.float32)}))
    skill = replace(plan, header={**plan.header, "skills": [{"id": "a", "base_dir_hash": "0" * 16}]})
    with pytest.raises(Unrunnable, match="FEAT-015"):
        run(skill)
    with pytest.raises(Unrunnable, match="FEAT-015"):  # FEAT-016: the record alone is enough
        load(cmfspec.open(render(skill, [("features", 1)])))


def test_a_payload_that_lies_is_refused_when_it_is_read() -> None:
    """Not earlier: loading reads no weight."""
    plan = blueprint("llama")
    engine = load(cmfspec.open(render(replace(plan, tensors=entries(arrays(plan))), [("payload[0]@0", "0000c07f")])))
    with pytest.raises(Refusal):
        engine.logits(range(128))


@needs_interop
@pytest.mark.parametrize(
    ("name", "words"),
    [("rust/lumina-q4t", "PIPE-008"), ("rust/skill-standalone", "FEAT-015"), ("rust/qwen3_moe-f16", "header.arch.moe")],
)
def test_files_of_the_reference_tools_that_cannot_run_say_why(name: str, words: str) -> None:
    """A pipeline, a skill, a model whose converter forgot what its router needs."""
    with pytest.raises(Unrunnable, match=words):
        load(cmfspec.open(INTEROP / f"{name}.cmf"))
