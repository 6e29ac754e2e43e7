"""`python -m fuzz`: what it says, and what its exit code means; the recipe for a distributed fuzzer."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import fuzz.__main__ as command
from fuzz.loop import Tally
from fuzz.targets import TARGETS, Seen, Target

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / ".clusterfuzzlite"


def fuzzed(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run it; nothing takes longer than a minute."""
    return subprocess.run([sys.executable, "-m", "fuzz", *words], capture_output=True, text=True, timeout=120, cwd=cwd)


def wrong(check: object) -> Target:
    """A target that does this."""
    return replace(TARGETS["header"], name="t", check=check)  # type: ignore[arg-type]


def test_a_target_is_fuzzed_and_its_accepted_share_told() -> None:
    """A rate says nothing without it."""
    done = fuzzed("container", "--executions", "300")
    assert done.returncode == 0, done.stderr
    assert re.search(r"container +300 executions +\d+/s +\d+% accepted", done.stdout)


def test_what_escapes_is_kept_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the input and where it left."""

    def check(raw: bytes) -> Seen:
        raise ZeroDivisionError("here")

    assert command.run(wrong(check), None, 5, 0, tmp_path) == command.ESCAPED
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() in TARGETS["header"].seeds()
    assert "ZeroDivisionError escaped" in capsys.readouterr().err


def test_fuzzing_that_is_never_accepted_is_no_success(tmp_path: Path) -> None:
    """It would say nothing about what is behind the first check; and neither would none at all."""
    refuses = wrong(lambda _: Seen(False, ()))
    assert command.run(refuses, None, command.ENOUGH, 0, tmp_path) == command.BROKEN
    assert command.run(TARGETS["header"], None, 0, 0, tmp_path) == command.BROKEN


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nope",), "no such target"),
        (("--coverage",), "one target"),
        (("container", "--", "-runs=1"), "need --coverage"),
    ],
)
def test_usage_is_named(words: tuple[str, ...], says: str) -> None:
    """Exit 2."""
    done = fuzzed(*words)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed (the fuzz extra)")
def test_coverage_guides_the_same_targets(tmp_path: Path) -> None:
    """And libFuzzer says how much of the reader it has seen."""
    done = fuzzed("header", "--coverage", "--executions", "500", "--", f"-artifact_prefix={tmp_path}/")
    assert done.returncode == 0, done.stderr
    assert "Done 500 runs" in done.stderr
    assert max(int(found) for found in re.findall(r"cov: (\d+)", done.stderr)) > 30


@pytest.mark.skipif(find_spec("atheris") is not None, reason="atheris is installed")
def test_without_atheris_coverage_says_what_to_install() -> None:
    """One line."""
    done = fuzzed("header", "--coverage", "--executions", "5")
    assert done.returncode == 1
    assert "cmfspec[fuzz]" in done.stderr


def test_the_recipe_makes_a_fuzzer_of_each_target(tmp_path: Path) -> None:
    """Its script is run with the builder's tools replaced by ones that note what they are given."""
    assert {path.name for path in RECIPE.iterdir()} == {"project.yaml", "Dockerfile", "build.sh"}
    bins, out = tmp_path / "bin", tmp_path / "out"
    bins.mkdir()
    out.mkdir()
    tools = {
        "pip3": "exit 0",
        "python3": f'exec {sys.executable} "$@"',
        "cmfspec": f'exec {sys.executable} -m cmfspec "$@"',
        "compile_python_fuzzer": 'cp "$1" "$OUT/"',
        "zip": 'touch "$3"',
    }
    for name, text in tools.items():
        (bins / name).write_text(f"#!/bin/bash\n{text}\n")
        (bins / name).chmod(0o755)
    environment = {"PATH": f"{bins}:/usr/bin:/bin", "OUT": str(out), "SRC": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-eu", str(RECIPE / "build.sh")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    names = {f"fuzz_{name.replace('.', '_')}" for name in TARGETS}
    assert {path.stem for path in out.glob("*.py")} == names
    assert {path.stem for path in out.glob("*.dict")} == names
    assert (out / "fuzz_container_seed_corpus.zip").exists()
    for path in out.glob("*.py"):
        compile(path.read_text(), str(path), "exec")


def test_the_loop_tells_its_share() -> None:
    """Of nothing it is none."""
    assert Tally().share == 0.0
    assert Tally(executions=4, accepted=1).share == 0.25
