"""Real files that the format's own tools wrote: every one opens, verifies and decodes to its stored values."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.contract.compare import Q4TP_RELATIVE
from cmfspec.contract.link import Link
from cmfspec.contract.protocol import decode_line
from cmfspec.errors import InvalidMagic, Parse
from cmfspec.layout import DTYPE_NAMES
from runner.driver import Process
from tests.shared import INTEROP, needs_interop
from tests.test_adapters import C_READER

pytestmark = needs_interop
EXPECTED: dict[str, dict[str, Any]] = json.loads((INTEROP / "expected.json").read_text()) if INTEROP.is_dir() else {}
REFUSED = {"rust/qwen2-q2tp.cmf": Parse, "broken/converter-died.cmf": InvalidMagic}
GOOD = sorted(set(EXPECTED) - set(REFUSED))


def right(name: str, dtype: str, row: dict[str, Any], raw: bytes, ladder: Any) -> bool:
    """Whether these are the stored values: to the bit, and q4tp within its tolerance."""
    if dtype != "q4tp":
        return bool(hashlib.sha256(raw).hexdigest() == row["sha256"])
    want, got = ladder[name].reshape(-1), np.frombuffer(raw, "<f4")
    return bool(np.abs(got - want).max() <= Q4TP_RELATIVE * np.abs(want).max())


@pytest.fixture(scope="module")
def ladder() -> Any:
    """The values of the q4tp tensors."""
    return np.load(INTEROP / "q4tp_values.npz")


def test_there_are_fifty_three_files() -> None:
    """Nothing of the material is passed over."""
    assert len(EXPECTED) == 53
    assert {path.relative_to(INTEROP).as_posix() for path in INTEROP.rglob("*.cmf")} == {*EXPECTED, *REFUSED}


@pytest.mark.parametrize("name", GOOD)
def test_a_real_file_opens_verifies_and_decodes(name: str, ladder: Any) -> None:
    """In our reader."""
    opened = cmfspec.open(INTEROP / name)
    want = EXPECTED[name]
    assert opened.view.envelope["required_features"] == want["required_features"]
    assert {section: list(opened.view.span(section)) for section in want["sections"]} == want["sections"]
    assert list(cmfspec.verify(opened)) == []
    assert {tensor.name for tensor in opened} == set(want["tensors"])
    for tensor in opened:
        row = want["tensors"][tensor.name]
        got = [tensor.dtype_name, list(tensor.shape), tensor.nbytes, f"{tensor.hash:016x}"]
        assert got == [row["dtype"], row["shape"], row["nbytes"], row["hash"]]
        raw = bytes(opened.raw(tensor.index)) if tensor.dtype_name == "u8" else opened.values(tensor.index).tobytes()
        assert right(f"{name}:{tensor.name}", tensor.dtype_name, row, raw, ladder), tensor.name


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_must_be_refused_is_refused_for_its_reason(name: str) -> None:
    """An unknown dtype, and zeros where the envelope belongs."""
    with pytest.raises(REFUSED[name]):
        cmfspec.open(INTEROP / name)


@pytest.fixture(scope="module")
def c_reader() -> Any:
    """The C reader over the pipe."""
    with Process([str(C_READER())]) as link:
        yield link


@pytest.mark.parametrize("name", GOOD)
def test_the_c_reader_says_the_same(name: str, c_reader: Link, ladder: Any) -> None:
    """Every tensor of every file."""
    path = str(INTEROP / name)
    assert c_reader.ask("open", path).status == "ok"
    assert c_reader.ask("verify", path).value.sound is True
    out = c_reader.new_out()
    c_reader.ask("tensors", path, out=out)
    lines = [decode_line(line) for line in Path(out).read_bytes().splitlines()]
    assert {line.name for line in lines} == set(EXPECTED[name]["tensors"])
    for index, line in enumerate(lines):
        row = EXPECTED[name]["tensors"][line.name]
        assert [DTYPE_NAMES[line.dtype], line.shape, int(line.nbytes), line.hash] == [
            row["dtype"], row["shape"], row["nbytes"], row["hash"],
        ]  # fmt: skip
        out = c_reader.new_out()
        assert (
            c_reader.ask("tensor", path, index=index, form="raw" if row["dtype"] == "u8" else "f32", out=out).status
            == "ok"
        )
        assert right(f"{name}:{line.name}", row["dtype"], row, Path(out).read_bytes(), ladder), line.name
    c_reader.settle()


@pytest.mark.parametrize("name", REFUSED)
def test_the_c_reader_refuses_for_the_same_reason(name: str, c_reader: Link) -> None:
    """By the same name."""
    reply = c_reader.ask("open", str(INTEROP / name))
    assert (reply.status, reply.kind) == ("refused", REFUSED[name].kind)
