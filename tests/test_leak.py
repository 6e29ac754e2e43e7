"""The shortest sequence of cases that brings a state leak back, and the file that keeps it.

Law: what is returned was seen to bring it back; the number of looks is bounded; a sequence file that is no such file is
refused with its line.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.protocol import Reply, Request
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import CATALOGUE, Rule, load_catalogue
from golden.cases import Case, stored
from runner import judge as judging
from runner.cli import cli
from runner.judge import Judge
from runner.leak import LOOKS, shortest
from runner.sequence import BadSequence, again, read, text

MANY = tuple(range(1000))


def needing(*needed: int) -> tuple[Callable[[Sequence[int]], bool], list[int]]:
    """Whether these are all there, in this order; and how often that was looked at."""
    looks: list[int] = []

    def brings_back(items: Sequence[int]) -> bool:
        looks.append(len(items))
        rest = iter(items)
        return all(each in rest for each in needed)

    return brings_back, looks


@pytest.mark.parametrize("needed", [(999,), (0,), (500,), (998, 999), (3, 998), (900, 940, 980), (0, 500, 999)])
def test_the_shortest_sequence_is_found_wherever_it_lies(needed: tuple[int, ...]) -> None:
    brings_back, _ = needing(*needed)
    found = shortest(MANY, brings_back, looks=500)
    assert (found.items, found.minimal) == (needed, True)


def test_a_near_leak_costs_few_looks() -> None:
    brings_back, looks = needing(999)
    assert shortest(MANY, brings_back).items == (999,)
    assert looks == [1]


def test_the_search_is_bounded_and_what_it_has_by_then_still_brings_it_back() -> None:
    needed = tuple(random.Random(7).sample(MANY, 40))
    brings_back, looks = needing(*sorted(needed))
    found = shortest(MANY, brings_back)
    assert len(looks) == LOOKS
    assert not found.minimal
    assert brings_back(found.items)
    brings_back, looks = needing(1, 2)
    assert shortest(MANY, brings_back, seconds=0.0).items == MANY
    assert looks == []


def test_one_predecessor_is_minimal_without_a_look() -> None:
    brings_back, looks = needing(5)
    assert shortest((5,), brings_back).minimal
    assert looks == []


class Forgetful:
    """A link to a function with state, whose `renew` gives fresh state."""

    def __init__(self, make: Callable[[], Callable[[Request], Reply]]) -> None:
        self._make = make
        self.starts = 0
        self._handle = make()
        self._link = InProcess(lambda request: self._handle(request))

    def renew(self) -> None:
        self.starts += 1
        self._handle = self._make()

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)


def first_cases(*rules: str) -> list[tuple[Rule, Case]]:
    load_catalogue()
    return [(CATALOGUE[rule], stored()[rule][0]) for rule in rules]


def test_a_leak_that_needs_two_others_is_reported_with_these_two() -> None:
    """Of eight that went before, in their order."""
    order = first_cases("ENV-001", "ENV-002", "ENV-003", "ENV-004", "VAL-001", "VAL-004", "VAL-005", "ENV-008")
    first, second = order[1], order[3]
    contents = [case.arguments()["file"].content() for _, case in (first, second)]
    assert contents[0] != contents[1]

    def make() -> Callable[[Request], Reply]:
        right, met = reference(), []

        def handle(request: Request) -> Reply:
            if request.op == "open":
                seen = Path(request.file).read_bytes()
                if len(met) < 2 and seen == contents[len(met)]:
                    met.append(seen)
                elif len(met) == 2:
                    return Reply("refused", None, "Other", "full")
            return right(request)

        return handle

    link = Forgetful(make)
    try:
        judge = Judge(link)  # type: ignore[arg-type]
        verdicts = [judge.judge(*each) for each in order]
    finally:
        link._link.close()
    leak = next(verdict for verdict in verdicts if verdict.outcome == "STATE_LEAK")
    assert leak.after == (first[1], second[1])
    assert f"after 2 other cases: {first[1].id}, {second[1].id}" in leak.got
    assert all(verdict.after == () for verdict in verdicts if verdict is not leak)


def test_what_went_before_is_only_replayed_as_far_as_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "REPLAYED", 1.0)
    cases = [Case("ENV-002", str(number)) for number in range(4)]
    assert judging._replayable(list(zip(cases, (0.1, 0.5, 0.4, 0.1), strict=True))) == tuple(cases[1:])
    assert judging._replayable([(cases[0], 9.0)]) == ()


def test_a_sequence_is_read_as_it_was_written(tmp_path: Path) -> None:
    order = first_cases("ENV-004", "ENV-002", "ENV-004")
    path = tmp_path / "sequence.txt"
    path.write_text("# a note\n\n" + text(case for _, case in order))
    assert read(str(path)) == tuple(order)


def test_the_line_that_asks_a_leak_again_names_its_sequence() -> None:
    rerun, case, other = "cmfspec run --impl ./r -k {case}", Case("R-1", "{}"), Case("R-2", "{}")
    assert again(rerun, case, (), "out/R-1") == f"cmfspec run --impl ./r -k {case.id}"
    assert again(rerun, case, (other,), "my out/R-1") == "cmfspec run --impl ./r --sequence 'my out/R-1/sequence.txt'"
    assert again(rerun, case, (other,), None).endswith(case.id)


BAD = {
    "unknown": (b"ENV-002/00000000\n", "line 1: found 'ENV-002/00000000', wanted the id of a stored case"),
    "second line": (b"# yes\n\x1b[2J\n", "line 2: found '\\\\x1b[2J'"),
    "binary": (b"\xff\xfe\0\0", "line 1"),
    "empty": (b"", "no line names a case"),
    "only remarks": (b"# ENV-002\n\n", "no line names a case"),
    "too large": (b"#" * (2 << 20), "more than"),
}


@pytest.mark.parametrize(("content", "said"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_sequence_is_refused_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "sequence.txt"
    path.write_bytes(content)
    load_catalogue()
    with pytest.raises(BadSequence) as caught:
        read(str(path))
    assert said in str(caught.value)
    result = CliRunner().invoke(cli, ["run", "--sequence", str(path)])
    assert result.exit_code == 2
    assert "\x1b" not in result.output


@pytest.mark.parametrize("more", [("-k", "ENV"), ("--tier", "LITERAL"), ("--profile", "soak")])
def test_a_sequence_and_a_selection_contradict_each_other(tmp_path: Path, more: tuple[str, str]) -> None:
    (tmp_path / "s").write_text(text(case for _, case in first_cases("ENV-002")))
    assert CliRunner().invoke(cli, ["run", "--sequence", str(tmp_path / "s"), *more]).exit_code == 2
    assert CliRunner().invoke(cli, ["run", "--sequence", str(tmp_path / "missing")]).exit_code == 2


def test_a_sequence_is_asked_in_its_order_in_one_process(tmp_path: Path) -> None:
    order = first_cases("VAL-004", "ENV-002", "VAL-004")
    path, stream = tmp_path / "s", tmp_path / "results.jsonl"
    path.write_text(text(case for _, case in order))
    result = CliRunner().invoke(cli, ["run", "--sequence", str(path), "--json", str(stream)])
    lines = [json.loads(line) for line in stream.read_text().splitlines()]
    assert result.exit_code == 0
    assert [line["case"] for line in lines[1:-1]] == [case.id for _, case in order]
    assert lines[-1]["complete"] is False
