"""`cmfspec selftest`: the suite measures itself. How much of the text is tested, and do the tests find what is wrong?

Law: the numbers in a text are those that the measurement gives, or the check fails; exit 0 only if the mutation score is
whole and nothing that is declared is empty.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cmfspec.contract.rule import CATALOGUE, GRADED, load_catalogue, norms, status
from conformance.twins import OTHERS, TWINS, twins_of
from golden.cases import stored
from runner.exits import EXIT_FAILED
from runner.mutation_score import Row, gaps, matrix
from runner.progress import bar

BEGIN, END = "<!-- selftest: begin -->", "<!-- selftest: end -->"
COLUMNS = ("rules", "tested", "graded", "untested", "cases", "twins")


@dataclass(frozen=True)
class Measured:
    """areas: area to the counts of COLUMNS; because: reason to the number of rules that are untested for it; rows: each
    twin's; problems: sentences, none if the suite is whole."""

    areas: dict[str, dict[str, int]]
    because: dict[str, int]
    rows: Sequence[Row]
    problems: tuple[str, ...]

    @property
    def killed(self) -> int:
        """Twins that died as they should."""
        return sum(not row.problem for row in self.rows)

    @property
    def score(self) -> int:
        """The mutation score in per cent, rounded down: 100 means all of them."""
        return 100 * self.killed // len(self.rows) if self.rows else 0

    @property
    def total(self) -> dict[str, int]:
        """The counts of all areas together."""
        return {column: sum(counts[column] for counts in self.areas.values()) for column in COLUMNS}


def selftest_command(*, jobs: int | None, write: str | None, check: str | None, as_json: bool) -> int:
    """`cmfspec selftest`: the exit code."""
    target = write or check
    if write and check:
        raise click.UsageError("--write changes the file and --check does not: give one of them")
    before = _text_of(target) if target else ""
    if target:
        _around(target, before)  # a file without a place for the numbers is known before the work
    measured = measure(jobs)
    if as_json:
        json.dump(_as_json(measured), sys.stdout, ensure_ascii=True, indent=1)
        print()
    else:
        print(table(measured))
        for problem in measured.problems:
            print(f"problem: {problem}")
    stale = False
    if target:
        head, tail = _around(target, before)
        after = f"{head}{BEGIN}\n{table(measured)}\n{END}{tail}"
        stale = bool(check) and after != before
        if stale:
            print(f"{target} has other numbers: `cmfspec selftest --write {target}` puts these in", file=sys.stderr)
        if write and after != before:
            with Path(target).open("w", encoding="utf-8", newline="") as file:
                file.write(after)
    return EXIT_FAILED if measured.problems or stale else 0


def measure(jobs: int | None = None) -> Measured:
    """Ask every twin by every graded rule, and count the rules. jobs: processes, one a core if not given."""
    load_catalogue()
    graded = sum(rule.tier in GRADED for rule in CATALOGUE.values())
    with bar(Console(stderr=True), "twins", graded) as advance:
        rows = matrix(TWINS, jobs, lambda identity: advance(1, identity))
    areas: dict[str, dict[str, int]] = {}
    because: Counter[str] = Counter()
    for identity, norm in norms().items():
        counts = areas.setdefault(norm.area, dict.fromkeys(COLUMNS, 0))
        state, reason = status(identity)
        rule = CATALOGUE.get(identity)
        counts["rules"] += 1
        counts[state] += 1
        counts["graded"] += rule is not None and rule.tier in GRADED
        counts["cases"] += len(stored().get(identity, ())) if rule else 0
        counts["twins"] += len(twins_of(identity))
        if reason:
            because[reason] += 1
    problems = (*gaps(), *(row.problem for row in rows if row.problem), *(() if rows else ("there is no twin at all",)))
    return Measured(areas, dict(because.most_common()), rows, problems)


def table(measured: Measured) -> str:
    """The numbers as Markdown, without a time or anything else that is not the same again."""
    total, written = measured.total, {area: c for area, c in measured.areas.items() if c["tested"]}
    lines = [
        f"{total['tested']} of the {total['rules']} rules of the text are tested, with {total['cases']} cases; "
        f"{total['untested']} are not, each for a reason that `cmfspec rules` tells.",
        "",
        f"| area | {' | '.join(COLUMNS)} |",
        f"|---|{'--:|' * len(COLUMNS)}",
        *(_row(area, counts) for area, counts in written.items()),
    ]
    silent = {area: counts for area, counts in measured.areas.items() if area not in written}
    if silent:
        sums = {column: sum(counts[column] for counts in silent.values()) for column in COLUMNS}
        lines.append(_row(", ".join(silent), sums))
    most = max((len(row.elsewhere) for row in measured.rows if not row.twin.also), default=0)
    reasons = sum(bool(row.twin.also) for row in measured.rows)
    lines += [
        "",
        f"Mutation score {measured.score} %: {measured.killed} of {len(measured.rows)} twins die by their own rule and by at "
        f"most {most} others ({OTHERS} are allowed), {reasons} by more for a stated reason.",
    ]
    return "\n".join(lines)


def _row(area: str, counts: dict[str, int]) -> str:
    return f"| {area} | {' | '.join(str(counts[column] or '·') for column in COLUMNS)} |"


def _as_json(measured: Measured) -> dict[str, Any]:
    rules = {identity: status(identity) for identity in norms()}
    return {
        "areas": measured.areas,
        "total": measured.total,
        "rules": {identity: {"status": state, "because": reason} for identity, (state, reason) in rules.items()},
        "because": measured.because,
        "twins": [
            {
                "name": row.twin.name,
                "breaks": row.twin.breaks,
                "fault": row.twin.fault,
                "killed": row.killed,
                "by": row.killers.get(row.twin.breaks, ""),
                "elsewhere": {identity: row.killers[identity] for identity in row.elsewhere},
                "also": row.twin.also,
                "problem": row.problem,
            }
            for row in measured.rows
        ],
        "score": measured.score,
        "problems": list(measured.problems),
    }


def _text_of(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _around(path: str, text: str) -> tuple[str, str]:
    """What stands before and behind the numbers. Raises click.UsageError."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or text.count(BEGIN) > 1 or text.count(END) > 1:
        raise click.UsageError(f"{path}: wanted a line {BEGIN} and, below it, a line {END}, once each")
    return head, tail
