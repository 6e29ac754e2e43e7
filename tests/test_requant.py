"""`cmfspec requant`: other encodings, everything else as it was."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cmfspec
from cmfspec.codecs import encode, plan
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.layout import DTYPE_IDS
from cmfspec.tools.pack import QUANTS
from golden.files import File
from golden.recipes import HEADER, entry
from runner.cli import cli


def run(*words: str, expect: int = 0) -> Result:
    """`cmfspec requant` with these words."""
    result = CliRunner().invoke(cli, ["requant", *words])
    assert result.exit_code == expect, (result.exit_code, result.output, result.exception)
    return result


def rewritten(folder: Path, content: bytes, quant: str, expect: int = 0) -> Any:
    """The file that comes of those bytes, opened; or what is said, and then there is none."""
    source, out = folder / "source.cmf", folder / "out.cmf"
    source.write_bytes(content)
    out.unlink(missing_ok=True)
    said = run(str(source), "-o", str(out), "--quant", quant, expect=expect)
    assert source.read_bytes() == content
    if expect:
        assert os.listdir(folder) == ["source.cmf"]
        return said.stderr
    return cmfspec.open(out)


@pytest.mark.parametrize("quant", QUANTS)
def test_everything_but_the_encodings_stays(quant: str, tmp_path: Path) -> None:
    """Names, order, shapes, masks, vocab, index, unknown fields of the header; and the file is sound."""
    file = File("full").edited("header.someone.else", {"kept": [1, 2.5, "é"]})
    before, after = cmfspec.open(file.content()), rewritten(tmp_path, file.content(), quant)
    assert list(cmfspec.verify(after)) == []
    assert [(t.name, t.shape) for t in after] == [(t.name, t.shape) for t in before]
    assert [t.dtype_name for t in after] == [plan(t.name, t.shape, QUANTS[quant]) for t in before]
    for section in ("masks", "vocab", "index"):
        assert bytes(after.view.part(section)) == bytes(before.view.part(section))
    new = {"quant_type", "provenance"}
    assert {k: v for k, v in after.header.items() if k not in new} == {
        k: v for k, v in before.header.items() if k not in new
    }
    assert after.header["provenance"]["requant"]["quant"] == QUANTS[quant]
    for key, value in (before.header.get("provenance") or {}).items():
        assert after.header["provenance"][key] == value


@pytest.mark.parametrize("quant", QUANTS)
def test_the_values_are_those_that_were_there_as_the_encoding_holds_them(quant: str, tmp_path: Path) -> None:
    """Decode, encode; a tensor that has the encoding already is not touched."""
    content = File("encodings").content()
    before, after = cmfspec.open(content), rewritten(tmp_path, content, quant)
    for old, new in zip(before, after, strict=True):
        if old.dtype_name == new.dtype_name:
            assert bytes(after.raw(new.index)) == bytes(before.raw(old.index))
        else:
            wanted = encode(new.dtype_name, before.values(old.index), tensor=old.name)
            assert bytes(after.raw(new.index)) == wanted, old.name
    assert {t.dtype_name for t in after} >= {"u8", QUANTS[quant]}


def test_skills_and_their_bit_stay(tmp_path: Path) -> None:
    """A skill's tensors are encoded like those that they replace; a standalone skill stays one."""
    weights = entry("skill.a.model.layers.0.mlp.up_proj.weight", "f32", (4, 64))
    router = entry("skill.a.model.layers.0.mlp.gate.weight", "f32", (4, 64))
    skills = [{"id": "a", "base_dir_hash": "00" * 8}]
    after = rewritten(tmp_path, render(Blueprint({**HEADER, "skills": skills}, (weights, router))), "q4tp")
    assert [t.dtype_name for t in after] == ["q4tp", "f16"]
    assert after.header["skills"] == skills
    assert after.view.envelope["required_features"] >> 6 & 1


def test_experts_share_a_budget_of_bits(tmp_path: Path) -> None:
    """§3.2: a quiet one gets fewer than a loud one."""
    dice = np.random.default_rng(5)
    names = [f"model.layers.0.mlp.experts.{expert}.up_proj.weight" for expert in range(4)]
    arrays = [(dice.normal(0, 2.0 ** (2 * expert), (16, 64))).astype("f4") for expert in range(4)]
    tensors = tuple(Entry(n, 0, a.shape, a.tobytes()) for n, a in zip(names, arrays, strict=True))
    after = rewritten(tmp_path, render(Blueprint(HEADER, tensors)), "vbit")
    bits = [np.frombuffer(after.raw(i)[:16], np.uint8).mean() for i in range(4)]
    assert bits == sorted(bits)
    assert bits[0] < bits[-1]
    assert np.mean(bits) == pytest.approx(4.25, abs=0.3)


def test_a_damaged_or_invalid_file_gets_no_new_hashes(tmp_path: Path) -> None:
    """1, with what is wrong with it; nothing is written."""
    damaged = File("full").edited("flip", ["data", 3, 1])
    assert "hash" in rewritten(tmp_path, damaged.content(), "f16", expect=1)
    vocab = File("full").edited("flip", ["vocab", 1, 1])
    assert "vocab" in rewritten(tmp_path, vocab.content(), "f16", expect=1)
    old = File("full").edited("envelope.version", 1)
    assert "UnsupportedVersion" in rewritten(tmp_path, old.content(), "f16", expect=1)
    lying = entry("w", "vbit", (4, 64))
    lying = replace(lying, payload=b"\x07" + lying.payload[1:])
    assert "Parse: tensor[0].bits[0]" in rewritten(tmp_path, render(Blueprint(HEADER, (lying,))), "f16", expect=1)
    reserved = render(Blueprint(HEADER, (Entry("w", DTYPE_IDS["mix8_4"], (4,), b"1234"),)))
    assert "mix8_4, reserved" in rewritten(tmp_path, reserved, "f16", expect=1)
    loud = Entry("w\x1b[2J", 0, (2, 64), np.full((2, 64), 1e30, "f4").tobytes())
    said = rewritten(tmp_path, render(Blueprint(HEADER, (loud,))), "q8_row", expect=1)
    assert "w\\x1b[2J" in said
    huge = File("full").edited("header.raw", b'{"x": 1e999}'.hex())
    assert "a number past the largest double" in rewritten(tmp_path, huge.content(), "f16", expect=1)


def test_a_file_is_not_written_over_itself(tmp_path: Path) -> None:
    """2; and a missing one is 1."""
    source = tmp_path / "a.cmf"
    source.write_bytes(File("full").content())
    assert "a file of the source" in run(str(source), "-o", str(source), "--quant", "f16", expect=2).stderr
    assert (
        "No such file" in run(str(tmp_path / "b.cmf"), "-o", str(tmp_path / "c.cmf"), "--quant", "f16", expect=1).stderr
    )
    assert source.read_bytes() == File("full").content()
