"""Stored cases: what is committed is what the rules draw, and ids last."""

from __future__ import annotations

import json

import pytest

from cmfspec.contract.rule import CATALOGUE, load_catalogue
from golden.cases import Case, case_of, stored
from golden.files import File
from golden.make import differing, make_cases
from runner.select import select

load_catalogue()


def test_the_stored_cases_are_the_drawn_ones() -> None:
    """`python -m golden.make cases --check`."""
    assert differing(make_cases()) == []


def test_ids_are_unique_and_follow_from_the_arguments() -> None:
    """The same arguments have the same id for ever."""
    ids = [case.id for cases in stored().values() for case in cases]
    assert len(ids) == len(set(ids))
    assert case_of("FEAT-001", {"bit": 7, "file": File("plain")}).id == "FEAT-001/d0e9c06a"


def test_smoke_is_a_subset_of_certify() -> None:
    """Every rule has a smoke case; nothing is in smoke alone."""
    smoke, certify = (select(profile, catalogue=CATALOGUE) for profile in ("smoke", "certify"))
    assert {case.id for _, case in smoke.cases} < {case.id for _, case in certify.cases}
    assert {rule.id for rule in smoke.rules} == set(CATALOGUE)
    assert not smoke.complete
    assert certify.complete


@pytest.mark.parametrize(
    ("options", "complete"), [({"pattern": "ENV-002"}, False), ({"tiers": ("SHOULD",)}, False), ({"cap": 1}, False)]
)
def test_a_narrowed_selection_is_not_complete(options: dict[str, object], complete: bool) -> None:
    """It proves nothing about the whole."""
    selection = select("certify", catalogue=CATALOGUE, **options)  # type: ignore[arg-type]
    assert selection.cases
    assert selection.complete is complete


def test_arguments_come_back_as_they_went() -> None:
    """JSON and back, files included."""
    for cases in stored().values():
        for case in cases:
            arguments = case.arguments()
            assert case_of(case.rule, arguments).args == case.args
            for value in arguments.values():
                if isinstance(value, File):
                    value.content()


def test_a_case_is_json_of_reasonable_size() -> None:
    """Readable in a report, sendable in a mail."""
    for cases in stored().values():
        for case in cases:
            assert isinstance(case, Case)
            assert json.loads(case.args) is not None
            assert len(case.args) < 45_000
