"""What is said of somebody's reader was seen, and can be seen again."""

from __future__ import annotations

import json
from typing import Any

import pytest

import cmfspec
from cmfspec.contract.outcome import Outcome, Resource
from cmfspec.contract.rule import CATALOGUE, GRADED, load_catalogue
from runner import campaignpage
from runner.driver import Limits, Process
from runner.findings import CRASHES, DOCS, FILES, LARGEST, PAGE, REPLAYS, failures, page, read
from runner.misjudged import misjudged
from runner.silence import excused
from tests.adapters import built

load_catalogue()
UNJUDGED = ("NOT_APPLICABLE", "BEYOND", "OBSERVED")
REPLAYED: list[dict[str, Any]] = json.loads((DOCS / REPLAYS).read_text("ascii"))


def test_the_page_is_what_the_stored_run_makes() -> None:
    """`python -m runner.findings` writes it anew."""
    assert (DOCS / PAGE).read_text("utf-8") == page(DOCS)


def test_the_run_is_whole_and_finds_what_the_page_is_for() -> None:
    """At least ten graded rules, and a crash inside `open`."""
    lines = read(DOCS)
    assert lines[0]["type"] == "header"
    assert lines[-1]["complete"] is True
    failed = {identity for identity in failures(lines) if CATALOGUE[identity].tier in GRADED}
    assert len(failed) >= 10
    assert failed <= {case["case"].split("/")[0] for case in REPLAYED}, "a finding without a file"
    assert [case for case in REPLAYED if case["status"] in (None, "error") and case["asked"]["op"] == "open"]


def test_nearly_all_graded_rules_came_to_a_verdict_on_the_stored_reader() -> None:
    """What it does not declare is not held against it; it must not be so much that the page says little."""
    states = {line["rule"] for line in read(DOCS) if line["type"] == "case" and line["outcome"] not in UNJUDGED}
    assert len([identity for identity in states if CATALOGUE[identity].tier in GRADED]) >= 90


@pytest.mark.parametrize("case", REPLAYED, ids=lambda case: case["case"])
def test_a_file_is_small_and_our_reader_survives_it(case: dict[str, Any]) -> None:
    """It is accepted or refused."""
    content = (DOCS / FILES / case["file"]).read_bytes()
    assert len(content) <= LARGEST
    try:
        cmfspec.open(content)
    except cmfspec.Refusal:
        assert list(cmfspec.faults(content))


@pytest.mark.parametrize("case", REPLAYED, ids=lambda case: case["case"])
def test_the_reader_still_does_what_the_page_says(case: dict[str, Any]) -> None:
    """The same file, asked the same."""
    content = (DOCS / FILES / case["file"]).read_bytes()
    process = Process([str(built("rust"))], Limits())
    try:
        members = {"form": case["asked"]["as"], "out": process.new_out()} if "as" in case["asked"] else {}
        if "index" in case["asked"]:
            members["index"] = case["asked"]["index"]
        try:
            reply = process.ask(case["asked"]["op"], process.place(content), **members)
        except Outcome as outcome:
            assert case["status"] is None
            assert isinstance(outcome, Resource) or outcome.name in CRASHES
        else:
            assert reply.status == case["status"]
            assert getattr(reply.value, "sound", None) == case.get("sound")
    finally:
        process.close()


def test_a_page_of_an_unfinished_run_is_not_made(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A stream without its last line is no stored run."""
    lines = (DOCS / "findings.jsonl").read_text("ascii").splitlines(keepends=True)
    (tmp_path / "findings.jsonl").write_text("".join(lines[:-1]), "ascii")
    with pytest.raises(ValueError, match="no last line"):
        page(tmp_path)


FUZZED = campaignpage.read(DOCS)["finds"]


def test_fuzzing_found_crashes_unaided() -> None:
    """Of several kinds, and each file is small."""
    assert len({find["signature"] for find in FUZZED if find["outcome"] in ("ERROR", "CRASH", "RESOURCE")}) >= 4
    assert all(find["size"] < 4096 + 1024 for find in FUZZED)


@pytest.mark.parametrize("find", FUZZED, ids=lambda find: str(find["file"]))
def test_a_file_that_fuzzing_found_breaks_what_the_page_says(find: dict[str, Any]) -> None:
    """By our own reader."""
    content = (DOCS / campaignpage.FUZZED / find["file"]).read_bytes()
    assert len(content) == find["size"]
    assert {fault.rule for fault in cmfspec.faults(content)} == set(find["rules"])


@pytest.mark.parametrize("find", FUZZED, ids=lambda find: str(find["file"]))
def test_the_reader_still_misjudges_what_fuzzing_found(find: dict[str, Any]) -> None:
    """In the same way."""
    load_catalogue()
    content = (DOCS / campaignpage.FUZZED / find["file"]).read_bytes()
    process = Process([str(built("rust"))], Limits())
    try:
        found = misjudged(content, process)
    finally:
        process.close()
    assert found is not None
    assert (found.outcome, found.op) == (find["outcome"], find["op"])
    assert not excused(found, content)
