"""The suite judges itself: each twin dies by its rule, by few others, and answers the controls rightly."""

from __future__ import annotations

import contextlib
import io

import pytest

from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import CATALOGUE, GRADED, load_catalogue
from conformance.twins import OTHERS, TWINS, Twin
from golden.cases import stored
from runner.judge import ask
from runner.preflight import preflight

load_catalogue()


def killers(twin: Twin) -> dict[str, str]:
    """Rule id to the first failure: the graded rules that the twin fails."""
    link = InProcess(reference(twin.parts))
    found: dict[str, str] = {}
    with contextlib.redirect_stderr(io.StringIO()):
        for identity, rule in CATALOGUE.items():
            for case in stored()[identity] if rule.tier in GRADED else ():
                outcome, _ = ask(rule, case, link)
                if outcome is not None and outcome.graded:
                    found[identity] = f"{case.id} {outcome.name}: {outcome}"
                    break
    link.close()
    return found


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_twin_dies_by_its_own_rule(twin: Twin) -> None:
    """And by at most three elsewhere, unless it says why; the plainest file it reads like anybody."""
    link = InProcess(reference(twin.parts))
    assert [step.problem for step in preflight(link)] == ["", "", "", ""]
    link.close()
    found = killers(twin)
    assert twin.breaks in found
    others = sorted(set(found) - {twin.breaks})
    assert len(others) <= OTHERS or twin.also, {identity: found[identity] for identity in others}


def test_the_reference_is_killed_by_nothing() -> None:
    """The control of the controls."""
    link = InProcess(reference())
    for identity, rule in CATALOGUE.items():
        for case in stored()[identity]:
            outcome, _ = ask(rule, case, link)
            assert outcome is None or not outcome.graded, f"{case.id}: {outcome}"
    link.close()
