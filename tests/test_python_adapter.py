"""A Python class as an implementation: its lies are seen, its exceptions are what was declared, and no more is asked of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cmfspec.codecs import CODECS
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.protocol import decode_line
from cmfspec.errors import InvalidMagic, Refusal
from cmfspec.layout import IMPLEMENTED_FEATURES
from golden.files import File
from runner.adapters.python.wrapper import Wrapped, wrapped
from runner.cli import cli
from tests import readers
from tests.adapters import HOME

ROOT = Path(__file__).resolve().parent.parent
ADAPTER = (sys.executable, "-m", "runner.adapters.python")
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`cmfspec run` on a class of tests/readers.py: the footer, with the graded outcomes as `seen`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def judge(reader: str, *options: str) -> dict[str, Any]:
        impl = shlex.join([*ADAPTER, f"tests.readers:{reader}", "--refusal", "cmfspec:Refusal"])
        stream = tmp_path / "results.jsonl"
        words = ["run", "--impl", impl, "--json", str(stream), "--out", str(tmp_path / "out"), *options]
        result = CliRunner().invoke(cli, words)
        lines = [json.loads(line) for line in stream.read_text().splitlines()]
        assert result.exit_code == bool(lines[-1]["failed_rules"] or lines[-1]["stopped"]), result.output
        cases = [line for line in lines if line["type"] == "case"]
        return {**lines[-1], "seen": {case["outcome"] for case in cases}, "output": result.output}

    return judge


def test_our_own_reader_passes_all_that_it_declares(run: Run) -> None:
    """Wrapped by its Python interface, it is the reader that it is."""
    footer = run("Ours")
    assert footer["conformant"] is True
    assert footer["rules"]["failed"] == 0
    assert footer["rules"]["passed"] >= 30
    assert footer["seen"] == {"PASS", "OBSERVED", "NOT_APPLICABLE"}


def test_a_mapping_names_of_dtypes_and_lists_of_doubles_are_as_good(run: Run) -> None:
    """The class may say the same in other words."""
    footer = run("AsMapping", "--profile", "smoke", "-k", "ENV-0*")
    assert footer["failed_rules"] == []
    assert footer["rules"]["passed"] >= 10


# class: (a rule that it breaks, as which outcome, a rule that it keeps)
WRONG = {
    "LaxAboutFeatures": ("FEAT-001", "WRONG_ACCEPT", "VAL-005"),
    "RaisesAnything": ("VAL-004", "ERROR", "ENV-008"),
    "OffByOne": ("ENV-008", "WRONG_VALUE", "VAL-004"),
    "Mislabelled": ("VAL-004", "WRONG_REASON", "ENV-008"),
}


@pytest.mark.parametrize("reader", WRONG)
def test_a_class_with_a_fault_fails_the_rule_that_it_breaks(run: Run, reader: str) -> None:
    """And passes one that it doesn't."""
    broken, outcome, kept = WRONG[reader]
    footer = run(reader, "-k", broken)
    assert footer["failed_rules"] == [broken]
    assert outcome in footer["seen"]
    footer = run(reader, "-k", kept, "--cap", "3")
    assert footer["failed_rules"] == []
    assert footer["rules"]["passed"] == 1


def test_values_that_are_no_floats_fail_before_any_rule(run: Run) -> None:
    """The imaginary part isn't dropped in silence."""
    footer = run("Complex")
    assert footer["stopped"] == "preflight: tensor"
    assert "TypeError" in footer["output"]


@pytest.fixture
def link() -> Iterator[Callable[..., InProcess]]:
    """A class of tests/readers.py, wrapped in this process."""
    made: list[InProcess] = []

    def wrap(reader: Any, *refusals: type[Exception]) -> InProcess:
        made.append(InProcess(wrapped(Wrapped("it", reader, refusals, IMPLEMENTED_FEATURES, tuple(CODECS)))))
        return made[-1]

    yield wrap
    for process in made:
        process.close()


def test_it_declares_what_the_class_can_answer(link: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The list of tensors only where the entries can be listed; stderr says why not."""
    assert link(readers.Ours, Refusal).hello.forms == ["f32"]
    assert link(readers.Ours, Refusal).hello.operations == ["hello", "ping", "open", "tensors", "tensor", "bye"]
    assert capfd.readouterr().err == ""
    assert link(readers.NamesOnly, Refusal).hello.operations == ["hello", "ping", "open", "tensor", "bye"]
    assert "an entry has no dtype, shape, off, nbytes, hash" in capfd.readouterr().err


def test_it_has_kinds_if_a_declared_exception_is_named_like_one(link: Any) -> None:
    """An exception's class, or one derived from it, says the kind by its name."""
    assert link(readers.Ours, Refusal).hello.kinds is True
    assert link(readers.Ours, OSError).hello.kinds is False
    newer = link(readers.Ours, Refusal)
    reply = newer.ask("open", newer.place(File("tiny").edited("envelope.version", 3).content()))
    assert (reply.status, reply.kind) == ("refused", "UnsupportedVersion")
    assert "envelope.version" in reply.message


def test_only_a_declared_exception_is_a_refusal(link: Any) -> None:
    """The others are errors, with the exception's name."""
    narrow = link(readers.Ours, InvalidMagic)
    assert narrow.ask("open", narrow.place(b"no magic" * 32)).kind == "InvalidMagic"
    reply = narrow.ask("open", narrow.place(File("tiny").edited("envelope.version", 3).content()))
    assert reply.status == "error"
    assert "UnsupportedVersion" in reply.message


def test_a_refusal_without_a_kind_of_its_own_is_other(link: Any) -> None:
    """Such as a path at which nothing lies."""
    other = link(readers.Ours, Refusal)
    assert other.ask("open", "/nowhere/at-all").kind == "Other"


def test_it_answers_for_names_indices_and_nothing_else(link: Any) -> None:
    """An index past the end is an error, a raw payload is not asked for."""
    ours = link(readers.Ours, Refusal)
    path = ours.place(File("full").content())
    assert ours.ask("open", path).value.tensors == 4
    out = ours.new_out()
    assert ours.ask("tensors", path, out=out).status == "ok"
    lines = [decode_line(line) for line in Path(out).read_bytes().splitlines()]
    assert [line.name for line in lines] == [entry.name for entry in File("full").tensors]
    assert ours.ask("tensor", path, index=4, form="f32", out=ours.new_out()).status == "error"
    assert ours.ask("tensor", path, index=0, form="raw", out=ours.new_out()).status == "unsupported"
    assert ours.ask("verify", path).status == "unsupported"
    assert str(ROOT / "tests" / "readers.py") in ours.hello.artifacts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tests.readers"], "wanted package.module:Name"),
        (["no.such.module:Reader"], "No module named"),
        (["tests.readers:Nobody"], "no attribute 'Nobody'"),
        (["tests.readers:NOT_A_CLASS"], "is a int, wanted a class"),
        (["tests.readers:Ours", "--refusal", "tests.readers:Ours"], "wanted a class of exceptions"),
        (["tests.readers:Ours", "--refusal", "tests.readers:Nobody"], "no attribute 'Nobody'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_name_is_a_usage_error(words: list[str], said: str) -> None:
    """2, before any reply, with a sentence on stderr."""
    done = subprocess.run([*ADAPTER, *words], cwd=ROOT, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_readers_toy_works_as_its_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times ok; and it is told that it accepts what it should refuse."""
    readme = (HOME / "python" / "README.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "toy.py").write_text(code[0])
    (options,) = re.findall(r"cmfspec doctor --impl 'python (.*)'", readme)
    impl = f"{sys.executable} {options}"
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    doctor = CliRunner().invoke(cli, ["doctor", "--impl", impl])
    assert (doctor.exit_code, doctor.output.count("ok ")) == (0, 4)
    for rule, exit_code in (("VAL-001", 1), ("ENV-008", 0), ("ENV-002", 0)):
        judged = CliRunner().invoke(cli, ["run", "--impl", impl, "-k", rule, "--out", str(tmp_path / "out")])
        assert judged.exit_code == exit_code, judged.output
