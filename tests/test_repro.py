"""`cmfspec repro` and `cmfspec minimize`: a failure comes back, smaller, and is never another one."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cmfspec
import runner.target
from cmfspec.contract.protocol import Nothing, Reply
from cmfspec.contract.reference import reference
from cmfspec.format.build import render
from conformance.twins import TWINS
from fuzz.minimize import minimize_bytes, runs, without_tensors
from fuzz.mutations import MUTATIONS
from golden.files import File
from golden.recipes import entry, recipe
from runner.cli import cli
from tests.processes import left_over

JUDGED = Path(__file__).parent / "hostile" / "judged.py"


def run(*words: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, [str(word) for word in words])


def judged(vice: str) -> str:
    """The command of a reader with a vice."""
    return shlex.join([sys.executable, str(JUDGED), vice])


def be_twin(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the embedded reference be this twin."""
    twin = next(twin for twin in TWINS if twin.name == name)
    monkeypatch.setattr(runner.target, "reference", lambda: reference(twin.parts))


def left_by(tmp_path: Path, *words: str) -> Path:
    """The first folder that a run leaves."""
    done = run("run", *words, "--out", tmp_path / "out")
    assert done.exit_code == 1, done.output
    return sorted(path for path in (tmp_path / "out").iterdir())[0]


def faults(path: Path) -> set[str]:
    """The rules that a file breaks."""
    return {fault.rule for fault in cmfspec.faults(path)}


# --- repro ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vice", "outcome"), {"dies": "CRASH", "raises": "ERROR", "accepts_all": "WRONG_ACCEPT"}.items()
)
def test_a_folder_fails_again_in_the_same_way(tmp_path: Path, vice: str, outcome: str) -> None:
    """And passes when somebody else is asked."""
    folder = left_by(tmp_path, "--impl", judged(vice), "-k", "VAL-004")
    again = run("repro", folder, "--impl", judged(vice))
    assert again.exit_code == 1, again.output
    assert f"{outcome}: still fails, in the same way" in again.output
    found = json.loads(run("repro", folder, "--impl", judged(vice), "--json").output)
    assert (found["rule"], found["was"], found["outcome"]) == ("VAL-004", outcome, outcome)
    done = run("repro", folder)
    assert done.exit_code == 0
    assert "asked of the embedded reference" in done.output
    assert f"no longer fails; it was {outcome}" in done.output


def test_a_folder_that_fails_in_another_way_says_so(tmp_path: Path) -> None:
    """Still no."""
    folder = left_by(tmp_path, "--impl", judged("dies"), "-k", "VAL-004")
    again = run("repro", folder, "--impl", judged("only_warns"))
    assert again.exit_code == 1
    assert "in another way: it was CRASH" in again.output


def test_what_is_not_judged_again_is_not_mended(tmp_path: Path) -> None:
    """A skip is not a pass; nor is one case alone, where it took several."""
    folder = left_by(tmp_path, "--impl", judged("unsupported"), "-k", "HASH-003")
    done = run("repro", folder, "--impl", judged("declares_little"))
    assert done.exit_code == 3
    assert "NOT_APPLICABLE: not judged" in done.output
    case = json.loads((folder / "case.json").read_text())
    (folder / "case.json").write_text(json.dumps(case | {"outcome": "STATE_LEAK"}))
    done = run("repro", folder)
    assert done.exit_code == 3
    assert "proves nothing" in done.output
    (folder / "sequence.txt").write_text(f"{case['case']}\n")
    assert "--sequence" in run("repro", folder).output


def test_nobody_who_cannot_be_asked_passes(tmp_path: Path) -> None:
    """1 where the plainest file fails, 3 where there is no program."""
    folder = left_by(tmp_path, "--impl", judged("accepts_all"), "-k", "VAL-004")
    assert run("repro", folder, "--impl", judged("refuses_all")).exit_code == 1
    assert run("repro", folder, "--impl", "/nonexistent/reader").exit_code == 3


FEATURE = {"file": {"recipe": "plain"}, "bit": 9}
BROKEN: dict[str, Any] = {
    "empty": b"",
    "no-json": b'{\n"case": FEAT',
    "no-utf-8": b"\xff\xfe{",
    "deep": b"[" * 200000,
    "list": b"[]",
    "nothing": {},
    "no-args": {"case": "FEAT-001/00000000"},
    "other-types": {"case": 5, "args": [], "outcome": {}},
    "no-such-rule": {"case": "XXX-\x1b[2J1/00000000", "args": {}},
    "untested-rule": {"case": "FEAT-003/00000000", "args": {}},
    "one-less": {"case": "FEAT-001/0", "args": {"bit": 9}},
    "one-more": {"case": "FEAT-001/0", "args": {**FEATURE, "zzz\x1b": 1}},
    "no-recipe": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "nope"}}},
    "odd-recipe": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": 7}}},
    "half-recipe": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": '{"tensors":[{}]}'}}},
    "odd-edits": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [1]}}},
    "no-such-edit": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [["zzz", 1]]}}},
    "huge-tail": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [["tail", 10**15]]}}},
    "huge-gap": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [["gap.dir", 2**62]]}}},
    "huge-payload": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [["payload[0].size", {"plus": 2**60}]]}}},
    "many-payloads": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [["data.order", [0, 0, 0]]]}}},
    "long-order": {"case": "FEAT-001/0", "args": {**FEATURE, "file": {"recipe": "plain", "edits": [["order", ["data"] * 99]]}}},
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_strangers_folder_makes_a_usage_error(tmp_path: Path, name: str) -> None:
    """2, with the file and what was wanted; nothing else leaves, and no terminal is driven."""
    content = BROKEN[name]
    (tmp_path / "case.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    done = run("repro", tmp_path)
    assert done.exit_code == 2, (done.output, done.exception)
    assert "case.json" in done.output
    assert "\x1b" not in done.output


def test_arguments_that_nobody_would_draw_are_a_broken_run(tmp_path: Path) -> None:
    """3: nothing was judged."""
    row = {"case": "FEAT-001/0", "args": {**FEATURE, "bit": "nine"}}
    (tmp_path / "case.json").write_text(json.dumps(row))
    done = run("repro", tmp_path)
    assert done.exit_code == 3
    assert "can't be asked this" in done.output


def test_a_folder_with_files_missing_says_which(tmp_path: Path) -> None:
    """And what can still be done with it."""
    folder = left_by(tmp_path, "--impl", judged("accepts_all"), "-k", "VAL-004")
    for name in ("request.json", "reply.json", "README.md"):
        (folder / name).unlink()
    assert run("repro", folder, "--impl", judged("accepts_all")).exit_code == 1
    (folder / "case.json").unlink()
    done = run("repro", folder)
    assert done.exit_code == 2
    assert "minimize" in done.output
    assert run("repro", tmp_path / "none").exit_code == 2


# --- minimize ------------------------------------------------------------------------------------------------------


def minimized(tmp_path: Path, content: bytes, *words: object) -> tuple[Result, Path]:
    """(what the command says, where the smaller file would be)."""
    (tmp_path / "big.cmf").write_bytes(content)
    out = tmp_path / "small.cmf"
    return run("minimize", tmp_path / "big.cmf", "-o", out, *words), out


def test_a_file_that_is_wrongly_accepted_gets_small_and_stays_wrong(tmp_path: Path) -> None:
    """One tensor, no section, no field of the header; the one fault is there."""
    content = File("full").edited("dir[3].ndim", 9).edited("tail", 5000).content()
    done, out = minimized(tmp_path, content, "--impl", judged("accepts_all"))
    assert done.exit_code == 0, done.output
    assert "WRONG_ACCEPT at open" in done.output
    assert faults(out) == {"VAL-009"}
    assert out.stat().st_size < 4400 < len(content)
    assert run("run", "--impl", judged("accepts_all"), "-k", "VAL-009", "--out", tmp_path / "out").exit_code == 1


def test_a_file_that_is_wrongly_refused_gets_small_and_stays_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A valid file whose sections lie in another order."""
    be_twin(monkeypatch, "sections-in-order")
    order = ["header", "dir", "data", "vocab", "index", "masks"]
    content = File("full").edited("order", order).content()
    done, out = minimized(tmp_path, content)
    assert done.exit_code == 0, done.output
    assert "WRONG_REJECT at open" in done.output
    assert faults(out) == set()
    assert len(cmfspec.open(out).sections) == 2
    assert len(cmfspec.open(out)) < len(cmfspec.open(content))


def test_wrong_values_keep_their_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all encodings one is decoded wrongly; its tensor is what is left."""
    honest = reference()

    def wrong(request: Any) -> Any:
        reply = honest(request)
        if request.op == "tensor" and reply.status == "ok":
            opened = cmfspec.open(request.file)
            if opened[request.index].dtype_name == "q4_block":
                raw = bytearray(Path(request.out).read_bytes())
                Path(request.out).write_bytes(raw[4:] + raw[:4])
        return reply

    monkeypatch.setattr(runner.target, "reference", lambda: wrong)
    done, out = minimized(tmp_path, File("full").content())
    assert done.exit_code == 0, done.output
    assert "WRONG_VALUE at tensor" in done.output
    assert [tensor.dtype_name for tensor in cmfspec.open(out)] == ["q4_block"]


def test_a_payload_that_lies_and_is_decoded_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file opens; what our reader refuses is one tensor of it."""
    honest = reference()

    def gullible(request: Any) -> Any:
        reply = honest(request)
        if request.op == "tensor" and reply.status == "refused":
            Path(request.out).write_bytes(b"")
            return Reply("ok", Nothing())
        return reply

    monkeypatch.setattr(runner.target, "reference", lambda: gullible)
    lie = next(mutation for mutation in MUTATIONS.values() if mutation.index is not None)
    done, out = minimized(tmp_path, lie.file.content(), "--json")
    assert done.exit_code == 0, done.output
    row = json.loads(done.output)
    assert (row["outcome"], row["op"], row["about"]) == ("WRONG_ACCEPT", "tensor", [lie.breaks])
    assert faults(out) == set()


def test_damage_that_is_not_found_stays_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verify says sound of a file that is not."""
    be_twin(monkeypatch, "first-tensor-only")
    content = File("full").edited("dir[2].hash", 1).content()
    done, out = minimized(tmp_path, content, "--json")
    assert done.exit_code == 0, done.output
    row = json.loads(done.output)
    assert (row["outcome"], row["op"], row["about"]) == ("WRONG_ACCEPT", "verify", ["tensor"])
    assert (row["before"], row["after"]) == (len(content), out.stat().st_size)
    opened = cmfspec.open(out)
    assert [problem.where for problem in cmfspec.verify(opened)] == ["tensor"]
    assert len(opened) == 2


@pytest.mark.parametrize(("vice", "outcome"), {"dies": "CRASH", "hangs": "TIMEOUT"}.items())
def test_a_crash_and_a_hang_stay_what_they_are(tmp_path: Path, vice: str, outcome: str) -> None:
    """Within the few trials that each may cost; nothing is left running."""
    content = File("full").edited("envelope.version", 1).content()
    done, out = minimized(tmp_path, content, "--impl", judged(vice), "--timeout-scale", "0.1", "--trials", "8")
    assert done.exit_code == 0, done.output
    assert f"{outcome} at open" in done.output
    assert out.stat().st_size < len(content)
    assert left_over(vice) == []


def test_a_file_without_an_envelope_is_made_smaller_byte_by_byte(tmp_path: Path) -> None:
    """Bytes last: where there is no blueprint they come first."""
    done, out = minimized(tmp_path, b"CMF\x01" + bytes(range(90)), "--impl", judged("accepts_all"))
    assert done.exit_code == 0, done.output
    assert faults(out) == {"ENV-001"}
    assert out.stat().st_size <= 1


def test_a_file_of_many_tensors_loses_them_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one by one: trials are few."""
    be_twin(monkeypatch, "any-data-off")
    many = tuple(entry(f"w.{number}", "f16", (32,)) for number in range(1500))
    blueprint = recipe("plain")
    content = render(type(blueprint)(blueprint.header, many), (("tail", 8192), ("envelope.data_off", {"plus": 64})))
    done, out = minimized(tmp_path, content, "--trials", "60")
    assert done.exit_code == 0, done.output
    assert faults(out) == {"ENV-017"}
    assert out.stat().st_size < len(content) / 10


def test_what_is_judged_rightly_is_no_failure(tmp_path: Path) -> None:
    """1, and nothing is written: valid, invalid, or such that the text leaves it open."""
    for file in (File("full"), File("plain").edited("envelope.version", 3), File("plain").edited("features", 0)):
        done, out = minimized(tmp_path, file.content())
        assert done.exit_code == 1, done.output
        assert "not misjudged" in done.output
        assert not out.exists()


def test_what_hello_does_not_declare_may_be_refused(tmp_path: Path) -> None:
    """A file that needs a feature beyond the reader; and one beyond the text, for a reader beyond it."""
    content = File("plain").with_feature_bit(9).content()
    done, out = minimized(tmp_path, content, "--impl", judged("declares_little"))
    assert done.exit_code == 1
    assert not out.exists()


def test_the_same_only_once_is_not_made_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance has no smaller file."""
    honest, asked = reference(), []

    def moody(request: Any) -> Any:
        asked.append(request.op)
        if request.op == "open" and asked.count("open") == 2:  # the first is the preflight's
            raise ValueError("mood")
        return honest(request)

    monkeypatch.setattr(runner.target, "reference", lambda: moody)
    done, out = minimized(tmp_path, File("plain").content())
    assert done.exit_code == 1
    assert "not twice the same" in done.output
    assert not out.exists()


def test_files_that_cannot_be_read_or_written_are_usage_errors(tmp_path: Path) -> None:
    """2, before anything is asked where that can be known."""
    assert run("minimize", tmp_path / "none.cmf").exit_code == 2
    assert run("minimize", tmp_path).exit_code == 2
    huge = tmp_path / "huge.cmf"
    with huge.open("wb") as file:
        file.truncate(2**40)
    done = run("minimize", huge)
    assert done.exit_code == 2
    assert "wanted at most" in done.output
    done, _ = minimized(tmp_path, b"x", "-o", tmp_path / "big.cmf")
    assert done.exit_code == 2
    assert (tmp_path / "big.cmf").read_bytes() == b"x"
    assert minimized(tmp_path, b"x", "--impl", judged("accepts_all"), "-o", tmp_path / "no" / "x.cmf")[0].exit_code == 2
    assert minimized(tmp_path, b"x", "--impl", "/nonexistent/reader")[0].exit_code == 3


# --- the minimiser -------------------------------------------------------------------------------------------------


def test_bytes_are_cut_and_then_emptied() -> None:
    """What matters stays in its order; what can't go becomes zero."""
    content = bytes(range(1, 200))

    def still(candidate: bytes) -> bool:
        return len(candidate) >= 10 and 7 in candidate and 190 in candidate

    small = minimize_bytes(content, still, trials=1000)
    assert len(small) == 10
    assert sorted(small)[-2:] == [7, 190]
    assert small.count(0) == 8


def test_bytes_keep_within_their_trials() -> None:
    """Each may be a hang."""
    asked: list[bytes] = []
    content = bytes(range(256))
    assert minimize_bytes(content, lambda candidate: bool(asked.append(candidate)), trials=9) == content
    assert len(asked) == 9
    assert minimize_bytes(b"", lambda _: True) == b""
    assert len(minimize_bytes(content, lambda _: True)) <= 1


def test_edits_follow_their_tensors() -> None:
    """Those of the tensors that go, go; the others move up."""
    edits = (("dir[0].off", 1), ("dir[2].off", 2), ("dir[5].name", "61"), ("tail", 3))
    assert without_tensors(edits, 1, 4) == (("dir[0].off", 1), ("dir[2].name", "61"), ("tail", 3))
    edits = (("payload[3].size", 1), ("payload[4]@2", "00"), ("data.gap[4]", 64), ("data.order", [4, 3, 0]))
    kept = (("payload[3]@2", "00"), ("data.gap[3]", 64), ("data.order", [3, 0]))
    assert without_tensors(edits, 3, 4) == kept
    assert [*runs(5)] == [(3, 5), (1, 3), (0, 1), (4, 5), (3, 4), (2, 3), (1, 2), (0, 1)]
    assert [*runs(0)] == []
