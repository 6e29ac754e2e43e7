"""`cmfspec fuzz` and `cmfspec corpus`: what is wrong is found once, made small, kept, and goes on from where it was."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import cmfspec
import golden.cases
import golden.make
from bench.planted import BUGS, planted
from cmfspec.errors import Fault
from fuzz import corpus, dictionary
from fuzz.structure import FIELDS, part
from runner import finds, fuzzing, silence
from runner.cli import cli
from runner.corpuscmd import as_arguments
from runner.leftover import marked
from runner.misjudged import Misjudged
from runner.run import target_of
from tests.adapters import built
from tests.processes import MARK, left_over

JUDGED = Path(__file__).parent / "hostile" / "judged.py"
OPTIONS: dict[str, Any] = {
    "impl": None, "argv": (), "refuse_exit": (), "feature": (), "dtype": (), "timeout_scale": 1.0, "mem_limit": "2048",
}  # fmt: skip


def run(*words: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, [str(word) for word in words])


def judged(vice: str) -> str:
    """The command of a reader with a vice."""
    return shlex.join([sys.executable, str(JUDGED), vice])


def fuzzed(out: Path, vice: str, *words: object) -> dict[str, Any]:
    """A campaign of at most a minute against a reader with a vice, as it reports itself."""
    done = run("fuzz", "--impl", judged(vice), "--out", out, "-j", 1, "--time", "60s", "--json", *words)
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == bool(told["finds"]), done.output
    return told


# --- the campaign ------------------------------------------------------------------------------------------------


def test_an_honest_reader_is_not_accused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seeds and by mutants of them; and nothing of it is left running."""
    resource_tracker.ensure_running()  # which lives as long as this process
    monkeypatch.setenv(MARK, word := uuid.uuid4().hex)
    told = fuzzed(tmp_path / "c", "honest", "--executions", 300)
    assert told["finds"] == []
    assert told["executions"] >= 300
    assert told["accepted"] > len(corpus.shipped()) / 2
    assert told["novel"] > 0
    assert left_over(word) == []


@pytest.mark.parametrize(
    ("vice", "outcome"), {"accepts_all": "WRONG_ACCEPT", "dies": "CRASH", "raises": "ERROR"}.items()
)
def test_a_vice_is_found_and_made_small(tmp_path: Path, vice: str, outcome: str) -> None:
    """The folder has the file, what is wrong with it, and a line that judges it alone."""
    told = fuzzed(tmp_path / "c", vice, "--max-finds", 1)
    find = next(find for find in told["finds"] if find["outcome"] == outcome)
    folder = Path(find["folder"])
    file = folder / finds.FILE
    assert file.stat().st_size == find["size"] < 4096 + 1024
    assert {fault.rule for fault in cmfspec.faults(file)} == set(find["rules"])
    assert (folder / finds.ORIGINAL).is_file()
    assert f"cmfspec minimize {file}" in (folder / finds.NOTE).read_text()
    again = run("minimize", file, "--impl", judged(vice), "-o", tmp_path / "m.cmf", "--json")
    assert json.loads(again.stdout)["outcome"] == outcome


def test_one_bug_is_one_find(tmp_path: Path) -> None:
    """However many files show it."""
    told = fuzzed(tmp_path / "c", "raises", "--executions", 400)
    assert len(told["finds"]) == 1
    assert told["repeated"] > 20


def test_what_fails_only_after_others_is_no_find(tmp_path: Path) -> None:
    """It is counted, and told."""
    told = fuzzed(tmp_path / "c", "remembers", "--executions", 200)
    assert told["finds"] == []
    assert told["unconfirmed"] > 0


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    """Finds, counts and inputs of the run before are there, and other inputs are tried."""
    out = tmp_path / "c"
    first = fuzzed(out, "raises", "--executions", 80)
    kept = {path.name for path in (out / fuzzing.CORPUS).iterdir()}
    second = fuzzed(out, "raises", "--executions", 80)
    assert second["runs"] == first["runs"] + 1 == 2
    assert second["executions"] > first["executions"]
    assert [find["signature"] for find in second["finds"]] == [find["signature"] for find in first["finds"]]
    assert kept <= {path.name for path in (out / fuzzing.CORPUS).iterdir()}


def test_another_implementation_needs_another_folder(tmp_path: Path) -> None:
    """Its finds would be taken for the first one's."""
    fuzzed(tmp_path / "c", "honest", "--executions", 5)
    done = run("fuzz", "--impl", judged("raises"), "--out", tmp_path / "c", "--time", "1s")
    assert done.exit_code == 2
    assert "another" in done.output


def test_who_cannot_be_started_is_a_broken_run(tmp_path: Path) -> None:
    """And who does not answer the plainest questions has failed."""
    assert run("fuzz", "--impl", "/nonexistent/reader", "--out", tmp_path / "c", "--time", "1s").exit_code == 3
    assert run("fuzz", "--impl", judged("refuses_all"), "--out", tmp_path / "d", "--time", "1s").exit_code == 1


def test_an_exception_of_our_own_is_a_broken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the file that made it is kept."""
    path = fuzzing._ours(("broken", "Traceback", b"CMF"), tmp_path)
    assert "our own reader broke on" in path
    assert [file.read_bytes() for file in (tmp_path / fuzzing.OURS).iterdir()] == [b"CMF"]
    monkeypatch.setattr(fuzzing, "_campaign", lambda *_: "Traceback")
    assert run("fuzz", "--out", tmp_path / "c", "--time", "1s").exit_code == 3


def test_nothing_executed_is_a_broken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero files is no success."""
    monkeypatch.setattr(fuzzing, "_campaign", lambda *_: "")
    done = run("fuzz", "--out", tmp_path / "c", "--time", "1s")
    assert done.exit_code == 3
    assert "nothing was executed" in done.output


def test_a_campaign_that_is_killed_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers see that they are alone."""
    monkeypatch.setenv(MARK, word := uuid.uuid4().hex)
    words = ["fuzz", "--impl", judged("honest"), "--out", str(tmp_path / "c"), "--time", "60s", "-j", "1"]
    campaign = subprocess.Popen([sys.executable, "-m", "cmfspec", *words], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 40
    while not any((tmp_path / "c").glob("corpus/*")) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(marked(f"{MARK}={word}")) > 1
    campaign.kill()
    campaign.wait()
    assert left_over(word, 30) == []


@pytest.mark.parametrize("text", ["", "x", "10", "-3s", "1w", "0s", "1 0m", "nan"])
def test_a_time_is_a_number_and_a_unit(text: str) -> None:
    """Anything else is a usage error, not for ever."""
    if text == "10":
        assert fuzzing.seconds_of(text) == 10.0
        return
    assert run("fuzz", "--time", text).exit_code == 2


def test_a_field_that_does_not_exist_cannot_be_left_out() -> None:
    """Else the experiment would be another one than its author believes."""
    done = run("fuzz", "--without", "dir.kount", "--time", "1s")
    assert done.exit_code == 2
    assert "dir.count" in done.output


# --- a campaign's folder is a stranger's text ----------------------------------------------------------------------

GARBAGE = [b"", b"{", b"[]", b'{"runs": "x"}', b"\xff\xfe", b"[" * 100_000, b'{"runs": -1}', b"null"]


@pytest.mark.parametrize("raw", GARBAGE)
def test_a_campaign_file_that_is_garbage_is_named(tmp_path: Path, raw: bytes) -> None:
    """With what was wanted."""
    (tmp_path / fuzzing.STATE).write_bytes(raw)
    done = run("fuzz", "--out", tmp_path, "--time", "1s")
    assert done.exit_code == 2, done.output
    assert fuzzing.STATE in done.output
    assert "wanted" in done.output


@pytest.mark.parametrize("raw", [*GARBAGE, b'{"signature": 1}', b'{"signature": "\\u001b[2J"}'])
def test_a_find_that_is_garbage_is_named(tmp_path: Path, raw: bytes) -> None:
    """Rather than taken for one that is known."""
    (tmp_path / fuzzing.STATE).write_text(json.dumps(fuzzing.State("").row()))
    home = tmp_path / finds.FINDINGS / "X"
    home.mkdir(parents=True)
    (home / finds.RECORD).write_bytes(raw)
    done = run("fuzz", "--out", tmp_path, "--time", "1s")
    assert done.exit_code == 2, done.output
    assert finds.RECORD in done.output
    assert "\x1b" not in done.output


# --- what makes two finds one --------------------------------------------------------------------------------------

ASAN = """==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000{0} at pc 0x55d{0} bp 0x7f
    #0 0x55d{0} in model_tensor container.c:142
    #1 0x55e{0} in names container.c:16{0}
    #2 0x55f{0} in directory container.c:188
"""


def told(outcome: str, got: str = "", stderr: str = "", about: str = "invalid") -> Misjudged:
    """Something misjudged."""
    return Misjudged(outcome, "open", frozenset({about}), "", got, stderr)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (told("CRASH", stderr=ASAN.format(1)), told("CRASH", stderr=ASAN.format(2)), True),
        (told("CRASH", stderr=ASAN.format(1)), told("CRASH", stderr=ASAN.replace("model_tensor", "hash64")), False),
        (told("ERROR", "open: error 'at 12'"), told("ERROR", "open: error 'at 7'"), True),
        (told("ERROR", stderr="thread 'main' panicked at src/a.rs:7:1:"), told("ERROR", stderr="thread 'main' (8) panicked at src/a.rs:7:9:"), True),
        (told("ERROR", stderr="thread 'main' panicked at src/a.rs:7:1:"), told("ERROR", stderr="thread 'main' panicked at src/a.rs:9:1:"), False),
        (told("WRONG_ACCEPT", "open: accepted", about="VAL-005"), told("WRONG_ACCEPT", "x", about="VAL-005"), True),
        (told("WRONG_ACCEPT", about="VAL-005"), told("WRONG_ACCEPT", about="VAL-006"), False),
        (told("CRASH", "killed by SIGSEGV"), told("CRASH", "killed by SIGABRT"), False),
    ],
)  # fmt: skip
def test_the_same_stack_is_the_same_find(left: Misjudged, right: Misjudged, same: bool) -> None:
    """Numbers and addresses aside."""
    assert (finds.signature(finds.tagged(left, ())) == finds.signature(finds.tagged(right, ()))) is same


def test_a_death_without_words_is_told_by_the_fault_of_the_file() -> None:
    """It is all there is."""
    faults = [Fault("Bounds", rule, "", 0, "", "") for rule in ("VAL-005", "VAL-006")]
    names = {finds.signature(finds.tagged(told("CRASH", "killed by SIGSEGV"), [fault])) for fault in faults}
    assert len(names) == 2


def test_a_rule_that_goes_unheeded_explains_files_that_break_others_too() -> None:
    """Lest each pair of rules be a find."""
    both = replace(told("WRONG_ACCEPT"), about=frozenset({"VAL-005", "DIR-019"}))
    assert finds.subsumed(both, {finds.signature(told("WRONG_ACCEPT", about="DIR-019"))})
    assert not finds.subsumed(both, {finds.signature(told("WRONG_ACCEPT", about="VAL-007"))})
    assert not finds.subsumed(told("CRASH"), {"CRASH | other"})


def test_a_smaller_file_takes_the_place_of_a_larger_one(tmp_path: Path) -> None:
    """And never the other way round."""
    find = finds.Find("s", "CRASH", "open", ("s",), (), "", "", "", 9, 1, 1.0)
    home = finds.write(tmp_path, find, b"123456789", b"o", "")
    finds.write(tmp_path, replace(find, size=3), b"123", b"o", "")
    finds.write(tmp_path, find, b"123456789", b"o", "")
    assert (home / finds.FILE).read_bytes() == b"123"
    assert [each.size for each in finds.read(tmp_path)] == [3]


# --- where the text is silent --------------------------------------------------------------------------------------


def test_a_refusal_of_a_seed_is_never_excused() -> None:
    """The seeds are valid beyond doubt, but those that are of an open rule themselves."""
    refused = [content for content in corpus.shipped() if not silence.excused(told("WRONG_REJECT"), content)]
    assert len(refused) > len(corpus.shipped()) / 2


def test_a_crash_is_never_excused() -> None:
    """Nor is a wrong value."""
    for content in corpus.shipped():
        for outcome in ("CRASH", "TIMEOUT", "ERROR", "WRONG_VALUE", "RESOURCE", "PROTOCOL"):
            assert not silence.excused(told(outcome), content)


# --- seeds, corpus, promotion --------------------------------------------------------------------------------------


def test_the_stored_seeds_are_those_that_would_be_made() -> None:
    """Deterministic, small, and named by their content."""
    stored = corpus.stored()
    assert stored == corpus.wanted()
    assert sum(map(len, stored.values())) <= corpus.LARGEST


def test_the_seeds_show_every_section_encoding_and_feature() -> None:
    """And no two show the same."""
    opened = [cmfspec.open(content) for content in corpus.shipped()]
    from cmfspec.codecs import CODECS
    from cmfspec.layout import IMPLEMENTED_FEATURES, OPTIONAL

    assert {section for file in opened for section in file.sections} == set(OPTIONAL)
    assert {tensor.dtype for file in opened for tensor in file} >= set(CODECS)
    bits = {bit for file in opened for bit in range(32) if file.view.envelope["required_features"] >> bit & 1}
    assert bits == set(IMPLEMENTED_FEATURES)


def test_what_stands_beside_a_seed_is_what_our_reader_says() -> None:
    """Its expectation is checked anew."""
    rows = [json.loads(line) for line in (corpus.HOME / corpus.INDEX).read_text().splitlines()]
    assert [row["expect"] for row in rows] == [corpus.expectation(content) for content in corpus.shipped()]
    assert corpus.expectation(b"")["accepted"] is False


def test_seeds_go_out_and_only_what_is_new_comes_in(tmp_path: Path) -> None:
    """With a dictionary that AFL++ and libFuzzer take."""
    done = run("corpus", "export", tmp_path / "out", "--dict", tmp_path / "cmf.dict")
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "out").iterdir())) == len(set(corpus.shipped()))
    (tmp_path / "out" / "crash-1").write_bytes(corpus.shipped()[0][:100])
    (tmp_path / "out" / "empty").write_bytes(b"")
    done = run("corpus", "import", tmp_path / "out", "--out", tmp_path / "c")
    assert "1 of them new" in done.output
    assert [path.read_bytes() for path in (tmp_path / "c" / fuzzing.CORPUS).iterdir()] == [corpus.shipped()[0][:100]]
    assert run("corpus", "export", tmp_path / "o2", "--campaign", tmp_path / "c").exit_code == 0
    assert run("corpus", "export", tmp_path / "o3", "--campaign", tmp_path / "o2").exit_code == 2


def test_an_empty_import_is_no_success(tmp_path: Path) -> None:
    """Zero files."""
    assert run("corpus", "import", tmp_path, "--out", tmp_path / "c").exit_code == 3


def test_every_token_of_the_dictionary_is_one() -> None:
    """`name="bytes"`, printable or escaped, each once."""
    import re

    lines = dictionary.text().splitlines()[1:]
    token = re.compile(r'[a-z0-9_]+="(?:[ !#-\[\]-~]|\\x[0-9a-f]{2})+"')
    assert all(token.fullmatch(line) for line in lines), [line for line in lines if not token.fullmatch(line)]
    assert len({line.split("=", 1)[1] for line in lines}) == len(lines) > 50


def test_any_file_is_the_argument_of_a_case() -> None:
    """The same bytes come of it."""
    for content in (*corpus.shipped(), b"", b"CMF", corpus.shipped()[3][:200]):
        for file in as_arguments(content):
            assert file.content() == content


def test_a_find_becomes_a_stored_case_of_the_rule_that_it_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; and the cases are drawn with it."""
    from fuzz.mutations import MUTATIONS

    promoted = tmp_path / "promoted.jsonl"
    written: list[int] = []
    for module in (golden.cases, sys.modules["runner.corpuscmd"]):
        monkeypatch.setattr(module, "PROMOTED", promoted)
    monkeypatch.setattr(golden.make, "write", lambda cases: written.append(sum(map(len, cases.values()))))
    mutation = next(m for m in MUTATIONS.values() if m.breaks == "VAL-005")
    path = tmp_path / "find.cmf"
    path.write_bytes(mutation.file.content())
    assert run("corpus", "promote", path, "--dry-run").exit_code == 0
    assert not promoted.exists()
    done = run("corpus", "promote", path)
    assert done.exit_code == 0, done.output
    rule = json.loads(promoted.read_text())["rule"]
    assert rule in done.output
    assert golden.cases.promoted(rule)
    assert written
    assert "stored already" in run("corpus", "promote", path).output


@pytest.mark.parametrize(("words", "code"), [(("--rule", "NOPE-1"), 2), (("--rule", "FEAT-001"), 1)])
def test_what_no_rule_takes_is_not_promoted(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    """A rule with other arguments, a rule that is not."""
    path = tmp_path / "f.cmf"
    path.write_bytes(corpus.shipped()[0])
    assert run("corpus", "promote", path, "--dry-run", *words).exit_code == code


# --- planted bugs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_has_its_place(bug: Any) -> None:
    """One edit of one place, of a field that can be left out."""
    source = (Path(planted.__globals__["HOME"]) / bug.source).read_text("utf-8")
    assert source.count(bug.old) == 1
    assert bug.new != bug.old
    assert set(bug.without) <= FIELDS


def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    """Unaided, and minimal: the smallest file has hardly more than the envelope, a header and a directory."""
    built("c")
    (tmp_path / "bug").mkdir()
    reader = planted(next(bug for bug in BUGS if bug.name == "nibbles-swapped"), tmp_path / "bug")
    done = run("fuzz", "--impl", reader, "--out", tmp_path / "c", "--time", "60s", "--max-finds", 1, "-j", 1, "--json")
    find = json.loads(done.stdout)["finds"][0]
    assert (find["outcome"], find["op"]) == ("WRONG_VALUE", "tensor")
    assert find["size"] < 4096 + 1024
    assert part((Path(find["folder"]) / finds.FILE).read_bytes(), "dir")


def test_the_embedded_reference_can_be_fuzzed_too(tmp_path: Path) -> None:
    """Without --impl, as with `run`."""
    assert target_of(dict(OPTIONS)).name
    done = run("fuzz", "--out", tmp_path / "c", "--executions", 100, "-j", 1, "--time", "60s")
    assert done.exit_code == 0, done.output
    assert "nothing was found" in done.output
