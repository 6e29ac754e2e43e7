"""`cmfspec pack`: from a folder to a file, and what can be wrong with the folder."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cmfspec
from cmfspec.codecs import ENCODERS
from cmfspec.layout import DATA_ALIGN, QUANT_2F, TENSOR_ALIGN
from cmfspec.tools.names import CANONICAL
from cmfspec.tools.pack import LABELS, QUANTS
from runner.cli import cli
from runner.verbs import files
from tests import models
from tests.models import CONFIG, TEMPLATE

TIED = {**CONFIG, "tie_word_embeddings": True}
Q = "model.layers.0.self_attn.q_proj.weight"


def run(*words: str, expect: int = 0) -> Result:
    """`cmfspec pack` with these words."""
    result = CliRunner().invoke(cli, ["pack", *words])
    assert result.exit_code == expect, (result.exit_code, result.output, result.exception)
    return result


def packed(source: Path, quant: str = "f16", *words: str, expect: int = 0) -> Any:
    """The file that comes of it, opened; or what is said, where it is refused, and then there is none."""
    out = source.parent / "out" / "m.cmf"
    out.parent.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    said = run(str(source), "-o", str(out), "--quant", quant, *words, expect=expect)
    if expect:
        assert os.listdir(out.parent) == []
        return said.stderr
    return cmfspec.open(out)


def test_the_file_has_what_the_text_asks_of_a_writer(tmp_path: Path) -> None:
    """Sections in their order, alignment, zeros between, hashes, feature bits; and a sound file."""
    source = models.with_tokenizer(models.folder(tmp_path / "llama", weights=models.llama()))
    opened = packed(source, "q8_2f")
    content, envelope = (tmp_path / "out" / "m.cmf").read_bytes(), opened.view.envelope
    assert list(cmfspec.verify(opened)) == []
    assert (envelope["header_off"], envelope["flags"]) == (128, 0)
    starts = [opened.view.span(name)[0] for name in ("header", "dir", "data", "vocab")]
    assert starts == sorted(starts)
    assert (envelope["masks_off"], envelope["index_off"]) == (0, 0)
    assert envelope["data_off"] % DATA_ALIGN == 0
    assert envelope["header_hash"] == cmfspec.hash64(bytes(opened.view.part("header")))
    assert envelope["dir_hash"] == cmfspec.hash64(bytes(opened.view.part("dir")))
    assert envelope["required_features"] == 1 | 1 << QUANT_2F
    at = 0
    for tensor in opened:
        assert tensor.off % TENSOR_ALIGN == 0
        between = content[envelope["data_off"] + at : envelope["data_off"] + tensor.off]
        assert between == bytes(len(between))
        assert len(between) < TENSOR_ALIGN
        at = tensor.off + tensor.nbytes
    assert envelope["vocab_off"] == envelope["data_off"] + at
    assert len(content) == envelope["vocab_off"] + envelope["vocab_len"]
    assert opened.header["section_hashes"] == {
        "vocab": f"{cmfspec.hash64((source / 'tokenizer.json').read_bytes()):016x}"
    }


def test_the_tokenizer_goes_in_byte_for_byte_and_the_chat_with_it(tmp_path: Path) -> None:
    """§6, §6.1: the ids of generation_config first, then the tokenizer's own; the .jinja before the older place."""
    source = models.with_tokenizer(models.folder(tmp_path / "m"))
    opened = packed(source)
    assert bytes(opened.view.part("vocab")) == (source / "tokenizer.json").read_bytes()
    last = CONFIG["vocab_size"] - 1
    block = {"chat_template": TEMPLATE, "eos_token_ids": [5, 6, last], "bos_token_id": 1, "pad_token_id": None}
    assert opened.header["tokenizer_config"] == block
    (source / "chat_template.jinja").write_text("{{ other }}\n")
    (source / "generation_config.json").unlink()
    assert packed(source).header["tokenizer_config"] == {
        **block,
        "chat_template": "{{ other }}\n",
        "eos_token_ids": [2, last],
    }
    listed = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    (source / "chat_template.jinja").unlink()
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    assert packed(source).header["tokenizer_config"]["chat_template"] == "yes"


def test_without_a_tokenizer_there_is_no_vocab_and_that_is_said(tmp_path: Path) -> None:
    """But one in another form isn't passed over."""
    source = models.folder(
        tmp_path / "m", {key: value for key, value in CONFIG.items() if not key.endswith("token_id")}
    )
    opened = packed(source)
    assert opened.sections == []
    assert "section_hashes" not in opened.header
    assert "tokenizer_config" not in opened.header
    assert "no tokenizer.json in the source" in run(str(source), "-o", str(tmp_path / "m.cmf"), "--quant", "f16").stderr
    (source / "tokenizer.model").write_bytes(b"x")
    assert "tokenizer: found tokenizer.model, wanted tokenizer.json" in packed(source, expect=1)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", b'{"model": {"vocab"', "tokenizer.json: line 1: found"),
        ("tokenizer.json", b"[]", "found a JSON list"),
        ("tokenizer.json", b"\xff", "tokenizer.json: line"),
        ("tokenizer.json", b"[" * 100_000, "tokenizer.json: line"),
        ("tokenizer_config.json", b'{"chat_template": 5}', "chat_template: found 5"),
        (
            "tokenizer_config.json",
            b'{"chat_template": [{"name": "tool_use", "template": "x"}]}',
            "wanted a template, or one named default",
        ),
        ("tokenizer_config.json", b'{"eos_token": 5}', "eos_token: found 5"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json: line 1"),
        (
            "generation_config.json",
            b'{"eos_token_id": 96}',
            "eos_token_id: found 96, wanted an id below vocab_size, 96",
        ),
        ("generation_config.json", b'{"eos_token_id": [1, "2"]}', "eos_token_id: found '2'"),
        ("generation_config.json", b'{"pad_token_id": -1}', "pad_token_id: found -1"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja: byte 0: found no UTF-8"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_a_tokenizer_that_is_damaged_is_refused(file: str, content: bytes, said: str, tmp_path: Path) -> None:
    """With its file and place."""
    source = models.with_tokenizer(models.folder(tmp_path / "m"))
    (source / file).write_bytes(content)
    assert said in packed(source, expect=1)


@pytest.mark.parametrize("quant", QUANTS)
def test_every_encoding_that_is_offered_is_written(quant: str, tmp_path: Path) -> None:
    """Under its own name; the head and the embedding too; vectors as halves; a label that readers know."""
    opened = packed(models.folder(tmp_path / "m"), quant)
    assert {t.dtype_name for t in opened} == {QUANTS[quant], "f16"}
    assert {t.dtype_name for t in opened if len(t.shape) < 2} == {"f16"}
    assert opened[opened.index_of("lm_head.weight")].dtype_name == QUANTS[quant]
    assert list(cmfspec.verify(opened)) == []
    assert opened.header["quant_type"] in ("Q8_ROW", "Q4_BLOCK", "Q8_2F", "VBIT", "BF16", "F16", "F32")


def test_the_command_offers_what_can_be_encoded() -> None:
    """The list at the command line, that of the tool, and the encoders."""
    assert tuple(QUANTS) == files.QUANTS
    assert set(QUANTS.values()) == set(ENCODERS) == set(LABELS)


def test_rows_without_whole_groups_get_the_second_best(tmp_path: Path) -> None:
    """q8_2f for what wants groups of 32 in a row; q4_block has none to want."""
    config = {**TIED, "intermediate_size": 72}
    down = "model.layers.0.mlp.down_proj.weight"
    for quant, kind in (
        ("q4tp", "q8_2f"),
        ("vbit", "q8_2f"),
        ("q1", "q8_2f"),
        ("q4_block", "q4_block"),
        ("q8_row", "q8_row"),
    ):
        opened = packed(models.folder(tmp_path / "m", config), quant)
        assert opened[opened.index_of(down)].dtype_name == kind


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_weights_of_any_width_are_read(dtype: str, tmp_path: Path) -> None:
    """What f32 holds of them is what they were."""
    source = models.folder(tmp_path / "m", dtype=dtype)
    opened, want = packed(source, "f32"), models.read(source / "model.safetensors")
    assert np.array_equal(opened.values(opened.index_of(Q)), want[Q])


def test_the_same_folder_gives_the_same_bytes_and_stays_as_it_is(tmp_path: Path) -> None:
    """No clock and no chance; the source is read and no more."""
    source = models.with_tokenizer(models.folder(tmp_path / "m"))

    def state() -> dict[str, Any]:
        return {p.name: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest()) for p in source.iterdir()}

    before = state()
    first = bytes(packed(source, "q4tp").view.buffer)
    assert bytes(packed(source, "q4tp").view.buffer) == first
    assert state() == before
    said = run(str(source), "-o", str(source / "config.json"), "--quant", "f16", expect=2)
    assert "a file of the source" in said.stderr
    run(str(source), "-o", str(source / "m.cmf"), "--quant", "f16")
    assert {name: value for name, value in state().items() if name != "m.cmf"} == before


def changed(folder: Path, change: Any, config: Any = CONFIG) -> Path:
    """A llama whose weights went through `change`."""
    weights = models.llama(config)
    change(weights)
    return models.folder(folder / "m", config, weights)


def rename(old: str, new: str) -> Any:
    """A change that calls a tensor otherwise."""
    return lambda weights: weights.__setitem__(new, weights.pop(old))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop(Q), "tensors: found no model.layers.0.self_attn.q_proj.weight"),
        (lambda w: w.pop("lm_head.weight"), "found no lm_head.weight"),
        (lambda w: w.pop("model.norm.weight"), "found no model.norm.weight"),
        (lambda w: w.update({"model.layers.0.self_attn.rope_bias": w[Q]}), "tensor 'model.layers.0.self_attn.rope_bias': found a name that no engine knows"),
        (lambda w: w.update({"model.layers.2.mlp.up_proj.weight": w[Q]}), "found layer 2 of 2"),
        (lambda w: w.update({"model.layers.2.self_attn.qkv_proj.weight": np.ones((128, 64), "f4")}), "found layer 2 of 2"),
        (lambda w: w.update({"model.layers.00.self_attn.q_proj.weight": w[Q]}), "found a name that no engine knows"),
        (lambda w: w.update({f"model.layers.{'9' * 9999}.self_attn.q_proj.weight": w[Q]}), "found a name that no engine knows"),
        (lambda w: w.update({"model.layers.\u0660.self_attn.q_proj.weight": w[Q]}), "found a name that no engine knows"),
        (lambda w: w.update({"\x1b[2J": w[Q]}), "tensor '\\x1b[2J'"),
        (lambda w: w.update({Q: w[Q][:, :32].copy(), "lm_head.weight": w["lm_head.weight"][:95].copy()}), "tensor 'lm_head.weight': found [95, 64], wanted the shape [96, 64]"),
        (lambda w: w.update({"model.norm.weight": np.ones(63, "f4")}), "found [63], wanted the shape [64]"),
        (lambda w: w.update({"model.layers.0.mlp.gate.weight": np.ones((4, 64), "f4")}), "found a mixture of experts, wanted what the configuration speaks of"),
        (lambda w: w.update({"model.layers.0.linear_attn.A_log": np.ones(4, "f4")}), "linear_attn in a layer of FullAttention"),
        (lambda w: w.update({"language_model." + Q: w[Q]}), "a second " + Q),
        (lambda w: w.update({"vision_tower.x.weight": w[Q]}), "--text-only leaves other modalities out"),
        (lambda w: w[Q].__setitem__((3, 5), np.nan), Q),
        (lambda w: w[Q].__setitem__((3, 5), 1e6), "found 1000000.0"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_tensor_that_is_missing_strange_or_wrong_is_refused_by_name(change: Any, said: str, tmp_path: Path) -> None:
    """And nothing is written."""
    assert said in packed(changed(tmp_path, change), expect=1)


def test_what_is_no_weight_is_refused(tmp_path: Path) -> None:
    """Eight bits, whose scales lie elsewhere, would lose them."""
    source = models.folder(tmp_path / "m")
    stored = {name: ("F32", array) for name, array in models.llama().items()}
    stored[Q] = ("I64", np.ones((64, 64), "i8"))
    (source / "model.safetensors").write_bytes(models.safetensors(stored))
    assert "q_proj.weight': found I64, wanted one of F32, F16, BF16" in packed(source, expect=1)


def test_a_tied_head_has_to_be_the_embedding(tmp_path: Path) -> None:
    """Then it is left out; otherwise engines would disagree about which one counts."""
    weights = models.llama(TIED)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    opened = packed(models.folder(tmp_path / "m", TIED, weights))
    assert "lm_head.weight" not in [tensor.name for tensor in opened]
    weights["lm_head.weight"][90, 3] += 1
    said = packed(models.folder(tmp_path / "m", TIED, weights), expect=1)
    assert "tensor 'lm_head.weight': found other values, wanted those of 'model.embed_tokens.weight'" in said
    weights["lm_head.weight"] = weights["lm_head.weight"][:90].copy()
    assert "found [90, 64]" in packed(models.folder(tmp_path / "m", TIED, weights), expect=1)


def test_buffers_are_left_out_and_other_modalities_where_one_says_so(tmp_path: Path) -> None:
    """And what was left out stands in the provenance."""
    weights = models.llama()
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, "f4")
    assert len(packed(models.folder(tmp_path / "m", weights=weights))) == len(weights) - 1
    renamed = {name.replace("model.", "model.language_model.", 1): array for name, array in weights.items()}
    renamed |= {f"model.visual.blocks.{i}.weight": np.ones((2, 2), "f4") for i in range(3)}
    composite = {"model_type": "mistral3", "text_config": {**CONFIG, "model_type": "mistral"}, "vision_config": {}}
    source = models.folder(tmp_path / "m", composite, renamed)
    assert "--text-only" in packed(source, expect=1)
    opened = packed(source, "f16", "--text-only")
    assert opened.header["provenance"]["left_out"] == {"model.visual.": 3}
    assert {tensor.name for tensor in opened} == set(models.llama())
    said = run(str(source), "-o", str(tmp_path / "m.cmf"), "--quant", "f16", "--text-only").stderr
    assert "left out: 3 tensors of model.visual.*" in said


def test_shards_hold_the_whole_model_between_them(tmp_path: Path) -> None:
    """§10: greedy in order by their size as float32; vocab and chat in the first alone; each a sound file by itself."""
    source, folder = models.with_tokenizer(models.folder(tmp_path / "m")), tmp_path / "shards"
    folder.mkdir()
    whole = packed(source, "q4tp")
    said = run(str(source), "-o", str(folder / "m.cmf"), "--quant", "q4tp", "--shard-max-gb", "0.00006")
    names = sorted(os.listdir(folder))
    count = len(names)
    assert count > 3
    assert names == [f"m-{no:05}-of-{count:05}.cmf" for no in range(1, count + 1)]
    assert all(name in said.stdout for name in names)
    shards = [cmfspec.open(folder / name) for name in names]
    assert [tensor.name for shard in shards for tensor in shard] == [tensor.name for tensor in whole]
    for no, shard in enumerate(shards, 1):
        assert list(cmfspec.verify(shard)) == []
        assert shard.header["shard"] == {"no": no, "count": count}
        assert shard.header["arch"] == whole.header["arch"]
        sizes = [4 * int(np.prod(tensor.shape)) for tensor in shard]
        assert sum(sizes) <= 60_000 or len(sizes) == 1
        if no < count:
            assert sum(sizes) + 4 * int(np.prod(shards[no][0].shape)) > 60_000
        if no == 1:
            assert shard.header["tokenizer_config"] == whole.header["tokenizer_config"]
            assert shard.sections == ["vocab"]
        else:
            assert (shard.header["tokenizer_config"], shard.header["skills"], shard.sections) == (None, [], [])
        for tensor in shard:
            assert bytes(shard.raw(tensor.index)) == bytes(whole.raw(whole.index_of(tensor.name)))


def test_one_shard_is_still_a_shard(tmp_path: Path) -> None:
    """Who asks for shards gets names of shards."""
    source = models.folder(tmp_path / "m")
    run(str(source), "-o", str(tmp_path / "one.cmf"), "--quant", "q1", "--shard-max-gb", "1")
    assert cmfspec.open(tmp_path / "one-00001-of-00001.cmf").header["shard"] == {"no": 1, "count": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--quant", "q3"], "'q3' is not one of"),
        ([], "Missing option '--quant'"),
        (["--quant", "f16", "--shard-max-gb", "0"], "0.0 is not in the range"),
    ],
)
def test_a_wrong_word_is_a_usage_error(words: list[str], said: str, tmp_path: Path) -> None:
    """2, and nothing is written."""
    source = models.folder(tmp_path / "m")
    assert said in run(str(source), "-o", str(tmp_path / "m.cmf"), *words, expect=2).stderr
    assert (
        "no directory"
        in run(str(tmp_path / "nowhere"), "-o", str(tmp_path / "m.cmf"), "--quant", "f16", expect=2).stderr
    )
    assert os.listdir(tmp_path) == ["m"]


def test_a_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    """Each by its name."""
    (tmp_path / "empty").mkdir()
    assert "config.json: path: found No such file" in packed(tmp_path / "empty", expect=1)
    source = models.folder(tmp_path / "m")
    content = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(content[:-1])
    assert "is the file truncated?" in packed(source, expect=1)
    (source / "model.safetensors").unlink()
    assert "neither model.safetensors nor" in packed(source, expect=1)


def test_a_full_disk_is_a_broken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3, with the system's reason, and the source is not blamed."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cmfspec.tools.output.os.fsync", full)
    assert "No space left on device; nothing was written" in packed(models.folder(tmp_path / "m"), expect=3)


def test_words_of_a_stranger_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """Neither in a refusal nor on the bar."""
    source = models.folder(tmp_path / "m", {**CONFIG, "\x1b[2Jkey": "\x1b[2Jvalue"})
    assert "\x1b" not in packed(source, expect=1)


def test_a_terminal_sees_how_far_it_is(tmp_path: Path) -> None:
    """On stderr; stdout has the result alone."""
    source, out = models.folder(tmp_path / "m"), tmp_path / "m.cmf"
    ours, theirs = pty.openpty()
    script = "from runner.cli import main; import sys; sys.argv = ['cmfspec', *sys.argv[1:]]; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "pack", str(source), "-o", str(out), "--quant", "q8_row"],
        stderr=theirs, stdout=subprocess.PIPE, text=True, check=True, timeout=120, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "100%" in shown
    assert str(out) in done.stdout
    assert "\x1b" not in done.stdout


def test_canonical_names_are_matched_whole() -> None:
    """No prefix and no suffix slips through."""
    assert CANONICAL.fullmatch(Q)
    for name in (
        f"x{Q}",
        f"{Q}x",
        f"{Q}\n",
        "model.layers.x.self_attn.q_proj.weight",
        "model.layers.0.mlp.experts..up_proj.weight",
    ):
        assert not CANONICAL.fullmatch(name)
