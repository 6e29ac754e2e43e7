"""A payload that is encoded by blocks of rows: the same bytes, and little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.codecs import encode
from cmfspec.errors import CannotEncode
from cmfspec.tools import blocks
from cmfspec.tools.blocks import SEGMENTS, payload
from cmfspec.tools.pack import QUANTS, pack
from cmfspec.tools.requant import requant
from tests import models

NAMES = sorted(set(QUANTS.values()))


def loud(rows: int, cols: int) -> Any:
    """Weights whose rows and columns differ in loudness."""
    dice = np.random.default_rng(rows * cols)
    return (
        dice.normal(0, 1, (rows, cols)) * np.exp2(dice.uniform(-6, 2, (rows, 1))) * np.exp2(dice.uniform(-2, 2, cols))
    ).astype("f4")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 100])
def test_blocks_make_the_same_bytes_as_the_whole(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks of 32 rows; of every encoding that pack takes."""
    weights = loud(rows, 96)
    monkeypatch.setattr(blocks, "BLOCK", 32 * 96)
    assert bytes(payload(name, weights, "w")) == encode(name, weights, tensor="w")


@pytest.mark.parametrize("shape", [(100, 5), (7, 3, 11), (13,), (), (0, 32), (4, 0)], ids=str)
@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q4_block"])
def test_any_shape_can_be_had_by_blocks(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the encodings that aren't for matrices alone; groups of 32 go on from row to row."""
    monkeypatch.setattr(blocks, "BLOCK", 1)
    weights = np.random.default_rng(1).normal(size=shape).astype("f4")
    assert bytes(payload(name, weights, "w")) == encode(name, weights, tensor="w")


def test_of_equal_outliers_the_earlier_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the encoder of the whole, wherever a block ends."""
    monkeypatch.setattr(blocks, "BLOCK", 100)
    weights = np.round(np.random.default_rng(9).normal(0, 2, (64, 96))).astype("f4")
    for name in ("q1s", "q1t"):
        assert bytes(payload(name, weights, "w")) == encode(name, weights, tensor="w")


def test_every_encoding_has_its_way() -> None:
    """A new one has to be thought about."""
    assert set(NAMES) == {*SEGMENTS, "q8_2f", "vbit_ro", "q1s", "q1t"}


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_encoded_is_named(name: str) -> None:
    """Wherever it stands."""
    weights = loud(64, 64)
    weights[40, 3] = np.nan
    with pytest.raises(CannotEncode, match=r"^Other: w\b"), np.errstate(invalid="ignore"):
        payload(name, weights, "w")


BIG = {**models.CONFIG, "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8}
LARGEST = 4 * 8192 * 512  # bytes of the embedding as float32


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model six times as large as its largest tensor."""
    config = {**BIG, "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True}
    weights = models.llama(config)
    assert 4 * sum(array.size for array in weights.values()) > 6 * LARGEST
    return models.folder(tmp_path_factory.mktemp("large") / "model", config, weights, "BF16")


@pytest.mark.parametrize("quant", ["f32", "bf16", "q8_2f", "q4tp", "vbit_ro", "q1t"])
def test_memory_follows_the_largest_tensor_not_the_model(quant: str, large: Path, tmp_path: Path) -> None:
    """Less than three times the largest tensor, to pack and to requant."""
    packed, other = tmp_path / "a.cmf", tmp_path / "b.cmf"
    assert peak(lambda: pack(large, str(packed), quant)) < 3 * LARGEST
    cmfspec.format.container.READ_WHOLE, before = 0, cmfspec.format.container.READ_WHOLE  # mapped, as large files are
    try:
        assert peak(lambda: requant(packed, str(other), "q8_row")) < 3 * LARGEST
    finally:
        cmfspec.format.container.READ_WHOLE = before
    assert next(cmfspec.verify(cmfspec.open(other)), None) is None


def peak(work: Any) -> int:
    """The most bytes that were allocated at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
