"""Every family of the oracle, packed: names, values and arch, in our reader and in the others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.contract import compare
from cmfspec.tools.config import model_of
from cmfspec.tools.pack import QUANTS, pack
from cmfspec.tools.unpackable import Unpackable, json_file
from conformance.encoding import judge, judge_family
from runner.driver import Process
from tests.adapters import BUILDS, built
from tests.models import read
from tests.shared import SHARED

MODELS = SHARED / "oracle" / "models"
FAMILIES = sorted(path.name for path in MODELS.iterdir()) if MODELS.is_dir() else []
pytestmark = pytest.mark.skipif(not FAMILIES, reason=f"{MODELS} is not here")
SEVERAL = (
    "qwen2_moe",
    "qwen3_5",
    "gpt_oss",
    "deepseek_v3",
)  # experts, a hybrid, odd names, widths that are no multiple of 32

SAYINGS = (  # what the hub calls otherwise, by family
    (("deepseek_v3",), ("shared_experts.", "shared_expert."), ("gate.e_score_correction_bias", "expert_bias"),
     ("model.layers.2.shared_head.norm.", "model.mtp.norm."), ("model.layers.2.enorm.", "model.mtp.enorm."),
     ("model.layers.2.hnorm.", "model.mtp.hnorm."), ("model.layers.2.eh_proj.", "model.mtp.eh_proj."),
     ("model.layers.2.", "model.mtp.layers.0.")),
    (("laguna",), ("experts.e_score_correction_bias", "expert_bias")),
    (("gpt_oss",), ("mlp.router.", "mlp.gate.")),
    (("qwen3_5_mtp",), ("mtp.fc.", "model.mtp.eh_proj."), ("mtp.pre_fc_norm_embedding.", "model.mtp.enorm."),
     ("mtp.pre_fc_norm_hidden.", "model.mtp.hnorm."), ("mtp.norm.", "model.mtp.norm."), ("mtp.layers.", "model.mtp.layers.")),
    (("lfm2", "lfm2_moe"), ("feed_forward.", "mlp."), ("operator_norm.", "input_layernorm."), ("ffn_norm.", "post_attention_layernorm."),
     ("model.embedding_norm.", "model.norm."), (".conv.conv.", ".short_conv.conv."), (".conv.in_", ".short_conv.in_"),
     (".conv.out_", ".short_conv.out_"), ("self_attn.out_proj", "self_attn.o_proj"), ("q_layernorm", "q_norm"),
     ("k_layernorm", "k_norm"), ("w1.", "gate_proj."), ("w3.", "up_proj."), ("w2.", "down_proj.")),
)  # fmt: skip


def wanted(family: str) -> dict[str, Any]:
    """The canonical tensors of a family, made of the stored ones with nothing but reshaping."""
    arch = json.loads((MODELS / family / "arch.json").read_text())
    found: dict[str, Any] = {}
    for hub, array in read(MODELS / family / "model.safetensors").items():
        name = hub
        for families, *pairs in SAYINGS:
            for old, new in pairs if family in families else ():
                if not (old.startswith("mtp.") and not name.startswith("mtp.")):
                    name = name.replace(old, new)
        found |= _split(name, array, arch)
    return found


def _split(name: str, array: Any, arch: dict[str, Any]) -> dict[str, Any]:
    home, _, last = name.removesuffix(".weight").rpartition(".")
    if last == "qkv_proj":
        q, kv = (arch[key] * arch["head_dim"] for key in ("num_attention_heads", "num_kv_heads"))
        return dict(zip((f"{home}.{role}_proj.weight" for role in "qkv"), np.split(array, [q, q + kv]), strict=True))
    if last == "gate_up_proj" and array.ndim == 2 and "experts" not in name:
        return dict(zip((f"{home}.gate_proj.weight", f"{home}.up_proj.weight"), np.split(array, 2), strict=True))
    if last in ("in_proj_qkvz", "in_proj_ba"):
        heads = arch["linear_num_key_heads"]
        blocks = array.reshape(heads, -1, array.shape[1])
        if last == "in_proj_ba":
            b, a = np.split(blocks, 2, axis=1)
            return {
                f"{home}.in_proj_{role}.weight": part.reshape(-1, array.shape[1]) for role, part in (("a", a), ("b", b))
            }
        key = arch["linear_key_head_dim"]
        value = arch["linear_num_value_heads"] // heads * arch["linear_value_head_dim"]
        q, k, v, z = np.split(blocks, [key, 2 * key, 2 * key + value], axis=1)
        flat = [part.reshape(-1, array.shape[1]) for part in (q, k, v)]
        return {
            f"{home}.in_proj_qkv.weight": np.concatenate(flat),
            f"{home}.in_proj_z.weight": z.reshape(-1, array.shape[1]),
        }
    if home.endswith(".experts"):  # only gpt_oss stores banks here
        out = {}
        for expert, bank in enumerate(array):
            kind = "bias" if last.endswith("_bias") else "weight"
            turned = bank.T if kind == "weight" else bank
            roles = ("gate", "up") if last.startswith("gate_up") else ("down",)
            for place, role in enumerate(roles):
                out[f"{home}.{expert}.{role}_proj.{kind}"] = turned[place :: len(roles)]
        return out
    return {name: array}


def listed(family: str) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """(hub tensors, canonical ones that the hub doesn't have) with their shapes, as the oracle's own list has them."""
    text = (SHARED / "oracle" / "FAMILIES.md").read_text().split(f"\n## {family}\n")[1].split("\n## ")[0]
    blocks = [*text.split("```")[1::2], ""]
    return _expanded(blocks[0]), _expanded(blocks[1])


def _expanded(block: str) -> dict[str, list[int]]:
    found = {}
    for line in filter(None, block.splitlines()):
        name, shape, layers, experts = re.fullmatch(
            r"(\S+) (\[.*?\])(?: i=(\[.*?\]))?(?: e=0\.\.(\d+))?", line
        ).groups()
        for i in json.loads(layers or "[0]"):
            for e in range(int(experts or 0) + 1):
                found[name.replace("{i}", str(i)).replace("{e}", str(e))] = json.loads(shape)
    return found


def packed(family: str, quant: str, folder: Path) -> Path:
    """The family's model in that encoding."""
    out = folder / f"{family}-{quant}.cmf"
    pack(MODELS / family, str(out), quant)
    return out


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_in_f32_has_every_weight_and_the_arch_that_it_should(family: str, tmp_path: Path) -> None:
    """Equal to the bit in matrices; vectors and small tensors to the half that §3.2 has for them."""
    opened = cmfspec.open(packed(family, "f32", tmp_path))
    assert list(cmfspec.verify(opened)) == []
    want = wanted(family)
    assert {tensor.name for tensor in opened} == set(want)
    for tensor in opened:
        array = want[tensor.name]
        small = array.ndim < 2 or array.size < 32
        assert tensor.dtype_name == ("f16" if small else "f32"), tensor.name
        assert tensor.shape == array.shape
        expected = array.astype(np.float16).astype(np.float32) if small else array
        assert np.array_equal(opened.values(tensor.index), expected), tensor.name
    arch = json.loads((MODELS / family / "arch.json").read_text())
    assert opened.header["arch"].pop("rope_freq_factors", []) == pytest.approx(
        arch.pop("rope_freq_factors", []), rel=1e-12
    )
    assert opened.header["arch"] == arch
    assert {"format", "version", "arch", "quant_type", "provenance"} <= set(opened.header)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_and_shapes_are_those_that_the_oracle_lists(family: str, tmp_path: Path) -> None:
    """A list that was written without us."""
    hub, differing = listed(family)
    shapes = {tensor.name: list(tensor.shape) for tensor in cmfspec.open(packed(family, "f16", tmp_path))}
    assert set(differing) <= set(shapes)
    assert shapes == {name: (hub | differing)[name] for name in shapes}
    assert len(shapes) >= len(hub)


def test_the_experts_of_a_layer_stand_by_role(tmp_path: Path) -> None:
    """§2.2: all gates, all ups, all downs, each in rising order, and the blob in that order."""
    opened = cmfspec.open(packed("qwen3_moe", "q8_row", tmp_path))
    experts = [tensor for tensor in opened if ".layers.1.mlp.experts." in tensor.name]
    assert [tensor.name.split(".experts.")[1] for tensor in experts] == [
        f"{expert}.{role}_proj.weight" for role in ("gate", "up", "down") for expert in range(5)
    ]
    assert [tensor.off for tensor in opened] == sorted(tensor.off for tensor in opened)


NASTY = (None, -1, 0, 2**31, 2**70, 0.5, "x", "", [], [0], [None], {}, {"rope_type": "yarn"}, True, 1e308)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_with_any_value_anywhere_is_carried_or_refused(family: str, tmp_path: Path) -> None:
    """Nothing but the refusal leaves."""
    config = json.loads((MODELS / family / "config.json").read_text())
    places: list[tuple[dict[str, Any], str]] = [(config, key) for key in config]
    nested = [node for node in config.values() if isinstance(node, dict)]
    nested += [inner for node in nested for inner in node.values() if isinstance(inner, dict)]
    places += [(node, key) for node in nested for key in node]
    refusals = 0
    for node, key in places:
        before = node[key]
        for value in NASTY:
            node[key] = value
            (tmp_path / "config.json").write_text(json.dumps(config))
            try:
                found = model_of(json_file(tmp_path / "config.json"))
                json.dumps(found.arch, allow_nan=False)
            except Unpackable:
                refusals += 1
        node[key] = before
    assert refusals > len(places)


@pytest.mark.parametrize("family", SEVERAL)
@pytest.mark.parametrize("quant", sorted({*QUANTS} - {"f32", "bf16"}))
def test_every_payload_keeps_the_laws_of_its_encoding(family: str, quant: str, tmp_path: Path) -> None:
    """Those that any encoder is held to; experts with bits of their own share a budget."""
    opened, want = cmfspec.open(packed(family, quant, tmp_path)), wanted(family)
    shared: dict[str, list[tuple[Any, bytes]]] = {}
    judged = 0
    for tensor in opened:
        weights, payload = np.ascontiguousarray(want[tensor.name]), bytes(opened.raw(tensor.index))
        if tensor.dtype_name.startswith("vbit") and ".experts." in tensor.name:
            shared.setdefault(re.sub(r"experts\.\d+", "experts", tensor.name), []).append((weights, payload))
        else:
            judge(tensor.dtype_name, weights, payload)
            judged += 1
    for members in shared.values():
        judge_family(*zip(*members, strict=True), name=QUANTS[quant])
    assert judged > 10
    assert len(shared) > 2 or not quant.startswith("vbit") or family == "qwen3_5"


@pytest.fixture(scope="module", params=BUILDS)
def reader(request: pytest.FixtureRequest) -> Iterator[Process]:
    """Another reader over the pipe."""
    with closing(Process([str(built(request.param))])) as link:
        yield link


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_another_reader_opens_verifies_and_decodes_the_same(
    family: str, quant: str, reader: Process, tmp_path: Path
) -> None:
    """Every tensor of the encodings that it declares; and the encoding that was asked for is in the file."""
    content = packed(family, quant, tmp_path).read_bytes()
    path = reader.place(content)
    assert reader.ask("open", path).status == "ok"
    assert reader.ask("verify", path).value.sound is True
    ours = cmfspec.open(content)
    assert QUANTS[quant] in {tensor.dtype_name for tensor in ours}
    decoded = 0
    for tensor in ours:
        if tensor.dtype not in reader.hello.dtypes:
            continue
        out = reader.new_out()
        assert reader.ask("tensor", path, index=tensor.index, form="f32", out=out).status == "ok", tensor.name
        values = np.frombuffer(Path(out).read_bytes(), "<f4")
        tolerance = compare.Q4TP_RELATIVE if tensor.dtype_name == "q4tp" else 0.0
        assert compare.first_difference(values, ours.values(tensor.index).reshape(-1), tolerance) is None, tensor.name
        decoded += 1
    assert decoded
    reader.settle()
