"""Where implementations disagree: the cases to which two of them answer differently.

Law: only who was judged takes part; what an implementation says in words is not its answer. Two that fail alike agree, and
two that are both free to differ, where the text is silent, are shown when they do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cmfspec.contract.rule import CATALOGUE
from runner.judge import Verdict
from runner.reading import Who
from runner.terminal import safe

SHOWN = 40  # rows
UNJUDGED = ("NOT_APPLICABLE", "BEYOND")
TELLING = ("OBSERVED", "WRONG_VALUE", "WRONG_REASON")  # outcomes whose `got` is an answer
_WORDS = re.compile(r"(: refused(?: \w+)?), .*", re.DOTALL)
_KIND = re.compile(r"(: refused) \w+")
_WIDTH = 48  # characters of an answer


def answer(verdict: Verdict, kinds: bool = True) -> str:
    """What was answered, in so far as it can be compared. kinds: everybody names the kinds of refusal."""
    if verdict.outcome not in TELLING:
        return verdict.outcome
    got = _WORDS.sub(r"\1", verdict.got)
    got = got if kinds else _KIND.sub(r"\1", got)
    return got if verdict.outcome == "OBSERVED" else f"{verdict.outcome} {got}"


def disagreements(runs: Sequence[tuple[Who, Iterable[Verdict]]]) -> list[tuple[str, tuple[str | None, ...]]]:
    """(case id, the answer of each implementation, None where it was not judged), in the order of the catalogue."""
    kinds = all(who.kinds for who, _ in runs)
    table: dict[str, list[str | None]] = {}
    for place, (_, verdicts) in enumerate(runs):
        for verdict in verdicts:
            if not verdict.drawn and verdict.outcome not in UNJUDGED:
                table.setdefault(verdict.case.id, [None] * len(runs))[place] = answer(verdict, kinds)
    order = {identity: place for place, identity in enumerate(CATALOGUE)}
    rows = sorted(table.items(), key=lambda row: order[row[0].split("/")[0]])
    return [(case, tuple(answers)) for case, answers in rows if len({*answers} - {None}) > 1]


def labels(whos: Sequence[Who]) -> list[str]:
    """A short name for each, different from the others."""
    names = [who.name or who.command for who in whos]
    return [f"{name} #{place}" if names.count(name) > 1 else name for place, name in enumerate(names, 1)]


def show(console: Console, runs: Sequence[tuple[Who, Sequence[Verdict]]]) -> None:
    """Print them, if there is more than one implementation."""
    if len(runs) < 2:
        return
    rows = disagreements(runs)
    names = labels([who for who, _ in runs])
    console.print(f"\n[bold]{len(rows)} cases on which two implementations disagree[/]", soft_wrap=True)
    for name, (who, _) in zip(names, runs, strict=True):
        console.print(f"  {escape(safe(name))}: {escape(safe(who.command))}", soft_wrap=True)
    if rows:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in ("case", *names):
            table.add_column(escape(safe(column)), overflow="fold")
        for case, answers in rows[:SHOWN]:
            table.add_row(case, *(_cell(answer) for answer in answers))
        console.print(table)
    if len(rows) > SHOWN:
        console.print(f"[dim]and {len(rows) - SHOWN} more[/]")


def _cell(answer: str | None) -> str:
    text = "not judged" if answer is None else safe(answer)
    return escape(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…")
