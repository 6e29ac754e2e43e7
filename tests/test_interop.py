"""Real files that the format's own tools wrote: every one opens, verifies and decodes to its stored values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.contract import compare
from cmfspec.contract.protocol import Reply, decode_line
from cmfspec.errors import REFUSALS
from cmfspec.layout import DTYPE_NAMES
from golden import interop, make
from runner.driver import Process
from tests.adapters import BUILDS, built
from tests.shared import INTEROP, needs_interop


@dataclass(frozen=True)
class Material:
    """Files, and what they should decode to. refused: those that a reader of this text refuses, with the kind."""

    expected: dict[str, dict[str, Any]]
    content: Callable[[str], bytes]
    ladder: Callable[[], dict[str, Any]]
    refused: dict[str, str]


REFUSED = {chosen.name: chosen.refused for chosen in interop.CHOSEN if chosen.refused}
GOLDEN = Material(interop.expected(), interop.content, cache(interop.ladder), REFUSED)
MATERIAL = {"golden": GOLDEN}
if INTEROP.is_dir():
    ROWS = json.loads((INTEROP / "expected.json").read_text())
    MATERIAL["shared"] = Material(
        {name: row for name, row in ROWS.items() if name not in REFUSED},
        lambda name: (INTEROP / name).read_bytes(),
        cache(lambda: dict(np.load(INTEROP / "q4tp_values.npz"))),
        REFUSED,
    )
GOOD = [pytest.param(m, name, id=f"{which}-{name}") for which, m in MATERIAL.items() for name in sorted(m.expected)]
BAD = [pytest.param(m, name, id=f"{which}-{name}") for which, m in MATERIAL.items() for name in m.refused]


@needs_interop
def test_nothing_of_the_whole_material_is_passed_over() -> None:
    """53 files with values, one of them refused, and a wreck."""
    assert len(ROWS) == 53
    assert {path.relative_to(INTEROP).as_posix() for path in INTEROP.rglob("*.cmf")} == {*ROWS, *REFUSED}


@needs_interop
def test_what_is_stored_has_every_encoding_and_section_of_the_whole() -> None:
    """The choice is small, and loses nothing but repetition."""

    def seen(rows: dict[str, dict[str, Any]]) -> set[Any]:
        dtypes = {tensor["dtype"] for row in rows.values() for tensor in row["tensors"].values()}
        sections = {name for row in rows.values() for name, (off, _) in row["sections"].items() if off}
        features = {row["required_features"] for row in rows.values()}
        return dtypes | sections | features

    assert seen(GOLDEN.expected) == seen(MATERIAL["shared"].expected)


@needs_interop
def test_what_is_stored_is_what_would_be_chosen_anew() -> None:
    """Byte for byte the tool's."""
    assert interop.differing(interop.wanted()) == []


def test_what_is_stored_is_what_its_provenance_says_and_small() -> None:
    """Neither changed nor missing nor unnamed, and it stays below 3 MB."""
    assert interop.damaged() == []
    assert sum(path.stat().st_size for path in interop.HOME.rglob("*") if path.is_file()) < 3_000_000


@pytest.mark.parametrize("lies", ["rust/qwen2-q1.cmf", "broken/converter-died.cmf.xz", "rust/stray.cmf", "gone"])
def test_a_changed_file_is_found_without_the_source(
    lies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `python -m golden.make interop --check`."""
    monkeypatch.setattr(interop, "HOME", tmp_path)
    monkeypatch.setattr(interop, "SOURCE", tmp_path / "nowhere")
    named = {name: {"sha256": hashlib.sha256(b"right").hexdigest()} for name in ("rust/qwen2-q1.cmf", "gone")}
    (tmp_path / "PROVENANCE.json").write_text(json.dumps({"files": named}))
    for name in ("rust/qwen2-q1.cmf", "gone"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"right")
    monkeypatch.setattr("sys.argv", ["make", "interop", "--check"])
    with pytest.raises(SystemExit) as left:
        make.main()
    assert left.value.code == 0
    if lies == "gone":
        (tmp_path / lies).unlink()
    else:
        (tmp_path / lies).parent.mkdir(exist_ok=True)
        (tmp_path / lies).write_bytes(b"wrong")
    with pytest.raises(SystemExit) as left:
        make.main()
    assert left.value.code == 1
    assert lies in capsys.readouterr().out


def stored(material: Material, key: str, row: dict[str, Any], decoded: Any) -> Any:
    """The values of a tensor as they are stored: the SHA-256 can only say that `decoded` are they."""
    if row["dtype"] == "q4tp":
        return material.ladder()[key].reshape(-1)
    assert hashlib.sha256(decoded.tobytes()).hexdigest() == row["sha256"], key
    return decoded.reshape(-1)


def unlike(dtype: str, got: Any, want: Any) -> int | None:
    """Where the first value is that isn't the same."""
    return compare.first_difference(got, want, compare.Q4TP_RELATIVE if dtype == "q4tp" else 0.0)


@pytest.mark.parametrize(("material", "name"), GOOD)
def test_a_real_file_opens_verifies_and_decodes(material: Material, name: str) -> None:
    """In our reader."""
    content, want = material.content(name), material.expected[name]
    opened = cmfspec.open(content)
    assert len(content) == want["bytes"]
    assert opened.view.envelope["required_features"] == want["required_features"]
    assert {section: list(opened.view.span(section)) for section in want["sections"]} == want["sections"]
    assert list(cmfspec.verify(opened)) == []
    assert {tensor.name for tensor in opened} == set(want["tensors"])
    for tensor in opened:
        row = want["tensors"][tensor.name]
        got = [tensor.dtype_name, list(tensor.shape), tensor.nbytes, f"{tensor.hash:016x}"]
        assert got == [row["dtype"], row["shape"], row["nbytes"], row["hash"]]
        if tensor.dtype_name == "u8":
            assert hashlib.sha256(opened.raw(tensor.index)).hexdigest() == row["sha256"]
            continue
        values = opened.values(tensor.index)
        wanted = stored(material, f"{name}:{tensor.name}", row, values)
        assert unlike(row["dtype"], values.reshape(-1), wanted) is None, tensor.name


@pytest.mark.parametrize(("material", "name"), BAD)
def test_a_file_that_must_be_refused_is_refused_for_its_reason(material: Material, name: str) -> None:
    """An unknown dtype, and zeros where the envelope belongs."""
    content = material.content(name)
    assert len(content) > 50_000
    with pytest.raises(REFUSALS[material.refused[name]]):
        cmfspec.open(content)


@pytest.fixture(scope="module", params=BUILDS)
def reader(request: pytest.FixtureRequest) -> Iterator[Process]:
    """Another reader over the pipe."""
    with closing(Process([str(built(request.param))])) as link:
        yield link


def answered(reader: Process, op: str, path: str, **members: Any) -> tuple[Reply, bytes]:
    """The reply, which is `ok`, and what was written."""
    out = reader.new_out()
    reply = reader.ask(op, path, out=out, **members)
    assert reply.status == "ok", (op, members, reply)
    return reply, Path(out).read_bytes()


@pytest.mark.parametrize(("material", "name"), GOOD)
def test_an_adapter_says_the_same(material: Material, name: str, reader: Process) -> None:
    """Every tensor of every file, of the dtypes that it declares."""
    content, want = material.content(name), material.expected[name]["tensors"]
    path = reader.place(content)
    assert reader.ask("open", path).status == "ok"
    assert reader.ask("verify", path).value.sound is True
    lines = [decode_line(line) for line in answered(reader, "tensors", path)[1].splitlines()]
    assert {line.name for line in lines} == set(want)
    ours = cmfspec.open(content)
    for index, line in enumerate(lines):
        row = want[line.name]
        got = [DTYPE_NAMES[line.dtype], line.shape, int(line.nbytes), line.hash]
        assert got == [row["dtype"], row["shape"], row["nbytes"], row["hash"]]
        if row["dtype"] == "u8":
            raw = answered(reader, "tensor", path, index=index, form="raw")[1]
            assert hashlib.sha256(raw).hexdigest() == row["sha256"], line.name
        elif line.dtype in reader.hello.dtypes:
            values = np.frombuffer(answered(reader, "tensor", path, index=index, form="f32")[1], "<f4")
            wanted = stored(material, f"{name}:{line.name}", row, ours.values(index))
            assert values.shape == wanted.shape
            assert unlike(row["dtype"], values, wanted) is None, line.name
    reader.settle()


@pytest.mark.parametrize(("material", "name"), BAD)
def test_an_adapter_refuses_for_the_same_reason(material: Material, name: str, reader: Process) -> None:
    """By the same name; unless it declares to know more dtypes than the text."""
    if "q2tp" in name and len(DTYPE_NAMES) in reader.hello.dtypes:
        pytest.skip(f"{reader.hello.name} declares dtype {len(DTYPE_NAMES)}")
    reply = reader.ask("open", reader.place(material.content(name)))
    assert (reply.status, reply.kind) == ("refused", material.refused[name])
    reader.settle()
