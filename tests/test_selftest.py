"""`cmfspec selftest`: what it says of a suite, whole or not. The measuring itself is tested with the twins."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import runner.measure
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.reference import Parts, reference
from cmfspec.contract.rule import CATALOGUE, load_catalogue, norms
from conformance.twins import TWINS
from runner.cli import cli
from runner.measure import BEGIN, END, Measured
from runner.mutation_score import SERVES, Row, concerns, deaths, operations


def measured(*rows: Row) -> Measured:
    """A made-up measurement of two areas."""
    areas = {
        "ENV": {"rules": 3, "tested": 2, "graded": 1, "untested": 1, "cases": 9, "twins": 2},
        "SIG": {"rules": 4, "tested": 0, "graded": 0, "untested": 4, "cases": 0, "twins": 0},
    }
    return Measured(areas, {"not yet written": 5}, rows, tuple(row.problem for row in rows if row.problem))


WHOLE = measured(*(Row(twin, "", {twin.breaks: "dead"}) for twin in TWINS))
BROKEN = measured(*(Row(twin, "", {twin.breaks: "dead"}) for twin in TWINS[1:]), Row(TWINS[0], "", {}))


def selftest(monkeypatch: pytest.MonkeyPatch, found: Measured, *words: str) -> tuple[int, str]:
    """(exit code, output) of the command if this is what it measures."""
    monkeypatch.setattr(runner.measure, "measure", lambda *_: found)
    result = CliRunner().invoke(cli, ["selftest", *words])
    return result.exit_code, result.output


def test_a_whole_suite_is_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """0, and the numbers."""
    code, output = selftest(monkeypatch, WHOLE)
    assert code == 0
    assert "Mutation score 100 %" in output
    assert "2 of the 7 rules" in output


def test_one_twin_that_lives_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """1, its name, and never a score that rounds to the whole."""
    code, output = selftest(monkeypatch, BROKEN)
    assert code == 1
    assert f"{TWINS[0].name} lives" in output
    assert "Mutation score 100 %" not in output
    nearly = measured(*(Row(TWINS[1], "", {TWINS[1].breaks: "dead"}) for _ in range(5000)), Row(TWINS[0], "", {}))
    assert nearly.score == 99
    assert measured().score == 0


def test_the_json_holds_every_rule_and_every_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason of each that is untested."""
    code, output = selftest(monkeypatch, BROKEN, "--json")
    found = json.loads(output)
    assert code == 1
    assert set(found["rules"]) == set(norms())
    assert all(rule["because"] for rule in found["rules"].values() if rule["status"] == "untested")
    assert {twin["name"]: twin["killed"] for twin in found["twins"]}[TWINS[0].name] is False
    assert found["problems"]


def test_the_numbers_are_written_between_two_comments_and_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing else in the text changes, its line ends included."""
    text = tmp_path / "README.md"
    before = f"# Title\r\n\r\n{BEGIN}\nold\n{END}\r\nthe end"
    text.write_bytes(before.encode())
    code, output = selftest(monkeypatch, WHOLE, "--check", str(text))
    assert code == 1
    assert "--write" in output
    assert text.read_bytes() == before.encode()
    assert selftest(monkeypatch, WHOLE, "--write", str(text))[0] == 0
    after = text.read_bytes()
    assert after.startswith(f"# Title\r\n\r\n{BEGIN}\n2 of the 7".encode())
    assert after.endswith(f"\n{END}\r\nthe end".encode())
    assert selftest(monkeypatch, WHOLE, "--check", str(text))[0] == 0
    text.write_bytes(after.replace(b"100 %", b"101 %"))
    assert selftest(monkeypatch, WHOLE, "--check", str(text))[0] == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"# no place", f"{END}\n{BEGIN}\n".encode(), BEGIN.encode(), f"{BEGIN}{END}{BEGIN}{END}".encode(), b"\xff\xfe"],
    ids=["empty", "no-comments", "wrong-order", "no-end", "twice", "no-utf-8"],
)  # fmt: skip
def test_a_text_without_a_place_for_them_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    """Said before the work, and the text stays as it is."""

    def measure(jobs: int | None) -> Measured:
        raise AssertionError("measured in vain")

    text = tmp_path / "README.md"
    text.write_bytes(content)
    monkeypatch.setattr(runner.measure, "measure", measure)
    result = CliRunner().invoke(cli, ["selftest", "--write", str(text)])
    assert (result.exit_code, text.read_bytes()) == (2, content)
    assert "README.md" in result.output
    assert CliRunner().invoke(cli, ["selftest", "--check", str(tmp_path / "none.md")]).exit_code == 2
    assert CliRunner().invoke(cli, ["selftest", "--check", "a", "--write", "b"]).exit_code == 2


@pytest.mark.parametrize("part", SERVES)
def test_a_twin_that_is_not_put_before_a_rule_would_not_die_by_it(part: str) -> None:
    """One twin of each part that serves some operations only, before rules that ask none of these."""
    load_catalogue()
    twin = next(twin for twin in TWINS if getattr(twin.parts, part) != getattr(Parts(), part))
    spared = [
        rule for rule in map(CATALOGUE.__getitem__, ("ENV-002", "DIR-020")) if not concerns(twin, operations(rule))
    ]
    changed = {name for name in SERVES if getattr(twin.parts, name) != getattr(Parts(), name)}
    assert spared or changed & {"opened"}
    with closing(InProcess(reference(twin.parts))) as link:
        assert not any(deaths(rule, {twin.name: link}) for rule in spared)
    assert concerns(twin, operations(CATALOGUE[twin.breaks]))
