"""`cmfspec warm`: afterwards nobody waits for a compiler."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmfspec.kernels.compiled import VARIABLE
from golden.files import File
from runner import warming
from tests.test_layers import ROOT

GUARD = 300  # seconds: against a hang, not for speed
# A reader's whole day, each tensor of a file by kernels, whether or not it is worth it.
USE = """
import sys, numpy as np, cmfspec
from cmfspec.codecs import CODECS
from cmfspec.format.hash64 import _compiled
from cmfspec.kernels.compiled import KERNELS
opened = cmfspec.open(sys.argv[1])
data = opened.view.part("data")
_compiled(data, np.array([0, 8]), np.array([len(data), 3]))
for tensor in opened:
    codec = CODECS[tensor.dtype]
    if codec.fast is None:
        continue
    payload = opened.raw(tensor.index)
    out = np.lib.format.open_memmap(sys.argv[2], "w+", np.float32, tensor.shape)
    codec.fast(payload, tensor.shape, False).decode(out)
    codec.fast(payload, tensor.shape, False).decode()
    if len(tensor.shape) == 2:
        xs = np.ones((3, tensor.shape[1]), np.float32)
        codec.matvec(payload, tensor.shape, xs[0])
        codec.matmat(payload, tensor.shape, xs)
print(sum(sum(each.stats.cache_misses.values()) for each in KERNELS.values()))
print(sorted(name for name, each in KERNELS.items() if each.signatures))
"""


def started(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=GUARD,
        env={**os.environ, VARIABLE: str(cache)},
    )  # fmt: skip


def files(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """An empty folder that has been warmed, and what was said."""
    cache = tmp_path_factory.mktemp("warmed")
    done = started(cache, "-m", "cmfspec", "warm", "--json")
    assert (done.returncode, done.stderr) == (0, "")  # no bar where there is no terminal
    return cache, json.loads(done.stdout)


def decorated() -> set[str]:
    """Every kernel that the sources have."""
    return {
        f"cmfspec.kernels.{path.stem}.{node.name}"
        for path in (ROOT / "cmfspec" / "kernels").glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(each, ast.Name) and each.id == "kernel" for each in node.decorator_list)
    }


def test_a_fresh_process_compiles_nothing_after_warm(warmed: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    """A file in every encoding is hashed, decoded and multiplied: every kernel is used, and none is written again."""
    cache, _ = warmed
    before = files(cache)
    (tmp_path / "every.cmf").write_bytes(File("encodings").content())
    done = started(cache, "-c", USE, str(tmp_path / "every.cmf"), str(tmp_path / "out.npy"))
    assert done.returncode == 0, done.stderr
    missed, used = done.stdout.splitlines()
    assert missed == "0"
    assert set(ast.literal_eval(used)) == decorated()
    assert files(cache) == before


def test_it_says_where_and_how_many_and_a_second_time_finds_them(warmed: tuple[Path, dict[str, object]]) -> None:
    cache, told = warmed
    assert told["compiled"] == told["kernels"] == len(decorated())
    assert Path(str(told["folder"])).parent == cache
    again = started(cache, "-m", "cmfspec", "warm")
    assert again.returncode == 0
    assert again.stdout.startswith("0 kernels compiled in ")
    assert f"{len(decorated())} were there: {told['folder']}" in again.stdout


def test_where_nothing_can_be_kept_nothing_is_compiled_and_why_is_said() -> None:
    for words in ((), ("--json",)):
        done = started(Path("/dev/null/nowhere"), "-m", "cmfspec", "warm", *words)
        assert done.returncode == 3
        assert "they can't be kept: Not a directory: /dev/null/nowhere" in done.stderr
        assert json.loads(done.stdout or "null") == (
            {"folder": None, "kernels": 0, "compiled": 0, "seconds": 0.0} if words else None
        )


def test_a_folder_that_is_full_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device", "/kept/kernel.nbc")

    monkeypatch.setattr(warming, "folder", lambda: tmp_path)
    monkeypatch.setattr(warming, "_use", full)
    assert warming.warm_command(as_json=False) == 3
    assert "/kept/kernel.nbc: No space left on device" in capsys.readouterr().err
