"""The bench measures what it says, and compares with its baselines honestly. No speed is tested here."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench import __main__ as command
from bench import baseline
from bench.baseline import ENOUGH, BadBaseline, falls_short, read, write
from bench.measure import Measured, Row, Ways, measure
from bench.page import page
from bench.rows import ROWS
from tests.test_layers import PACKAGES, ROOT


class Clock:
    """Time that goes on by the work done only."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def takes(self, name: str, *seconds: float) -> Callable[[], None]:
        """Work that takes these seconds, in turn."""
        left = iter(seconds)

        def work() -> None:
            self.log.append(name)
            self.now += next(left)

        return work


def row(ours: list[Callable[[], None]], other: list[Callable[[], None]], name: str = "r", lacks: str = "") -> Row:
    @contextmanager
    def opened() -> Iterator[Ways]:
        yield Ways(ours, other, 100.0)

    def ways() -> AbstractContextManager[Ways]:
        return opened()

    return Row(name, "we", "they", "cases", 2.0, ways, lambda: lacks)


def test_a_ratio_is_of_the_sums_of_the_minima_of_each_piece_after_one_unmeasured_turn() -> None:
    clock = Clock()
    ours = [clock.takes("a", 99, 5, 1, 3), clock.takes("b", 99, 2, 9, 2)]
    other = [clock.takes("c", 99, 10, 8, 6), clock.takes("d", 99, 9, 9, 12)]
    found = measure(row(ours, other), rounds=3, seconds=0, clock=clock)
    assert "".join(clock.log) == "acbd" * 4
    assert (found.ours, found.other) == (((5, 1, 3), (2, 9, 2)), ((10, 8, 6), (9, 9, 12)))
    assert found.turns == 3
    assert found.ratio == (6 + 9) / (1 + 2)
    assert found.median_ratio == (8 + 9) / (3 + 2)
    assert found.rate(found.ours) == 100 / 3


def test_turns_go_on_until_the_time_is_up() -> None:
    clock = Clock()
    found = measure(row([clock.takes("a", *[1.0] * 99)], [clock.takes("b", *[1.0] * 99)]), 2, 10.0, clock)
    assert found.turns == 5


def test_work_in_unequal_pieces_and_no_work_are_refused() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="zip"):
        measure(row([clock.takes("a", 1)], []), clock=clock)
    with pytest.raises(ValueError, match="no work"):
        measure(row([], []), clock=clock)


def test_a_bound_is_timed_in_the_same_turns_and_shown_where_the_aim_is_missed() -> None:
    clock = Clock()
    ways = [[clock.takes(name, 99, *seconds)] for name, seconds in (("a", (4, 5)), ("b", (6, 7)), ("c", (3, 2)))]

    @contextmanager
    def opened() -> Iterator[Ways]:
        yield Ways(ways[0], ways[1], 100.0, ways[2])

    short = Row("r", "we", "they", "cases", 2.0, opened, bound="without the pipe")
    found = measure(short, rounds=2, seconds=0, clock=clock)
    assert "".join(clock.log) == "abcabcabc"
    assert (found.ratio, found.bound_ratio) == (1.5, 3.0)
    assert "| r | 1.50 | 2.00 | 3.00 | without the pipe |" in page([found], "here")
    assert "without the pipe" not in page([replace(found, row=replace(short, aim=1.5))], "here")
    assert measured(1.0).bound_ratio is None
    assert "Short of the aim" not in page([measured(1.0)], "here")


def test_a_row_goes_on_for_its_own_time_if_no_other_is_given() -> None:
    for seconds, turns in ((None, 3), (1.0, 1)):
        clock = Clock()
        ways = [clock.takes("a", *[1] * 9)], [clock.takes("b", *[1] * 9)]
        assert measure(replace(row(*ways), seconds=5.0), 1, seconds, clock).turns == turns


@pytest.mark.parametrize("name", ["decode-q1s", "matvec-vbit", "hash-one", "start-help"])
def test_the_rows_of_kernels_and_processes_do_the_same_work_in_all_ways(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little of it: each piece of every way runs."""
    from bench import hashing, matrices

    monkeypatch.setattr(matrices, "BEYOND", 2**20)
    monkeypatch.setattr(hashing, "SIZE", 2**20)
    (each,) = (each for each in ROWS if each.name == name)
    found = measure(each, rounds=1, seconds=0)
    assert found.ratio > 0
    assert found.bound_ratio


def test_a_large_file_is_verified_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import hashing

    monkeypatch.setattr(hashing, "LARGE", (3, 2**16))
    with hashing.one_file() as ways:
        assert ways.amount > 3 * 2**16 / 1e6
        for piece in (*ways.ours, *ways.other, *ways.bound):
            piece()


def test_the_bound_of_a_product_has_every_row_among_the_first() -> None:
    from bench import products
    from bench.matrices import SIDE, stored

    for name in ("q8_row", "vbit"):
        near = products.near(stored(name))
        assert near.starts.max() == near.starts[products.NEAR - 1]
        x = np.ones(SIDE, np.float32)
        first = near.matvec(x)[: products.NEAR]
        assert (first == stored(name).matvec(x)[: products.NEAR]).all()


def measured(ratio: float, name: str = "r") -> Measured:
    return Measured(row([], [], name), 100.0, ((1.0, 2.0),), ((ratio, 2 * ratio),))


def test_a_ratio_far_below_its_baseline_falls_short_and_so_does_one_without(tmp_path: Path) -> None:
    assert "no baseline" in falls_short("r", 5.0, tmp_path)
    write(measured(10.0), "here", tmp_path)
    assert json.loads((tmp_path / "r.json").read_text()) == {"ratio": 10.0, "median": 10.0, "machine": "here"}
    assert falls_short("r", 10 * ENOUGH, tmp_path) == ""
    assert "below 0.7 of the baseline" in falls_short("r", 10 * ENOUGH - 0.01, tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"ratio": true}', b'{"ratio": 0}', b'{"ratio": "9"}', b"\xff", b'{"ratio": NaN}']
)
def test_a_file_that_is_no_baseline_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(BadBaseline, match=r"r\.json"):
        read("r", tmp_path)


def test_every_row_has_a_baseline_and_every_baseline_a_row() -> None:
    names = [each.name for each in ROWS]
    assert len(names) == len(set(names))
    assert sorted(path.stem for path in baseline.FOLDER.glob("*.json")) == sorted(names)
    assert all(read(name) for name in names)


def test_the_page_names_each_row_and_what_it_is_compared_with() -> None:
    text = page([measured(3.0, "first"), measured(0.5, "second")], "2 cores")
    assert "| first | 3.00 | 3.00 | 2.00 | 100 cases/s | 33 cases/s | 2 |" in text
    assert "- **second**: we; against they." in text
    assert "2 cores" in text


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """`python -m bench` in a folder of its own, on rows that are told their ratios; None: one that can't be measured."""
    for function in (read, write, falls_short):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "baselines",))
    monkeypatch.setattr(command, "PAGE", tmp_path / "docs" / "performance.md")

    def run(ratios: dict[str, float | None], *words: str) -> tuple[int, str]:
        rows = [row([], [], name, lacks="" if ratio else "no compiler") for name, ratio in ratios.items()]
        monkeypatch.setattr(command, "ROWS", tuple(rows))
        monkeypatch.setattr(command, "measure", lambda each, *_: measured(ratios[each.name] or 0.0, each.name))
        result = CliRunner().invoke(command.main, list(words))
        return result.exit_code, result.output

    return run


def test_check_fails_where_a_row_is_slow_or_not_measured_and_passes_else(
    bench: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    assert bench({"r": 4.0}, "--check")[0] == 1  # no baseline
    assert bench({"r": 4.0}, "--rebase")[0] == 0
    assert bench({"r": 3.0}, "--check")[0] == 0
    code, output = bench({"r": 2.0}, "--check")
    assert code == 1
    assert "r: 2.00 is below 0.7 of the baseline, 4.00" in output
    code, output = bench({"r": 4.0, "q": None}, "--check")
    assert code == 1
    assert "q: not measured: no compiler" in output
    assert bench({"r": 4.0}, "-k", "nothing")[0] == 2
    (tmp_path / "baselines" / "r.json").write_text("{}")
    assert bench({"r": 4.0}, "--check")[0] == 2


def test_a_busy_machine_is_told_before_anything_is_measured(
    bench: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for load, said in ((0.1, False), (6.0, True)):
        monkeypatch.setattr(command.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert (f"load {load}" in bench({"r": 1.0})[1]) == said


def test_only_a_run_of_every_row_writes_the_page(bench: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    assert bench({"one": 1.0, "two": 1.0}, "-k", "one")[0] == 0
    assert bench({"one": 1.0, "two": None})[0] == 0
    assert not (tmp_path / "docs").exists()
    assert bench({"one": 1.0, "two": 1.0})[0] == 0
    assert "| two |" in (tmp_path / "docs" / "performance.md").read_text()


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("make")), reason="no C compiler")
def test_the_rows_of_the_runner_do_the_same_work_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few cases: each piece of both ways runs, and judges right."""
    from bench import running
    from cmfspec.contract.rule import load_catalogue
    from runner.select import Selection, select

    load_catalogue()
    few = select("smoke", "ENV-00*")
    asked = [rule for rule, _ in few.cases if rule.binds != "writer"]  # the C reader writes nothing
    monkeypatch.setattr(running, "select", lambda _: Selection("smoke", few.cases, False))
    for each in ROWS:
        if each.name.startswith("runner-"):
            found = measure(each, rounds=1, seconds=0)
            assert found.amount == len(asked)
            assert len(found.ours) == len(found.other) == -(-len(asked) // running.PIECE)


def test_a_reader_that_fails_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed must be right."""
    from bench import running
    from cmfspec.contract.outcome import WrongAccept
    from golden.cases import Case
    from runner.judge import verdict

    class Wrong:
        def judge(self, rule: object, case: Case) -> object:
            return verdict(rule, case, WrongAccept("x", "y"), 0.0)  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="fails"):
        running.judged(Wrong(), [(None, Case("R-1", "{}"))])  # type: ignore[arg-type, list-item]


def test_nothing_imports_the_bench() -> None:
    """It is not shipped."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not [name for name in names if name.split(".")[0] == "bench"], path
