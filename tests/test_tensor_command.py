"""`cmfspec tensor`: one tensor out of a file, whole or not at all."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cmfspec
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.layout import DTYPE_IDS
from golden.files import File
from golden.recipes import HEADER, NORM, entry, recipe
from runner.cli import cli

ENCODINGS = recipe("encodings").tensors


def run(*words: str, expect: int = 0) -> Result:
    """`cmfspec tensor` with these words."""
    result = CliRunner().invoke(cli, ["tensor", *words])
    assert result.exit_code == expect, (result.exit_code, result.output, result.exception)
    return result


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of each encoding."""
    path = tmp_path / "encodings.cmf"
    path.write_bytes(File("encodings").content())
    return str(path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where to write: alone in its folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "out.npy"


def made(folder: Path, *tensors: Entry) -> str:
    """A file of these tensors."""
    path = folder / "made.cmf"
    path.write_bytes(render(Blueprint(HEADER, tensors)))
    return str(path)


def beside(out: Path) -> list[str]:
    """What lies where the output belongs."""
    return sorted(path.name for path in out.parent.iterdir())


@pytest.mark.parametrize("index", range(len(ENCODINGS)), ids=[tensor.name for tensor in ENCODINGS])
def test_what_is_written_is_what_the_library_decodes(file: str, out: Path, index: int) -> None:
    """By name and by index, to a file and to stdout; numpy reads it."""
    tensor = ENCODINGS[index]
    said = run(file, tensor.name, "-o", str(out))
    assert said.stdout == ""
    assert tensor.name in said.stderr
    got = np.load(out)
    opened = cmfspec.open(file)
    is_weight = tensor.dtype != DTYPE_IDS["u8"]
    want: Any = opened.values(index) if is_weight else np.frombuffer(tensor.payload, np.uint8)
    assert (got.dtype, got.shape) == (np.float32 if is_weight else np.uint8, tensor.shape)
    assert got.tobytes() == want.tobytes()
    assert beside(out) == ["out.npy"]
    piped = run(file, "--index", str(index), "-o", "-").stdout_bytes
    assert piped == out.read_bytes()
    assert np.load(io.BytesIO(piped)).shape == tensor.shape


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 1, 1, 1, 1, 2)], ids=str)
def test_shapes_out_of_the_ordinary_are_kept(tmp_path: Path, out: Path, shape: tuple[int, ...]) -> None:
    """No dimension, none of a length, six of them."""
    path = made(tmp_path, entry("w", "f32", shape))
    run(path, "w", "-o", str(out))
    assert np.load(out).shape == shape
    assert run(path, "w", "-o", "-").stdout_bytes == out.read_bytes()


def test_raw_writes_the_payload_as_it_lies(file: str, out: Path) -> None:
    """Also of a dtype that has no values."""
    for index, tensor in enumerate(ENCODINGS):
        run(file, "--index", str(index), "--raw", "-o", str(out))
        assert out.read_bytes() == tensor.payload
        assert run(file, tensor.name, "--raw", "-o", "-").stdout_bytes == tensor.payload
    reserved = made(out.parent.parent, Entry("w", DTYPE_IDS["mix8_4"], (4,), b"12345678"))
    run(reserved, "w", "--raw", "-o", str(out))
    assert out.read_bytes() == b"12345678"


def test_what_has_no_values_is_refused_with_a_hint(tmp_path: Path, out: Path) -> None:
    """1, and the way out."""
    path = made(tmp_path, Entry("w", DTYPE_IDS["mix8_4"], (4,), b"12345678"))
    said = run(path, "w", "-o", str(out), expect=1)
    assert "mix8_4 has no values; --raw" in said.stderr
    assert beside(out) == []


@pytest.mark.parametrize("to", ["file", "stdout"])
def test_a_refused_file_is_refused_as_by_verify(tmp_path: Path, out: Path, to: str) -> None:
    """1, with the faults; on stderr, because stdout is the data."""
    path = tmp_path / "refused.cmf"
    path.write_bytes(File("full").edited("envelope.version", 1).content())
    said = run(str(path), NORM, "-o", str(out) if to == "file" else "-", expect=1)
    assert "UnsupportedVersion: envelope.version at 0x4: found 1, wanted 2" in said.stderr
    assert "cmfspec explain" in said.stderr
    assert said.stdout == ""
    assert "No such file" in run(str(tmp_path / "missing.cmf"), NORM, "-o", str(out), expect=1).stderr
    assert beside(out) == []


@pytest.mark.parametrize("to", ["file", "stdout"])
def test_a_payload_that_lies_leaves_no_half_file(tmp_path: Path, out: Path, to: str) -> None:
    """The fault shows when the base is decoded already; what stood there before stays."""
    good = entry("w", "q1s", (5, 64))
    at = len(good.payload) - 6  # of the last outlier: its index
    lying = replace(good, payload=good.payload[:at] + b"\xff\xff\xff\xff" + good.payload[at + 4 :])
    path = made(tmp_path, lying)
    out.write_bytes(b"before")
    said = run(path, "w", "-o", str(out) if to == "file" else "-", expect=1)
    assert "Bounds: tensor[0].index[" in said.stderr
    assert said.stdout_bytes == b""
    assert out.read_bytes() == b"before"
    assert beside(out) == ["out.npy"]


@pytest.mark.parametrize("dtype", ["vbit", "vbit_ro", "q1s", "q1t"])
def test_a_shape_that_its_payload_cannot_fill_takes_no_space(tmp_path: Path, out: Path, dtype: str) -> None:
    """2^62 values that a few bytes claim to be: refused, and not for want of space."""
    path = made(tmp_path, Entry("w", DTYPE_IDS[dtype], (2**31, 2**31), bytes(64)))
    said = run(path, "w", "-o", str(out), expect=1)
    assert "Bounds: tensor[0]." in said.stderr
    assert beside(out) == []


def test_an_unknown_name_gets_the_closest_ones(file: str, out: Path) -> None:
    """2; and where nothing is close, how to list them."""
    assert (
        "no tensor is named 'w.q4_blok'; closest: w.q4_block" in run(file, "w.q4_blok", "-o", str(out), expect=2).stderr
    )
    assert "`cmfspec inspect` lists them" in run(file, "???????????????", "-o", str(out), expect=2).stderr
    assert "no tensor is named" in run(file, "\udcff", "-o", str(out), expect=2).stderr
    assert beside(out) == []


def test_a_name_cannot_drive_the_terminal(tmp_path: Path, out: Path) -> None:
    """Neither where it is suggested nor where it is written."""
    name = "model.\x1b[2Jgone"
    path = made(tmp_path, entry(name, "f32", (3,)))
    for words, code in ((["model.\x1b[2Jgon"], 2), ([name], 0)):
        said = run(path, *words, "-o", str(out), expect=code)
        assert "\x1b" not in said.output
        assert "\\x1b[2Jgon" in said.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one of the two"),
        (["w.f32", "--index", "0"], "one of the two"),
        (["--index", str(len(ENCODINGS))], f"wanted 0 to {len(ENCODINGS) - 1}"),
        (["--index", "-1"], f"wanted 0 to {len(ENCODINGS) - 1}"),
        (["--index", "many"], "not a valid integer"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_a_tensor_has_to_be_named_in_one_way(file: str, out: Path, words: list[str], said: str) -> None:
    """2, with what was wanted."""
    assert said in run(file, *words, "-o", str(out), expect=2).stderr
    assert beside(out) == []


def test_a_file_without_tensors_says_so(tmp_path: Path, out: Path) -> None:
    """There is no index to give."""
    assert "the file has no tensors" in run(made(tmp_path), "--index", "0", "-o", str(out), expect=2).stderr


def test_an_output_that_cannot_be_is_a_usage_error(file: str, tmp_path: Path, out: Path) -> None:
    """A directory that isn't there, one that is, a device, the model itself, and none at all."""
    before = Path(file).read_bytes()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(file)
    for where, said in (
        (str(tmp_path / "nowhere" / "x.npy"), "there is no directory"), (str(tmp_path), "not a regular file"),
        ("/dev/null", "not a regular file"), (str(tmp_path / "fifo"), "not a regular file"),
        (file, "the file that is read"), (str(tmp_path / "link"), "the file that is read"), ("a\0b", "null"),
    ):  # fmt: skip
        assert said in run(file, "w.f32", "-o", where, expect=2).stderr, where
    assert "Missing option" in run(file, "w.f32", expect=2).stderr
    assert Path(file).read_bytes() == before
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_link_is_followed_and_what_it_names_replaced(file: str, tmp_path: Path, out: Path) -> None:
    """As a shell's `>` would."""
    link = tmp_path / "link.npy"
    out.write_bytes(b"before")
    link.symlink_to(out)
    run(file, "w.f32", "-o", str(link))
    assert link.is_symlink()
    assert np.load(out).shape == (3, 5)


@pytest.mark.parametrize("words", [["w.f32"], ["w.u8"], ["w.f32", "--raw"]], ids=" ".join)
def test_a_full_disk_is_a_broken_run_that_leaves_nothing(
    file: str, out: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """3, with the system's reason."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("runner.tensorcmd._reserve", full)
    monkeypatch.setattr(Path, "replace", full)
    assert "No space left on device" in run(file, *words, "-o", str(out), expect=3).stderr
    assert beside(out) == []


def test_an_interruption_leaves_nothing(file: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while decoding."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cmfspec.format.container.Container.values", interrupted)
    assert CliRunner().invoke(cli, ["tensor", file, "w.f32", "-o", str(out)]).exit_code != 0
    assert beside(out) == []


def test_a_large_tensor_is_decoded_straight_into_the_file(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The codec is given the map of the file that is about to get the name."""
    seen: list[Any] = []
    values = cmfspec.Container.values

    def watched(self: Any, index: int, given: Any = None) -> Any:
        seen.append((type(given), given.filename, given.shape))
        return values(self, index, given)

    monkeypatch.setattr(cmfspec.Container, "values", watched)
    run(made(tmp_path, entry("w", "q8_row", (64, 96))), "w", "-o", str(out))
    ((kind, name, shape),) = seen
    assert (kind, shape) == (np.memmap, (64, 96))
    assert Path(name).parent == out.parent
    assert beside(out) == ["out.npy"]


def test_a_damaged_payload_is_written_and_said_to_be_damaged(tmp_path: Path, out: Path) -> None:
    """Decoding checks no hash; whoever takes the values should know."""
    path = tmp_path / "damaged.cmf"
    path.write_bytes(File("full").edited("flip", ["data", 3, 1]).content())
    assert "damaged" in run(str(path), "--index", "0", "-o", str(out)).stderr
    assert "damaged" not in run(str(path), "--index", "1", "-o", str(out)).stderr


def test_a_new_file_has_the_rights_that_the_umask_leaves(file: str, out: Path) -> None:
    """Not those of a temporary file."""
    before = os.umask(0o027)
    try:
        run(file, "w.f32", "-o", str(out))
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
