"""Which cases a run asks: profile, pattern, tiers, cap.

Law: a selection that leaves something out says so (`complete`), because a run cut short proves nothing about the whole.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import click

from cmfspec.contract.rule import CATALOGUE, Rule
from golden.cases import Case, stored
from runner.sequence import BadSequence, read


@dataclass(frozen=True)
class Selection:
    """The cases of a run. complete: nothing of the profile `certify` was left out."""

    profile: str
    cases: tuple[tuple[Rule, Case], ...]
    complete: bool
    pattern: str | None = None
    tiers: tuple[str, ...] = ()
    cap: int | None = None
    last_failed: bool = False
    sequence: bool = False

    def only(self, cases: Set[str]) -> Selection:
        """What of it is among `cases`, the ids of those that failed last time."""
        kept = tuple((rule, case) for rule, case in self.cases if case.id in cases)
        return replace(self, cases=kept, complete=False, last_failed=True)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that are asked, in order."""
        return tuple({rule.id: rule for rule, _ in self.cases}.values())


def select(
    profile: str,
    pattern: str | None = None,
    tiers: Sequence[str] = (),
    cap: int | None = None,
    catalogue: dict[str, Rule] = CATALOGUE,
) -> Selection:
    """The cases of a profile, narrowed down. cap: at most this many cases of a rule."""
    found: list[tuple[Rule, Case]] = []
    left_out = profile == "smoke"
    for identity, rule in catalogue.items():
        cases = [case for case in stored().get(identity, ()) if profile != "smoke" or case.smoke]
        kept = [
            case
            for case in cases
            if (not tiers or rule.tier in tiers) and (not pattern or matches(pattern, rule, case))
        ]
        kept = kept[:cap] if cap else kept
        left_out = left_out or len(kept) < len(cases)
        found += [(rule, case) for case in kept]
    return Selection(profile, tuple(found), not left_out, pattern, tuple(tiers), cap)


def in_order(path: str, selection: Selection) -> Selection:
    """The cases that a sequence file names, in its order, in place of the selected ones. Raises click.UsageError."""
    if selection.pattern or selection.tiers or selection.profile == "soak":
        raise click.UsageError("--sequence names every case that is asked; -k, --tier and --profile soak have no say")
    try:
        return replace(selection, cases=read(path), complete=False, sequence=True)
    except BadSequence as error:
        raise click.UsageError(f"--sequence {error}") from None


def matches(pattern: str, rule: Rule, case: Case) -> bool:
    """Whether -k names the case: a glob or a part of its id, or of its rule's name in plain words."""
    wanted = pattern.lower()
    return any(
        fnmatchcase(text, wanted) or wanted in text for text in (case.id.lower(), rule.id.lower(), rule.name.lower())
    )
