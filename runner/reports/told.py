"""What every report tells of a section of a stream: what came of each rule that was asked, and what is wrong with the run
itself.

Law: the formats differ in words only. Nothing is green but a rule that passed; a run that did not end, or that a baseline
or a waiver fails, has a problem of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from cmfspec.contract.rule import CATALOGUE, GRADED, Rule
from runner import sequence
from runner.judge import Verdict
from runner.reading import Section
from runner.stream import rule_state
from runner.terminal import safe

REASONS = {"observed": "the text is silent", "not_applicable": "not applicable", "beyond": "beyond this revision"}
SHOWN = 500  # characters of what was expected, or came


@dataclass(frozen=True)
class Told:
    """A rule. state: passed, failed (graded, not excused), excused, ungraded (a failure of no graded rule), or a key of
    REASONS; asked: how many cases; shown: the first verdict of each outcome that is worth telling, those that fail the run
    first."""

    rule: Rule
    state: str
    asked: int
    failing: int
    seconds: float
    shown: tuple[Verdict, ...]

    @property
    def reason(self) -> str:
        """In a line, why it is not passed or failed."""
        if self.state == "excused":
            return "; ".join(dict.fromkeys(excuse(verdict) for verdict in self.shown))
        if self.state == "ungraded":
            return f"failed, but {self.rule.tier} is not graded: {', '.join(v.outcome for v in self.shown)}"
        got = next((f": {line(v.got)}" for v in self.shown), "")
        return REASONS[self.state] + got


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a run, not with a rule. broken: it did not end, so that the rest says little; file,
    line: where it is to be mended, if that is a place in a file."""

    text: str
    broken: bool = False
    file: str = ""
    line: int = 0


def rules_of(section: Section) -> list[Told]:
    """The rules that were asked, in the order of the catalogue."""
    found: dict[str, list[Verdict]] = {}
    for verdict in section.verdicts:
        found.setdefault(verdict.rule.id, []).append(verdict)
    return [_told(CATALOGUE[identity], found[identity]) for identity in CATALOGUE if identity in found]


def _told(rule: Rule, verdicts: list[Verdict]) -> Told:
    state = rule_state(rule, (verdict.outcome for verdict in verdicts))
    telling = [verdict for verdict in verdicts if verdict.outcome != "PASS"]
    if state == "failed":
        telling = sorted(
            (verdict for verdict in verdicts if verdict.failed), key=lambda verdict: not verdict.fails_the_run
        )
        excused = all(verdict.waived or verdict.known for verdict in telling)
        state = "excused" if excused else "failed" if rule.tier in GRADED else "ungraded"
    shown = tuple({verdict.outcome: verdict for verdict in reversed(telling)}.values())[::-1]
    failing = sum(verdict.failed for verdict in verdicts)
    return Told(rule, state, len(verdicts), failing, sum(verdict.seconds for verdict in verdicts), shown)


def problems_of(section: Section) -> list[Problem]:
    """What is wrong with the run itself; for one that found nothing to be wrong, nothing."""
    end = section.footer
    if end is None:
        judged, of = len(section.verdicts), section.header.cases
        return [Problem(f"the run did not end: {judged} verdicts of {of} cases, and no footer", broken=True)]
    found = []
    if end.preflight:
        found.append(
            Problem(f"fails at {end.preflight.step}, before any rule: {line(end.preflight.problem)}", broken=True)
        )
    elif end.stopped:
        found.append(Problem(f"stopped early: {line(end.stopped)}", broken=True))
    elif not end.judged:
        found.append(Problem("nothing was judged: no graded rule applied, and that is not a success", broken=True))
    if end.baseline:
        found += [Problem(f"{line(case)} passed in the baseline, and is not judged now") for case in end.baseline.lost]
    for trouble in end.waivers:
        file, _, at = trouble.where.rpartition(":")
        text = f"waiver to be cut: {line(trouble.what)}: {line(trouble.why)}"
        found.append(Problem(text, False, file, int(at) if at.isdecimal() else 0))
    return found


def excuse(verdict: Verdict) -> str:
    """Why a failure does not count."""
    return f"waived: {line(verdict.waived)}" if verdict.waived else "as in the baseline"


def line(text: str) -> str:
    """Anybody's text as one line that can be printed."""
    shown = safe(text)
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"


def lines(section: Section, told: Told) -> list[str]:
    """What came of a rule that failed, line by line."""
    found = [f"{told.rule.norm.rule} (§{told.rule.section}, {told.rule.tier})", " ".join(told.rule.quote.split())]
    for verdict in told.shown:
        found += [
            f"{verdict.outcome} {verdict.case.id}",
            f"  expected {line(verdict.expected)}",
            f"  got      {line(verdict.got)}",
        ]
        said = [text for text in verdict.stderr.splitlines() if text.strip()][-5:]
        found += [f"  stderr   {line(text)}" for text in said]
        if verdict.reproducer:
            found.append(f"  file     {line(verdict.reproducer)}/file.cmf")
        found.append(f"  again    {again(section, verdict)}")
    return found


def again(section: Section, verdict: Verdict) -> str:
    """The command that asks the case again."""
    return safe(sequence.again(section.header.rerun, verdict.case, verdict.after, verdict.reproducer))


def headline(told: Told) -> str:
    """A rule that failed, in a line."""
    first = told.shown[0]
    return f"{first.outcome}: expected {line(first.expected)}; got {line(first.got)}"
