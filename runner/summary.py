"""The result of a run for a person at a terminal.

Law: the areas first, then each failing rule with what the text says, what was expected, what came, and where to look; the
verdict last. What was not judged is counted, never hidden, and so is what is waived. It is made of nothing but what the
stream has, so that `report` prints the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import cmfspec
from cmfspec.contract.rule import CATALOGUE, GRADED, norms, status
from runner.judge import Verdict
from runner.reading import Who
from runner.sequence import again
from runner.stream import KEPT_STDERR, rule_state
from runner.terminal import safe

AREAS = {
    "ENV": "envelope", "FEAT": "required_features", "VAL": "validation", "HDR": "header", "MTP": "multi-token prediction",
    "MOE": "mixture of experts", "DIR": "directory", "DT": "dtypes", "Q": "quantisation", "BLOB": "weight blob",
    "MASK": "masks", "TOK": "tokenizer", "CHAT": "chat", "IDX": "sparse index", "HASH": "hash64 and the chain",
    "SIG": "signature", "SKILL": "skills", "SKF": "standalone skills", "SHARD": "shards", "DEFRAG": "defragmentation",
    "MOEDEFRAG": "expert defragmentation", "PIPE": "pipelines", "ANTI": "anti-features", "ENG": "engine",
}  # fmt: skip
COLUMNS = (
    ("passed", "green"),
    ("failed", "bold red"),
    ("not_applicable", "yellow"),
    ("beyond", "cyan"),
    ("observed", "cyan"),
    ("untested", "dim"),
)
SHORT = {"not_applicable": "n/a"}
BASELINE = (
    ("new", "bold red", "worse:  fails now"),
    ("lost", "bold red", "worse:  passed, and is not judged now"),
    ("better", "green", "better: passes now"),
)


def title(profile: str, name: str, said: Who) -> str:
    """The first line, with markup: whom, and what it calls itself."""
    return f"cmfspec {cmfspec.__version__}, profile {escape(safe(profile))}: {escape(safe(name))} ({who(said)})"


def who(said: Who) -> str:
    """What an implementation calls itself, as markup."""
    parts = [said.name, said.version, f"in {said.language}" if said.language else "", said.build]
    return escape(safe(" ".join(part for part in parts if part)))


def show_end(
    console: Console,
    name: str,
    verdicts: Sequence[Verdict],
    footer: Mapping[str, Any],
    rerun: str,
    *,
    observations: bool = False,
) -> None:
    """Print what came of an implementation, in the order of the catalogue."""
    if footer.get("preflight"):
        show_stop(console, name, footer["preflight"])
        _after(console, footer)
        return
    order = {identity: place for place, identity in enumerate(CATALOGUE)}
    ordered = sorted(verdicts, key=lambda verdict: order[verdict.rule.id])
    show(console, ordered, footer, rerun, observations=observations)


def show_stop(console: Console, name: str, stop: Mapping[str, str]) -> None:
    """Print at which step of the preflight it failed. stop: the footer's member `preflight`."""
    text = f"[bold red]{escape(safe(name))} fails at {escape(safe(stop['step']))}[/], before any rule"
    console.print(text, soft_wrap=True)
    console.print(f"  {safe(stop['problem'])}", markup=False, soft_wrap=True)
    console.print(f"  hint: {safe(stop['hint'])}", markup=False, soft_wrap=True)
    for line in stop["stderr"].strip().splitlines()[-5:]:
        console.print(f"  stderr: {safe(line)}", markup=False, soft_wrap=True)


def show(
    console: Console,
    verdicts: Sequence[Verdict],
    footer: Mapping[str, Any],
    rerun: str,
    *,
    observations: bool = False,
) -> None:
    """Print it. rerun: the command that asks one case again, with `{case}` in it."""
    by_rule: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_rule.setdefault(verdict.rule.id, []).append(verdict)
    console.print(_areas(by_rule))
    failing = {rule: [v for v in found if v.failed] for rule, found in by_rule.items()}
    for rule, found in failing.items():
        if found and all(v.waived or v.known for v in found):
            _excused(console, rule, found)
        elif found:
            _failure(console, rule, found, len(by_rule[rule]), rerun)
    if observations:
        for rule, found in by_rule.items():
            for verdict in found:
                if verdict.outcome in ("OBSERVED", "BEYOND"):
                    console.print(
                        f"[cyan]{rule}[/] {escape(CATALOGUE[rule].name)}: {escape(safe(verdict.got))}", soft_wrap=True
                    )
    console.print(_closing(footer), soft_wrap=True)
    _after(console, footer)


def _areas(by_rule: Mapping[str, Sequence[Verdict]]) -> Table:
    counts: dict[str, Counter[str]] = {}
    for identity, norm in norms().items():
        tested = status(identity)[0] == "tested"
        state = (
            rule_state(CATALOGUE[identity], (v.outcome for v in by_rule.get(identity, ()))) if tested else "untested"
        )
        counts.setdefault(norm.area, Counter())[state] += 1
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("area", "", *(SHORT.get(column, column) for column, _ in COLUMNS)):
        table.add_column(name, justify="right" if name not in ("area", "") else "left", no_wrap=True)
    for area, count in counts.items():
        if set(count) - {"untested", "not_run"}:
            cells = [f"[{style}]{count[name]}[/]" if count[name] else "[dim]·[/]" for name, style in COLUMNS]
            table.add_row(area, f"[dim]{AREAS[area]}[/]", *cells)
    return table


def _failure(console: Console, identity: str, found: Sequence[Verdict], asked: int, rerun: str) -> None:
    rule, norm = CATALOGUE[identity], norms()[identity]
    grade = "[bold red]failed[/]" if rule.tier in GRADED else "[yellow]failed, not graded[/]"
    console.print(
        f"\n{grade} [bold]{identity}[/] {escape(rule.name)}  "
        f"[dim]§{rule.section} {rule.tier}, {len(found)} of {asked} cases[/]",
        soft_wrap=True,
    )
    console.print(f"  [italic]{escape(' '.join(rule.quote.split()))}[/]", soft_wrap=True)
    console.print(f"  {escape(norm.rule)}", soft_wrap=True)
    found = sorted(found, key=lambda verdict: bool(verdict.waived or verdict.known))
    excused = sum(bool(verdict.waived or verdict.known) for verdict in found)
    shown = list({verdict.outcome: verdict for verdict in reversed(found)}.values())[::-1]
    for verdict in shown:
        console.print(f"  [red]{verdict.outcome}[/] [dim]{verdict.case.id}[/]")
        console.print(f"    expected {escape(safe(verdict.expected))}", soft_wrap=True)
        console.print(f"    got      {escape(safe(verdict.got))}", soft_wrap=True)
        last = [line for line in verdict.stderr[-KEPT_STDERR:].strip().splitlines() if line.strip()][-1:]
        if last:
            console.print(f"    stderr   {escape(safe(last[0][:160]))}", soft_wrap=True)
        if verdict.reproducer:
            console.print(f"    file     {escape(safe(verdict.reproducer))}/file.cmf", soft_wrap=True)
        line = safe(again(rerun, verdict.case, verdict.after, verdict.reproducer))
        console.print(f"    again    {escape(line)}", soft_wrap=True)
    if len(found) > len(shown):
        more = f", {excused} of them excused" if excused else ""
        console.print(f"  [dim]and {len(found) - len(shown)} more{more}[/]")


def _excused(console: Console, identity: str, found: Sequence[Verdict]) -> None:
    reasons = dict.fromkeys(
        f"waived: {verdict.waived}" if verdict.waived else "as in the baseline" for verdict in found
    )
    console.print(
        f"\n[yellow]failed, excused[/] [bold]{identity}[/] {escape(CATALOGUE[identity].name)}: {len(found)} cases, "
        f"{escape(safe('; '.join(reasons)))}",
        soft_wrap=True,
    )


def _after(console: Console, footer: Mapping[str, Any]) -> None:
    """What else decides the exit code: the baseline, and the waivers that fail the run."""
    against = footer.get("baseline")
    if against:
        for name, style, what in BASELINE:
            for case in against[name]:
                console.print(f"[{style}]{what}[/] {escape(safe(case))}", soft_wrap=True)
        worse = len(against["new"]) + len(against["lost"])
        unasked = f", {against['unasked']} of its cases not asked" if against["unasked"] else ""
        console.print(
            f"against {escape(safe(against['file']))}: {worse} worse, {len(against['better'])} better, "
            f"{against['known']} failures as before{unasked}",
            soft_wrap=True,
        )
    for trouble in footer.get("waivers") or ():
        text = f"{safe(trouble['where'])}: {safe(trouble['what'])}: {safe(trouble['why'])}"
        console.print(f"[bold red]waiver to be cut[/] {escape(text)}", soft_wrap=True)


def _closing(footer: Mapping[str, Any]) -> str:
    rules, cases = footer["rules"], footer["cases"]
    text = ", ".join(f"{rules[name]} {name.replace('_', ' ')}" for name, _ in COLUMNS if rules[name])
    lines = [
        f"\n{cases} cases of {cases and sum(v for k, v in rules.items() if k not in ('untested', 'not_run'))} rules: {text}"
    ]
    if footer["waived"]:
        lines.append(f"[yellow]{footer['waived']} failing cases waived[/]")
    if footer["stopped"]:
        lines.append(f"[bold red]stopped[/] early: {escape(safe(footer['stopped']))}")
    if not footer["judged"]:
        lines.append("[bold red]nothing was judged[/]: no graded rule applied, and that is not a success")
    elif footer["conformant"]:
        lines.append("[bold green]conformant[/]: no graded rule failed")
    elif footer["conformant"] is False:
        lines.append(f"[bold red]not conformant[/]: {len(footer['failed_rules'])} graded rules failed")
    else:
        verdict = (
            f"{len(footer['failed_rules'])} graded rules failed" if footer["failed_rules"] else "no graded rule failed"
        )
        lines.append(f"[bold]{verdict}[/] of those asked; a run cut short says nothing about conformance")
    return "\n".join(lines)
