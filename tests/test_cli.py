"""The command line as its users meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cmfspec.__main__ import stranger
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from golden.files import File
from runner.cli import SHELLS, cli

SLOW = ("numpy", "numba", "rich", "msgspec", "hypothesis", "cryptography")


def cmfspec(*words: str, expect: int = 0) -> str:
    """Run a command and return what it printed."""
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == expect, result.output
    return result.output


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A sound file, a damaged one, a refused one, and none."""
    made = {
        "sound": File("full"),
        "damaged": File("full").edited("flip", ["data", 3, 1]),
        "refused": File("full").edited("envelope.version", 1),
    }
    for name, file in made.items():
        (tmp_path / f"{name}.cmf").write_bytes(file.content())
    return {name: str(tmp_path / f"{name}.cmf") for name in (*made, "missing")}


def test_help_imports_nothing_slow() -> None:
    """Startup matters."""
    script = f"import sys; sys.argv = ['cmfspec', '--help']\nfrom cmfspec.__main__ import main\ntry:\n    main()\nexcept SystemExit:\n    pass\nprint([m for m in {SLOW} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Exit codes" in done.stdout


def test_verify_finds_weights_that_no_model_can_use(tmp_path: Path) -> None:
    """NaN and infinities, and payloads that lie, behind hashes that are right; raw bytes and reserved encodings hold none."""
    weights = np.array([[1, np.nan, 3], [-np.inf, 5, 6]], np.float32)
    widths = bytes([4, 9])  # vbit: no row is 9 bits wide
    tensors = (
        Entry("fine", 0, (2,), np.float32([1, 2]).tobytes()),
        Entry("odd", 0, (2, 3), weights.tobytes()),
        Entry("lies", 8, (2, 32), widths + bytes(4) + bytes(16) * 2),
        Entry("bytes", 6, (4,), b"\xff\xff\xff\xff"),
    )
    path = tmp_path / "w.cmf"
    path.write_bytes(render(Blueprint({}, tensors)))
    assert "sound, 4 tensors" in cmfspec("verify", str(path))
    said = cmfspec("verify", "--values", str(path), expect=1)
    assert "2 of 6 weights not finite, the first nan at [0, 1], wanted finite weights (odd)" in said
    told = json.loads(cmfspec("verify", "--values", "--json", str(path), expect=1))
    assert [(problem["index"], problem["kind"]) for problem in told["problems"]] == [(1, "values"), (2, "payload")]
    sound = tmp_path / "sound.cmf"
    sound.write_bytes(File("full").content())
    assert "sound" in cmfspec("verify", "--values", str(sound))


def test_verify_says_what_and_where(files: dict[str, str]) -> None:
    """0 sound, 1 damaged or refused."""
    assert "sound, 4 tensors" in cmfspec("verify", files["sound"])
    assert "tensor 0 at 0x1000: hash" in cmfspec("verify", files["damaged"], expect=1)
    assert "UnsupportedVersion: envelope.version at 0x4: found 1, wanted 2" in cmfspec(
        "verify", files["refused"], expect=1
    )
    assert "No such file" in cmfspec("verify", files["missing"], expect=1)
    assert json.loads(cmfspec("verify", "--json", files["damaged"], expect=1))["problems"][0]["where"] == "tensor"
    assert json.loads(cmfspec("verify", "--json", files["refused"], expect=1))["faults"][0]["rule"] == "VAL-004"


def test_inspect_shows_the_file(files: dict[str, str]) -> None:
    """For people and for machines."""
    output = cmfspec("inspect", files["sound"])
    assert "TENSOR_DIR, BINARY_MASKS, QUANT_2F" in output
    assert "lm_head.weight" in output
    described = json.loads(cmfspec("inspect", "--json", files["sound"]))
    assert [tensor["dtype"] for tensor in described["tensors"]] == ["f16", "q8_2f", "q4_block", "vbit"]
    assert cmfspec("inspect", files["refused"], expect=1)


def test_names_of_a_file_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in a tensor's name are shown, not obeyed."""
    path = tmp_path / "evil.cmf"
    path.write_bytes(File("tiny").edited("dir[0].name", b"\x1b[2Jgone\x07".hex()).content())
    output = cmfspec("inspect", str(path))
    assert "\x1b" not in output
    assert "\\x1b[2Jgone" in output


def test_rules_lists_all_of_them() -> None:
    """Tested, or untested and why."""
    rows = json.loads(cmfspec("rules", "--json"))
    assert len(rows) == 412
    assert set(rows[0]) >= {"id", "section", "level", "tier", "profile", "binds", "quote", "status", "because", "twins"}
    assert all(row["because"] for row in rows if row["status"] == "untested")
    assert all(
        row["twins"] for row in rows if row["status"] == "tested" and row["tier"] in ("LITERAL", "DERIVED", "FAMILY")
    )
    assert "ENV-026" in cmfspec("rules", "--area", "env")
    assert "wanted one of ENV" in cmfspec("rules", "--area", "nope", expect=2)


def test_explain_says_what_the_text_says() -> None:
    """The quote, the test, the ruling, the reports."""
    output = cmfspec("explain", "feat-001")
    assert "UnsupportedFeature" in output
    assert "features-as-u16" in output
    assert json.loads(cmfspec("explain", "ENV-015", "--json"))["bugs"]
    assert "ENV-001 to ENV-026" in cmfspec("explain", "ENV-999", expect=2)


def test_doctor_finds_what_is_wrong() -> None:
    """And says «ok» to each step where nothing is."""
    assert cmfspec("doctor").count("ok ") == 4
    assert "cannot run" in cmfspec("doctor", "--impl", "/nonexistent/x", expect=3)
    assert "fails at hello" in cmfspec("doctor", "--impl", "true", expect=1)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--impl", "a", "--argv", "open=b"], ["run", "--argv", "open"], ["run", "--argv", "nope=x"], ["run", "--tier", "x"],
        ["run", "--mem-limit", "lots"], ["run", "--profile", "x"], ["run", "-j", "0"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_word_is_a_usage_error(words: list[str]) -> None:
    """2, with a sentence; never a verdict."""
    assert "Error" in cmfspec(*words, expect=2)


def test_an_exception_of_ours_is_a_broken_run() -> None:
    """3, not 1: exit 1 says that a case failed."""
    script = "import runner.run, sys\ndef broken(**_): raise RuntimeError('boom')\nrunner.run.run_command = broken\nsys.argv = ['cmfspec', 'run']\nfrom runner.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "nothing above is a verdict" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_tab_completion(shell: str) -> None:
    """For the shells that click knows."""
    assert "_CMFSPEC_COMPLETE" in cmfspec("completion", shell)


def test_the_siblings_lie_beside_us() -> None:
    """A stranger's `runner` must not be run in our name."""
    assert stranger() is None
    script = "import sys, types, importlib.machinery as m, importlib.util as u\nreal = u.find_spec\nu.find_spec = lambda n: m.ModuleSpec(n, None, origin='/elsewhere/fuzz/__init__.py') if n == 'fuzz' else real(n)\nfrom cmfspec.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pipx install cmfspec" in done.stderr


def test_the_soak_profile_draws_afresh(tmp_path: Path) -> None:
    """Hypothesis fills; the seed decides."""
    stream = tmp_path / "soak.jsonl"
    cmfspec("run", "--profile", "soak", "--examples", "20", "-k", "ENV-02*", "--json", str(stream))
    cases = [json.loads(line) for line in stream.read_text().splitlines()][1:-1]
    assert {case["outcome"] for case in cases if case["tier"] != "OBSERVATION"} == {"PASS"}
    assert len(cases) > sum(1 for case in cases if "soak" in case["case"])


@pytest.mark.parametrize(
    ("words", "incomplete", "wanted"),
    [
        (["run", "-k"], "val-00", "VAL-001"),
        (["run", "--tier"], "lit", "LITERAL"),
        (["explain"], "FEAT-0", "FEAT-001"),
        (["report", "--format"], "ju", "junit"),
        (["run"], "--ba", "--baseline"),
    ],
)
def test_tab_completes_ids_and_names(words: list[str], incomplete: str, wanted: str) -> None:
    """Of rules, tiers, formats and options."""
    found = ShellComplete(cli, {}, "cmfspec", "_CMFSPEC_COMPLETE").get_completions(words, incomplete)
    assert wanted in [item.value for item in found]
