"""The small models in the tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from golden import oracle


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, in its place."""
    copy = tmp_path / "oracle"
    shutil.copytree(oracle.HOME, copy)
    monkeypatch.setattr(oracle, "HOME", copy)
    return copy


def test_the_models_in_the_tree_are_those_that_their_provenance_names() -> None:
    """Each with why it is here; and the source's, where that is beside the tree."""
    assert oracle.damaged() == []
    assert {path.name for path in oracle.HOME.iterdir() if path.is_dir()} == set(oracle.CHOSEN)
    if oracle.SOURCE.is_dir():
        assert oracle.differing(oracle.wanted()) == []


def test_what_is_changed_missing_or_too_many_is_noticed(folder: Path) -> None:
    """And put right."""
    whole = oracle.wanted(folder)
    (folder / "llama" / "stray").write_bytes(b"")
    (folder / "llama" / "oracle.npz").write_bytes(b"x")
    (folder / "qwen2_moe" / "config.json").unlink()
    wrong = ["llama/oracle.npz", "llama/stray", "qwen2_moe/config.json"]
    assert oracle.damaged() == wrong
    assert oracle.differing(whole) == wrong
    oracle.write(whole)
    assert oracle.damaged() == oracle.differing(whole) == []
