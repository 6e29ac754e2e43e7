"""Judging: a case and a link in, a verdict out.

Law: only an outcome is a verdict; an exception of our own is the run's failure, never the implementation's. A failure is
asked again alone, in a fresh process: what does not fail there is STATE_LEAK if its predecessors bring it back, else FLAKY.
Of those predecessors the shortest sequence that does it is looked for and travels with the verdict.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cmfspec.contract.link import Link
from cmfspec.contract.outcome import PASS, UNFAILED, Crash, Flaky, Observed, Outcome, StateLeak, Timeout
from cmfspec.contract.rule import CATALOGUE, GRADED, OBSERVATION, Rule
from cmfspec.contract.subject import Asked, Subject
from golden.cases import Case
from runner.leak import shortest

CONFIRMED = 3  # failures of one rule that are asked again alone
REMEMBERED = 1024  # predecessors that are replayed to bring a state leak back
REPLAYED = 20.0  # seconds that those took at first, so that a replay of slow ones ends
BISECTED = 3  # state leaks of one worker whose shortest sequence is looked for: a reader that tires leaks everywhere
NAMED = 5  # predecessors that a sentence names


@dataclass(frozen=True)
class Verdict:
    """What came of a case. seconds: wall time; stderr: what the implementation said there, its end; after: the cases
    that must go before it in the same process, for a state leak; drawn: it is no stored case; waived: the reason, if a
    waiver covers the failure; known: the baseline has the same failure."""

    rule: Rule
    case: Case
    outcome: str
    expected: str
    got: str
    seconds: float
    stderr: str = ""
    evidence: Asked = field(default_factory=Asked)
    reproducer: str | None = None
    after: tuple[Case, ...] = ()
    drawn: bool = False
    waived: str = ""
    known: bool = False

    @property
    def failed(self) -> bool:
        """Whether the case failed its rule, in whatever tier."""
        return self.outcome not in UNFAILED

    @property
    def fails_the_run(self) -> bool:
        """Whether it is a failure of a graded rule that nothing excuses."""
        return self.failed and self.rule.tier in GRADED and not self.waived and not self.known


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
    _since: deque[tuple[Case, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _confirmed: dict[str, int] = field(default_factory=dict)
    _bisected: int = 0

    def judge(self, rule: Rule, case: Case) -> Verdict:
        """The verdict on a case."""
        started = time.perf_counter()
        outcome, evidence = ask(rule, case, self.link)
        seconds = time.perf_counter() - started
        after: tuple[Case, ...] = ()
        if self._worth_confirming(rule, outcome):
            outcome, after = self._confirm(rule, case, outcome)
        elif isinstance(outcome, (Crash, Timeout)):
            self._since.clear()  # the next one meets a fresh process
        else:
            self._since.append((case, seconds))
        found = verdict(rule, case, outcome, seconds, evidence)
        return replace(found, after=after) if after else found

    def forget(self) -> None:
        """Go on with a fresh process: others have asked over the link."""
        self._since.clear()
        self.link.renew()

    def _worth_confirming(self, rule: Rule, outcome: Outcome | None) -> bool:
        if outcome is None or not outcome.graded or not self.alone:
            return False
        self._confirmed[rule.id] = self._confirmed.get(rule.id, 0) + 1
        return self._confirmed[rule.id] <= CONFIRMED

    def _confirm(self, rule: Rule, case: Case, first: Outcome | None) -> tuple[Outcome | None, tuple[Case, ...]]:
        """The outcome when it was asked again, and the cases that must go before it."""
        before = _replayable(self._since)
        self._since.clear()
        alone = self._fresh(rule, case)
        if _name(alone) == _name(first):
            return first, ()
        again = self._fresh(rule, case)
        if _name(again) != _name(alone):
            said = f"{_name(first)}, then {_name(alone)}, then {_name(again)}, when asked alone"
            return Flaky("the same answer twice", said), ()
        if alone is not None and alone.graded:
            return alone, ()
        return self._leak(rule, case, before, first)

    def _leak(
        self, rule: Rule, case: Case, before: Sequence[Case], first: Outcome | None
    ) -> tuple[Outcome, tuple[Case, ...]]:
        """It passes alone: does it fail again after those that went before, and after which of them?"""
        got = f"{_name(first)}: {first.got if first else ''}"

        def brings_back(earlier: Sequence[Case]) -> bool:
            return _name(self._fresh(rule, case, earlier)) == _name(first)

        if not before or not brings_back(before):
            said = f"{got}; and PASS when asked alone or again in the same order"
            return Flaky("the same answer twice", said), ()
        self._bisected += 1
        after, how = tuple(before), ""
        if self._bisected <= BISECTED:
            found = shortest(before, brings_back)
            after, how = found.items, "" if found.minimal else " (fewer may do)"
        named = ", ".join(earlier.id for earlier in after[-NAMED:])
        others = f"{len(after)} other case{'s' * (len(after) > 1)}{how}"
        last = ", the last" if len(after) > NAMED else ""
        return StateLeak("the answer that it gives alone", f"{got}, after {others}{last}: {named}"), after

    def _fresh(self, rule: Rule, case: Case, before: Sequence[Case] = ()) -> Outcome | None:
        """The outcome in a fresh process, after these."""
        self.link.renew()
        for earlier in before:
            ask(CATALOGUE[earlier.rule], earlier, self.link)
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


def _replayable(since: Sequence[tuple[Case, float]]) -> tuple[Case, ...]:
    """The last cases that together took no longer than a replay may, in their order."""
    kept: list[Case] = []
    spent = 0.0
    for case, seconds in reversed(since):
        spent += seconds
        if spent > REPLAYED:
            break
        kept.append(case)
    return tuple(reversed(kept))


def _name(outcome: Outcome | None) -> str:
    return outcome.name if outcome else PASS
