"""An engine that lies about its logits, before every rule that asks for some: none believes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.protocol import Logits, Reply, Request
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import CATALOGUE, GRADED, load_catalogue
from golden.cases import stored
from runner.judge import ask
from tests.test_computed import LIES

load_catalogue()
RIGHT = reference()
ASKING = [
    rule.id
    for rule in CATALOGUE.values()
    if rule.tier in GRADED and {"logits", "_as_cut"} & {*rule.check.__code__.co_names} and rule.id != "MOE-010"
]
Told = Callable[[Any], Any]


def previous() -> Told:
    """Gives what it gave before, where that has the right shape; else zeros."""
    kept: list[Any] = []

    def told(right: Any) -> Any:
        kept.append(right)
        before = kept[-2] if len(kept) > 1 else np.zeros_like(right)
        return before if before.shape == right.shape else np.zeros_like(right)

    return told


ALL: dict[str, Callable[[], Told]] = {
    **{name: lambda lie=lie: lambda right: lie(None, right) for name, lie in LIES.items()},  # type: ignore[misc]
    "the answer before": previous,
}


@pytest.fixture
def link() -> Iterator[Callable[[Told], InProcess]]:
    """The reference, but for its logits."""
    made: list[InProcess] = []

    def lying(told: Told) -> InProcess:
        def handle(request: Request) -> Reply:
            reply = RIGHT(request)
            if request.op != "logits" or reply.status != "ok" or request.out is None:
                return reply
            path = Path(request.out)
            wrong = told(np.frombuffer(path.read_bytes(), "<f4").reshape(reply.value.shape).copy())
            path.write_bytes(np.ascontiguousarray(wrong, "<f4").tobytes())
            return Reply("ok", Logits([*wrong.shape]))

        made.append(InProcess(handle))
        return made[-1]

    yield lying
    for process in made:
        process.close()


def test_the_rules_about_logits_are_found() -> None:
    """Or the tests below would ask nothing."""
    assert len(ASKING) >= 18
    assert {"ENG-001", "ENG-003", "HDR-015", "MOE-005"} <= set(ASKING)


@pytest.mark.parametrize("name", ALL)
def test_every_rule_that_asks_for_logits_sees_the_lie(link: Callable[[Told], InProcess], name: str) -> None:
    """In its first case already, where that has more than one row."""
    asked = link(ALL[name]())
    believed = []
    for identity in ASKING:
        case = next(
            case for case in stored()[identity] if '"text":[9]' not in case.args and '"length":1' not in case.args
        )
        outcome, _ = ask(CATALOGUE[identity], case, asked)
        if outcome is None or not outcome.graded:
            believed.append(identity)
    assert believed == []


def test_who_says_the_truth_is_believed(link: Callable[[Told], InProcess]) -> None:
    """The same link without a lie."""
    asked = link(lambda right: right)
    for identity in ASKING:
        outcome, _ = ask(CATALOGUE[identity], stored()[identity][0], asked)
        assert outcome is None, f"{identity}: {outcome}"
