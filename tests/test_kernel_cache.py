"""Where compiled kernels are kept, and that a kept one is never a stale one."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cmfspec.kernels import compiled
from tests.test_layers import ROOT, imports

HASH = "import numpy as np; from cmfspec.format.hash64 import _compiled; print(hex(_compiled(b'12345678abc', np.array([0]), np.array([11]))[0]))"
MAY_IMPORT = (
    "numba",
    "numpy",
    "llvmlite",
    "cmfspec.kernels",
    "cmfspec.layout",
    "__future__",
    "typing",
    "functools",
    "collections",
    "dataclasses",
)
HOST = {"compiled", "threads", "worth"}  # they run in Python and compile nothing into a kernel
GUARD = 300  # seconds: against a hang, not for speed


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, to be edited."""
    shutil.copytree(
        ROOT / "cmfspec", tmp_path / "tree" / "cmfspec", ignore=shutil.ignore_patterns("__pycache__", "spec")
    )
    return tmp_path / "tree"


def hashed(tree: Path, **variables: str) -> tuple[str, str]:
    """(hash64 by the tree's kernels, stderr)."""
    environment = {
        name: value for name, value in os.environ.items() if name not in (compiled.VARIABLE, "XDG_CACHE_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-c", HASH], cwd=tree, capture_output=True, text=True, check=True, timeout=GUARD,
        env={**environment, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables},
    )  # fmt: skip
    return done.stdout.strip(), done.stderr


def kept(folder: Path) -> set[Path]:
    return set(folder.rglob("*.nbc"))


@pytest.mark.parametrize(
    ("file", "was", "now"),
    [
        ("kernels/vector.py", "return b.load(", "return b.not_(b.load("),
        ("kernels/hashing.py", "return x ^ (x >> _SHIFT)", "return x"),
        ("layout.py", "0xFF51AFD7ED558CCD", "0xFF51AFD7ED558CCF"),
    ],
    ids=["a helper elsewhere", "a helper in the same file", "a number"],
)
def test_an_edited_helper_is_noticed(tree: Path, tmp_path: Path, file: str, was: str, now: str) -> None:
    cache = str(tmp_path / "cache")
    before = hashed(tree, CMFSPEC_CACHE_DIR=cache)
    assert before == hashed(tree, CMFSPEC_CACHE_DIR=cache)
    path = tree / "cmfspec" / file
    source = path.read_text("utf-8")
    assert was in source
    edited = source.replace(was, now)
    path.write_text(edited.replace("align=1)", "align=1))", 1) if "not_" in now else edited, "utf-8")
    after = hashed(tree, CMFSPEC_CACHE_DIR=cache)
    assert after != before
    assert after == hashed(tree, CMFSPEC_CACHE_DIR=str(tmp_path / "another"))


def test_a_second_process_finds_what_the_first_compiled_and_the_tree_stays_clean(tree: Path, tmp_path: Path) -> None:
    """Nothing is written beside the sources, so a read-only tree is no matter."""
    before = sorted(tree.rglob("*"))
    hashed(tree, CMFSPEC_CACHE_DIR=str(tmp_path / "cache"))
    first = {path: path.stat().st_mtime_ns for path in kept(tmp_path / "cache")}
    assert first
    hashed(tree, CMFSPEC_CACHE_DIR=str(tmp_path / "cache"))
    assert {path: path.stat().st_mtime_ns for path in kept(tmp_path / "cache")} == first
    assert sorted(tree.rglob("*")) == before


def test_without_a_place_to_write_kernels_work_and_one_line_says_so(tree: Path, tmp_path: Path) -> None:
    right, silence = hashed(tree, CMFSPEC_CACHE_DIR=str(tmp_path / "cache"))
    assert silence == ""
    got, said = hashed(tree, HOME="/dev/null")
    assert got == right
    assert said.startswith("cmfspec: kernels are compiled anew each time, they can't be kept: ")
    assert said.count("\n") == 1
    assert hashed(tree, HOME=str(tmp_path / "home")) == (right, "")
    assert kept(tmp_path / "home" / ".cache" / "cmfspec")


def test_without_a_home_there_is_no_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As for a user that no password file knows."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(compiled.Path, "home", nobody)
    assert compiled.folder.__wrapped__() is None
    assert "they can't be kept: Could not determine home directory." in capsys.readouterr().err


def test_kernels_import_nothing_that_the_digest_does_not_cover() -> None:
    for path in (ROOT / "cmfspec" / "kernels").glob("*.py"):
        if path.stem not in HOST:
            strange = [name for name in imports(path) if not name.startswith(MAY_IMPORT)]
            assert not strange, f"{path.name}: {strange}"
            names = {
                name
                for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, ast.ImportFrom)
                for name in (node.module or "",)
            }
            assert not {f"cmfspec.kernels.{host}" for host in HOST - {"compiled"}} & names


def test_numba_keeps_its_own_cache_settings() -> None:
    """Decorating a kernel leaves no trace in numba's configuration."""
    import numba

    before = numba.config.CACHE_DIR
    compiled.kernel(lambda x: x)
    assert before == numba.config.CACHE_DIR
