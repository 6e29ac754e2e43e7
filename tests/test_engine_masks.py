"""Masks in the forward (§5): against a model from which the same was cut, and against the text's own words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.contract.compare import LOGITS, LOGITS_GDN, largest_difference
from cmfspec.engine import load
from cmfspec.errors import Unrunnable
from cmfspec.format.blueprint import masks_section
from tests.oracle import ORACLE, answers, arrays, blueprint, edited, entries, masked, model, run, stored
from tests.shared import INTEROP, needs_interop

KINDS = {"ffn": "ffn", "heads": "head", "gates": "gate"}
EXPERTS = sorted(path.name for path in (ORACLE / "masks").glob("*_experts.npz"))


def bar(family: str) -> float:
    """The tolerance of a family."""
    return LOGITS_GDN if family.startswith(("qwen3_5", "qwen3_next")) else LOGITS


def of_oracle(family: str) -> dict[str, dict[str, Any]]:
    """The oracle's masks, by the kind that each narrows, and all of them at once."""
    bits = stored(f"{family}.npz")
    rows = {"ffn": bits["ffn_mask"], "heads": bits["head_mask"], "gates": bits["layer_gate"]}
    return {**{kind: {kind: row} for kind, row in rows.items()}, "all": rows}


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5"])
def test_neurons_heads_and_layers_that_do_not_count_are_as_if_cut(family: str) -> None:
    """Each kind alone and all of them, and step by step the same."""
    engine = run(masked(blueprint(family), **of_oracle(family)))
    for row, ids in enumerate(answers(family)["token_ids"]):
        for task in (*KINDS, "all"):
            want = stored(f"{family}.npz")[f"{KINDS.get(task, task)}_logits"][row]
            assert largest_difference(engine.logits(ids, task=task), want) <= bar(family), task
            assert largest_difference(engine.logits(ids, [7] + [1] * 17, task=task), want) <= bar(family), task
            assert largest_difference(engine.logits(ids), want) > 10 * bar(family), task


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_that_do_not_count_are_as_if_cut(name: str) -> None:
    """MASK-013, MOE-015: they leave before the softmax, whatever norm_topk_prob says."""
    family, bits = name.removesuffix("_experts.npz"), stored(name)
    engine = run(masked(blueprint(family), task={"experts": bits["expert_mask"]}))
    for row, ids in enumerate(answers(family)["token_ids"]):
        assert largest_difference(engine.logits(ids, task="task"), bits["logits"][row]) <= bar(family)
        assert largest_difference(engine.logits(ids), bits["logits"][row]) > 10 * bar(family)


def test_top_k_shrinks_to_the_experts_that_are_left() -> None:
    """MOE-016: one expert of five, and two wanted."""
    family, bits = "qwen3_moe", np.ones((2, 5), bool)
    bits[0, 1:] = False
    tensors = arrays(blueprint(family))
    tensors["model.layers.0.mlp.gate.weight"] = tensors["model.layers.0.mlp.gate.weight"][:1]
    cut = {n: v for n, v in tensors.items() if not any(f"layers.0.mlp.experts.{e}." in n for e in range(1, 5))}
    ids = answers(family)["token_ids"][0]
    got = run(masked(blueprint(family), task={"experts": bits})).logits(ids, task="task")
    assert largest_difference(got, run(replace(blueprint(family), tensors=entries(cut))).logits(ids)) <= LOGITS


def test_masks_come_and_go_without_a_trace() -> None:
    """MASK-031, MASK-019: A, B, A; and a mask of all ones is the dense model."""
    engine = run(masked(blueprint("llama"), **of_oracle("llama"), ones={}))
    ids = answers("llama")["token_ids"][0]
    first = engine.logits(ids, task="ffn")
    dense = engine.logits(ids, task="dense")
    assert np.array_equal(engine.logits(ids, task="ffn"), first)
    for task in (None, "ones"):
        assert np.array_equal(engine.logits(ids, task=task), dense)


def test_bits_past_the_dimension_are_never_counted() -> None:
    """MASK-010: six heads in a byte; the two bits left over may be anything."""
    plan = masked(blueprint("qwen3"), **of_oracle("qwen3"))
    heads = stored("qwen3.npz")["head_mask"]
    ffn = np.packbits(np.ones((2, 96), bool), axis=1, bitorder="little").tobytes()
    tail = (np.packbits(heads, axis=1, bitorder="little") | 0xC0).tobytes()
    section = masks_section({"masks": [{"name": "heads"}]}, [ffn + tail + b"\xff"])
    ids = answers("qwen3")["token_ids"][0]
    assert np.array_equal(
        run(replace(plan, masks=section)).logits(ids, task="heads"), run(plan).logits(ids, task="heads")
    )


@pytest.mark.parametrize(
    ("family", "bits", "task", "words"),
    [
        ("llama", {}, "nope", "MASK-034"),
        ("qwen3_moe", {"experts": np.zeros((2, 5), bool)}, "task", "no expert left"),
    ],
)
def test_a_task_that_cannot_be_had_is_refused(family: str, bits: dict[str, Any], task: str, words: str) -> None:
    """Never the dense model in its place (MASK-034), never a value out of nothing."""
    plan = masked(blueprint(family), task=bits)
    with pytest.raises(Unrunnable, match=words):
        run(plan).logits([3, 5, 9], task=task)


def test_a_file_without_masks_knows_no_task() -> None:
    """And says so."""
    with pytest.raises(Unrunnable, match="no other: the file has no masks"):
        model("llama").logits([3, 5, 9], task="general")


@pytest.mark.parametrize(
    ("record", "blob", "words"),
    [
        ({"name": "x"}, bytes(26), "MASK-007"),  # 27 is right
        ({"name": "x", "has_expert_fields": True}, bytes(64), "MASK-012"),
        ({"name": "x", "has_expert_fields": "yes"}, bytes(64), "MASK-011"),
    ],
)
def test_a_blob_of_another_size_than_the_header_says_is_refused(
    record: dict[str, Any], blob: bytes, words: str
) -> None:
    """MASK-007, MASK-011, MASK-012."""
    plan = replace(blueprint("llama"), masks=masks_section({"masks": [record]}, [blob]))
    with pytest.raises(Unrunnable, match=words):
        run(plan).logits([3, 5, 9], task="x")


def test_a_mask_of_another_width_than_the_layer_is_refused() -> None:
    """A cut layer has fewer neurons than its mask has bits; a mask of all ones says nothing about it."""
    tensors, bits = arrays(blueprint("llama")), np.ones((2, 96), bool)
    bits[0, 3] = False
    cut = {
        name: value[:64]
        if "0.mlp.gate" in name or "0.mlp.up" in name
        else value[:, :64]
        if "0.mlp.down" in name
        else value
        for name, value in tensors.items()
    }
    engine = run(masked(edited(replace(blueprint("llama"), tensors=entries(cut))), narrow={"ffn": bits}, ones={}))
    assert np.array_equal(engine.logits([3, 5, 9], task="ones"), engine.logits([3, 5, 9]))
    with pytest.raises(Unrunnable, match="a row of 96 bits, wanted 64"):
        engine.logits([3, 5, 9], task="narrow")


@needs_interop
@pytest.mark.parametrize("family", ["qwen2_moe", "lfm2_moe"])
def test_a_mask_of_experts_is_the_file_that_was_cut_by_it(family: str) -> None:
    """MOEDEFRAG-008, on files that the reference tools wrote."""
    masked_file = load(cmfspec.open(INTEROP / "rust" / f"{family}-moemask.cmf"))
    cut = load(cmfspec.open(INTEROP / "rust" / f"{family}-moedefrag.cmf"))
    ids = answers(family)["token_ids"][0]
    got = masked_file.logits(ids, task="experts")
    assert largest_difference(got, cut.logits(ids)) <= LOGITS
    assert largest_difference(got, masked_file.logits(ids)) > 10 * LOGITS


@pytest.mark.parametrize(
    ("quality", "warned"),
    [(None, True), (1.0, True), ({}, True), ({"metric": "ppl", "value": 9.5}, False)],
    ids=["null", "a bare number", "nothing in it", "measured"],
)
def test_a_mask_that_nobody_measured_is_warned_of_once(
    quality: Any, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """MASK-023, on switching to it; the dense model is no mask."""
    plan = masked(blueprint("llama"), half={"ffn": np.arange(2 * 96).reshape(2, 96) % 2 == 0})
    meta = json.loads(plan.masks[8 : 8 + int.from_bytes(plan.masks[4:8], "little")])
    blob = plan.masks[meta["masks"][0]["blob_off"] :]
    again = masks_section({"default_task": "half", "masks": [{"name": "half", "quality": quality}]}, [blob])
    engine = run(replace(plan, masks=again))
    engine.logits([3, 5, 9], task="dense")
    assert not caplog.records
    for _ in range(2):
        engine.logits([3, 5, 9], task="half")
    assert len(caplog.records) == warned
    assert all("'half'" in record.getMessage() for record in caplog.records)
