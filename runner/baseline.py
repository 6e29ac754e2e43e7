"""A baseline: the stored stream of an earlier run, to fail on what is worse than it and on nothing else.

Law: a failure is known only if the same case failed with the same outcome. What passed and is now not judged is as much a
regression as what now fails: a capability that is no longer declared must not turn a build green.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cmfspec.contract.outcome import PASS
from cmfspec.contract.rule import GRADED
from runner.judge import Verdict
from runner.reading import Read, Section
from runner.strangers import BadFile

UNJUDGED = ("NOT_APPLICABLE", "BEYOND")


@dataclass(frozen=True)
class Baseline:
    """One implementation's earlier outcomes. drawn: (rule, outcome) of failures on drawn cases, whose ids vary."""

    path: str
    outcomes: dict[str, str] = field(default_factory=dict)
    drawn: frozenset[tuple[str, str]] = frozenset()

    def knows(self, verdict: Verdict) -> bool:
        """Whether this failure was there."""
        if verdict.drawn:
            return verdict.failed and (verdict.rule.id, verdict.outcome) in self.drawn
        return verdict.failed and self.outcomes.get(verdict.case.id) == verdict.outcome

    def compared(self, verdicts: Sequence[Verdict]) -> dict[str, object]:
        """The footer's member `baseline`."""
        graded = [verdict for verdict in verdicts if verdict.rule.tier in GRADED and not verdict.drawn]
        failed = {case for case, outcome in self.outcomes.items() if outcome not in (PASS, "OBSERVED", *UNJUDGED)}
        return {
            "file": self.path,
            "new": [verdict.case.id for verdict in verdicts if verdict.fails_the_run],
            "known": sum(verdict.known for verdict in verdicts),
            "better": [verdict.case.id for verdict in graded if verdict.case.id in failed and verdict.outcome == PASS],
            "lost": [
                verdict.case.id
                for verdict in graded
                if verdict.outcome in UNJUDGED and self.outcomes.get(verdict.case.id) == PASS
            ],
            "unasked": len(self.outcomes.keys() - {verdict.case.id for verdict in verdicts}),
        }


def baseline_for(stream: Read, command: str, alone: bool) -> Baseline:
    """The part of a stream that is about `command`; all of it if the stream and the run have one implementation each (alone).
    Raises BadFile."""
    sections = stream.sections
    found = [section for section in sections if section.header.implementation.command == command]
    if not found and alone and len(sections) == 1:
        found = [*sections]
    if len(found) != 1:
        names = ", ".join(section.header.implementation.command for section in sections)
        raise BadFile(
            stream.path, 0, f"{len(found) or 'no'} runs of {command!r} among {names}", "one to compare it with"
        )
    return _of(stream.path, found[0])


def _of(path: str, section: Section) -> Baseline:
    stored = {verdict.case.id: verdict.outcome for verdict in section.verdicts if not verdict.drawn}
    drawn = frozenset((v.rule.id, v.outcome) for v in section.verdicts if v.drawn and v.failed)
    return Baseline(path, stored, drawn)
