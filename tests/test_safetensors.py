"""safetensors files as strangers hand them over."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmfspec.tools import safetensors
from cmfspec.tools.safetensors import WIDTHS, Weights
from cmfspec.tools.unpackable import Unpackable
from tests import models

W = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with that header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def opened(folder: Path, content: bytes) -> Weights:
    """A folder with that one file."""
    (folder / "model.safetensors").write_bytes(content)
    return Weights(folder)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_values_are_read_by_rows(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every width, however the rows are asked for."""
    monkeypatch.setattr(safetensors, "CHUNK", 64)
    array = np.random.default_rng(3).normal(size=(7, 5, 3)).astype("f4")
    stored = {"a": ("F32", np.arange(5, dtype="f4")), "w": (dtype, models.narrowed(array, dtype))}
    with opened(tmp_path, models.safetensors(stored)) as weights:
        want = models.read(tmp_path / "model.safetensors")["w"].reshape(35, 3)
        assert (weights["w"].rows, weights["w"].cols) == (35, 3)
        assert np.array_equal(weights.rows(weights["w"], 3, 9), want[3:9])
        chunks = [*weights.chunks(weights["w"], 2, 33)]
        assert len(chunks) > 1
        assert np.array_equal(np.concatenate([rows for _, rows in chunks]), want[2:33])
        weights.settle()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "length of the header, at 0: found 0 bytes"),
        (b"1234567", "found 7 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "a header of 9223372036854775808 bytes in a file of 10"),
        (raw(b"{}", length=3), "a header of 3 bytes in a file of 10"),
        (raw(b"\xff\xfe{}"), "UTF-8"),
        (raw(b"[]"), "wanted an object"),
        (raw(b'{"w": 1, "w": 1}'), "the key 'w' twice"),
        (raw(b"[" * 100_000), "nesting 100000 deep"),
        (raw({"w": 1}), "'w': found 1, wanted an object of dtype"),
        (raw({"w": {**W, "more": 1}}), "an object of dtype"),
        (raw({"w": {**W, "dtype": "F7"}}), "dtype: found 'F7', wanted one of BOOL"),
        (raw({"w": {**W, "dtype": ["F32"]}}), "dtype: found ['F32']"),
        (raw({"w": {**W, "shape": [2, -3]}}), "shape: found [2, -3]"),
        (raw({"w": {**W, "shape": [2, True]}}), "shape: found [2, True]"),
        (raw({"w": {**W, "shape": 6}}), "shape: found 6"),
        (raw({"w": {**W, "shape": [2**62, 2**62, 2**62]}}), "data_offsets: found 24 bytes, wanted"),
        (raw({"w": {**W, "data_offsets": [24]}}), "data_offsets: found [24]"),
        (raw({"w": {**W, "data_offsets": [24, 0]}}), "found -24 bytes, wanted 24"),
        (raw({"w": W}, b"x" * 23), "data: found 23 bytes, wanted 24 bytes: is the file truncated?"),
        (raw({"w": W}, b"x" * 25), "data: found 25 bytes, wanted 24"),
        (raw({"w": {**W, "data_offsets": [8, 32]}}, b"x" * 32), "data_offsets of 'w': found from 8 on, wanted from 0 on"),
        (raw({"v": W, "w": W}, b"x" * 48), "data_offsets of 'w': found from 0 on, wanted from 24 on"),
        (raw({"v": W, "w": {**W, "data_offsets": [20, 44]}}, b"x" * 44), "from 20 on, wanted from 24 on"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_file_that_lies_is_refused_with_its_place(content: bytes, said: str, tmp_path: Path) -> None:
    """Named: the file, where in it, what was found and what was wanted."""
    with pytest.raises(Unpackable) as refused:
        opened(tmp_path, content)
    assert said in str(refused.value)
    assert "model.safetensors" in str(refused.value)


def test_a_file_may_be_cut_or_flipped_anywhere(tmp_path: Path) -> None:
    """Refused, or read as what it says; nothing else leaves, and a truncated one never passes."""
    whole = models.safetensors({"a": ("F16", np.ones((3, 4), "f2")), "b": ("I64", np.ones(2, "i8"))})
    for cut in range(len(whole)):
        with pytest.raises(Unpackable):
            opened(tmp_path, whole[:cut])
    for at in range(len(whole)):
        for mask in (1, 0x80, 0xFF):
            try:
                with opened(tmp_path, whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :]) as weights:
                    for stored in weights.values():
                        try:
                            weights.rows(stored, 0, stored.rows)
                        except Unpackable as error:
                            assert "wanted one of F32" in str(error)
            except Unpackable:
                pass


def test_only_weights_have_values(tmp_path: Path) -> None:
    """Eight bits with scales elsewhere are no weights by themselves."""
    for dtype, width in WIDTHS.items():
        with opened(
            tmp_path, raw({"w": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * width]}}, bytes(2 * width))
        ) as weights:
            if dtype in ("F32", "F16", "BF16"):
                assert weights.rows(weights["w"], 0, 1).shape == (1, 2)
            else:
                with pytest.raises(Unpackable, match=f"found {dtype}, wanted one of F32, F16, BF16"):
                    weights.rows(weights["w"], 0, 1)


def test_a_file_that_shrinks_or_changes_is_noticed(tmp_path: Path) -> None:
    """Not the end of the process, as with a map."""
    content = models.safetensors({"w": ("F32", np.ones((4, 4), "f4"))})
    with opened(tmp_path, content) as weights:
        os.truncate(tmp_path / "model.safetensors", len(content) - 8)
        with pytest.raises(Unpackable, match="found the file's end"):
            weights.rows(weights["w"], 0, 4)
        with pytest.raises(Unpackable, match="changed while it was read"):
            weights.settle()


def index(folder: Path, listed: Any) -> None:
    """Two files and their index."""
    for no in "12":
        (folder / f"{no}.safetensors").write_bytes(models.safetensors({f"w{no}": ("F32", np.full((1, 2), no, "f4"))}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": listed}, indent=1))


def test_a_model_in_several_files_is_read_by_its_index(tmp_path: Path) -> None:
    """Each tensor from the file that it is in."""
    index(tmp_path, {"w1": "1.safetensors", "w2": "2.safetensors"})
    with Weights(tmp_path) as weights:
        assert sorted(weights) == ["w1", "w2"]
        assert weights.rows(weights["w2"], 0, 1).tolist() == [[2, 2]]
        assert len(weights.files) == 2


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"w1": "1.safetensors", "w2": "3.safetensors"}, "3.safetensors: path: found No such file"),
        ({"w1": "1.safetensors"}, None),
        ({"w1": "1.safetensors", "w2": "1.safetensors"}, "tensor 'w2': found not in the file"),
        ({"w1": "../1.safetensors"}, "line 4, weight_map.w1: found '../1.safetensors'"),
        ({"w1": "/etc/passwd"}, "weight_map.w1"),
        ({"w1": 5}, "weight_map.w1: found 5"),
        ({"w1": "a\0b"}, "weight_map.w1"),
        ([], "line 3, weight_map: found []"),
        (None, "weight_map: found None"),
    ],
    ids=str,
)
def test_an_index_that_lies_is_refused(listed: Any, said: str | None, tmp_path: Path) -> None:
    """It may not lead out of the folder; a file that it doesn't name isn't read."""
    index(tmp_path, listed)
    if said is None:
        with Weights(tmp_path) as weights:
            assert [*weights] == ["w1"]
        return
    with pytest.raises(Unpackable) as refused:
        Weights(tmp_path)
    assert said in str(refused.value)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A pipe would be waited for."""
    with pytest.raises(Unpackable, match=r"neither model\.safetensors nor"):
        Weights(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(Unpackable, match="not a regular file"):
        Weights(tmp_path)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Neither after a refusal nor after use."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Unpackable):
        opened(tmp_path, b"x")
    opened(tmp_path, raw({"w": W}, b"x" * 24)).__exit__()
    assert len(os.listdir("/proc/self/fd")) == before
