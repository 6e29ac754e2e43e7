"""Soaking: fresh arguments by Hypothesis, for as many examples as are asked for.

Law: one verdict a rule. Each outcome is an exception class of its own, so that shrinking never slides from one failure into
another; there is no deadline, and nothing is stored but in a folder that is deleted.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from cmfspec.contract.link import Link
from cmfspec.contract.outcome import Outcome
from cmfspec.contract.rule import OBSERVATION, Rule
from cmfspec.contract.subject import Asked
from cmfspec.format.blueprint import canonical
from golden.cases import Case, case_of
from runner.judge import Judge, Verdict, ask, verdict


def soak(
    new_link: Callable[[], Link],
    rules: Iterable[Rule],
    heard: Callable[[Verdict], None],
    *,
    seed: int,
    examples: int,
    keep: Callable[[Verdict, Judge], Verdict],
) -> None:
    """Judge each rule whose arguments can be drawn on drawn examples. keep: gives a failing verdict its reproducer."""
    from hypothesis import configuration

    link = new_link()
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            judge = Judge(link)
            for rule in rules:
                if rule.draw and rule.tier != OBSERVATION:
                    heard(keep(_rule(rule, link, seed, examples), judge))
        finally:
            link.close()


def _rule(rule: Rule, link: Link, seed: int, examples: int) -> Verdict:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    case, evidence = Case(rule.id, "{}"), Asked()
    started = time.perf_counter()

    def check(**arguments: Any) -> None:
        nonlocal case, evidence
        case = case_of(rule.id, arguments)
        outcome, evidence = ask(rule, case, link)
        if outcome is not None and outcome.graded:
            raise outcome

    bound = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    test = given(**{name: draw.strategy() for name, draw in rule.draw.items()})(check)
    try:
        seeded(seed ^ zlib.crc32(rule.id.encode()))(bound(test))()
    except Outcome as outcome:
        return verdict(rule, case, outcome, time.perf_counter() - started, evidence)
    return verdict(rule, Case(rule.id, canonical({"soak": examples})), None, time.perf_counter() - started)
