"""The suite judges itself: each twin dies by its rule, by few others, and answers the controls rightly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.reference import Parts, reference
from cmfspec.contract.rule import CATALOGUE, load_catalogue
from conformance.twins import OTHERS, TWINS, Twin
from golden.cases import stored
from runner.judge import ask
from runner.mutation_score import Row, controls, gaps, matrix, own_death

load_catalogue()


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_twin_dies_by_its_own_rule(twin: Twin) -> None:
    """The plainest file it reads like anybody."""
    assert controls(twin) == ""
    assert own_death(twin)


def test_the_mutation_score_is_whole() -> None:
    """Every twin before every graded rule: few kill it besides its own, unless it says why."""
    rows = matrix(jobs=2)
    assert [row.twin.name for row in rows] == [twin.name for twin in TWINS]
    assert [row.problem for row in rows if row.problem] == []
    assert gaps() == []


def test_a_reader_without_a_fault_lives() -> None:
    """A twin that is the reference is found out: it is killed by nothing."""
    honest = replace(TWINS[0], parts=Parts())
    assert own_death(honest) == ""
    assert "lives" in Row(honest, "", {}).problem


def test_what_is_wrong_with_a_twin_is_said() -> None:
    """Killed by too many, or by the controls already."""
    twin = replace(TWINS[0], also="")
    killers = dict.fromkeys([twin.breaks, *(f"X-{number}" for number in range(OTHERS + 1))], "first failure")
    assert "does not say why" in Row(twin, "", killers).problem
    assert Row(replace(twin, also="a reason"), "", killers).problem == ""
    assert "controls" in Row(twin, "open: WRONG_REJECT", killers).problem
    assert gaps(TWINS[1:]) != []
    assert any("names 2 twins" in gap for gap in gaps([*TWINS, TWINS[0]]))


def test_the_reference_is_killed_by_nothing() -> None:
    """The control of the controls."""
    link = InProcess(reference())
    for identity, rule in CATALOGUE.items():
        for case in stored()[identity]:
            outcome, _ = ask(rule, case, link)
            assert outcome is None or not outcome.graded, f"{case.id}: {outcome}"
    link.close()
