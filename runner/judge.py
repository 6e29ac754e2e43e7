"""Judging: a case and a link in, a verdict out.

Law: only an outcome is a verdict; an exception of our own is the run's failure, never the implementation's. A failure is
asked again alone, in a fresh process: what does not fail there is STATE_LEAK if its predecessors bring it back, else FLAKY.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cmfspec.contract.link import Link
from cmfspec.contract.outcome import PASS, UNFAILED, Flaky, Observed, Outcome, StateLeak
from cmfspec.contract.rule import CATALOGUE, OBSERVATION, Rule
from cmfspec.contract.subject import Asked, Subject
from golden.cases import Case

CONFIRMED = 3  # failures of one rule that are asked again alone
REMEMBERED = 256  # predecessors that are replayed to bring a state leak back


@dataclass(frozen=True)
class Verdict:
    """What came of a case. seconds: wall time; stderr: what the implementation said there, its end."""

    rule: Rule
    case: Case
    outcome: str
    expected: str
    got: str
    seconds: float
    stderr: str = ""
    evidence: Asked = field(default_factory=Asked)
    reproducer: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the case failed its rule, in whatever tier."""
        return self.outcome not in UNFAILED


def ask(rule: Rule, case: Case, link: Link) -> tuple[Outcome | None, Asked]:
    """The outcome of a case asked once, None for PASS; and what was last asked in it."""
    outcome: Outcome | None = None
    subject: Subject | None = None
    try:
        subject = Subject(link)
        rule.check(subject, **case.arguments())
    except Outcome as raised:
        outcome = raised
    try:
        link.settle()
    except Outcome as raised:
        outcome = outcome or raised
    if rule.tier == OBSERVATION and (outcome is None or outcome.graded):
        outcome = Observed("anything: the text is silent", outcome.got if outcome else "nothing out of the ordinary")
    return outcome, subject.evidence if subject else Asked()


@dataclass
class Judge:
    """Judges cases over one link, and remembers what it asked since the process is new."""

    link: Link
    alone: bool = True  # whether `renew` gives a fresh process at all
    _since: deque[Case] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _confirmed: dict[str, int] = field(default_factory=dict)

    def judge(self, rule: Rule, case: Case) -> Verdict:
        """The verdict on a case."""
        started = time.perf_counter()
        outcome, evidence = ask(rule, case, self.link)
        seconds = time.perf_counter() - started
        if self._worth_confirming(rule, outcome):
            outcome = self._confirm(rule, case, outcome)
        else:
            self._since.append(case)
        return verdict(rule, case, outcome, seconds, evidence)

    def forget(self) -> None:
        """Go on with a fresh process: others have asked over the link."""
        self._since.clear()
        self.link.renew()

    def _worth_confirming(self, rule: Rule, outcome: Outcome | None) -> bool:
        if outcome is None or not outcome.graded or not self.alone:
            return False
        self._confirmed[rule.id] = self._confirmed.get(rule.id, 0) + 1
        return self._confirmed[rule.id] <= CONFIRMED

    def _confirm(self, rule: Rule, case: Case, first: Outcome | None) -> Outcome | None:
        before = tuple(self._since)
        self._since.clear()
        alone = self._fresh(rule, case)
        if _name(alone) == _name(first):
            return first
        again = self._fresh(rule, case)
        if _name(again) != _name(alone):
            return Flaky(
                "the same answer twice", f"{_name(first)}, then {_name(alone)}, then {_name(again)}, when asked alone"
            )
        if alone is not None and alone.graded:
            return alone
        return self._after(rule, case, before, first)

    def _after(self, rule: Rule, case: Case, before: Sequence[Case], first: Outcome | None) -> Outcome:
        """It passes alone: does it fail again after those that went before?"""
        self.link.renew()
        for earlier in before:
            ask(CATALOGUE[earlier.rule], earlier, self.link)
        behind, _ = ask(rule, case, self.link)
        self.link.renew()
        got = f"{_name(first)}: {first.got if first else ''}"
        if _name(behind) == _name(first):
            return StateLeak("the answer that it gives alone", f"{got}, after {len(before)} other cases")
        return Flaky("the same answer twice", f"{got}; and PASS when asked alone or again in the same order")

    def _fresh(self, rule: Rule, case: Case) -> Outcome | None:
        self.link.renew()
        outcome, _ = ask(rule, case, self.link)
        self.link.renew()
        return outcome


def verdict(rule: Rule, case: Case, outcome: Outcome | None, seconds: float, evidence: Asked | None = None) -> Verdict:
    """The verdict for an outcome."""
    if outcome is None:
        return Verdict(rule, case, PASS, "", "", seconds)
    return Verdict(
        rule, case, outcome.name, outcome.expected, outcome.got, seconds, outcome.stderr, evidence or Asked()
    )


def _name(outcome: Outcome | None) -> str:
    return outcome.name if outcome else PASS
