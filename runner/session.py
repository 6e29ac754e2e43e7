"""One implementation's part of a run: preflight, the cases that are still to be asked, the footer.

Law: every verdict is in the stream before the next thing happens. What an earlier sitting judged is not asked again, and
counts as if it had been judged now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from golden.cases import stored
from runner import summary
from runner.baseline import Baseline
from runner.campaign import Campaign
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.judge import Judge, Verdict
from runner.preflight import preflight, stop_of
from runner.progress import bar
from runner.reading import Section, Who
from runner.recall import expect_same
from runner.select import Selection, select
from runner.soak import soak
from runner.strangers import BadFile
from runner.stream import Tee, case_line, footer, header
from runner.target import ARGV_CAP, Target, artifacts
from runner.terminal import safe
from runner.waivers import Waivers


@dataclass(frozen=True)
class Plan:
    """What a run asks of each implementation. jobs: workers; max_fail: failures after which it stops; inputs: name to
    SHA-256 of the files that decide what fails the run; update: cut waivers that fail the run."""

    selection: Selection
    argv: tuple[str, ...]
    jobs: int
    out: Path
    seed: int = 0
    examples: int = 200
    max_fail: int | None = None
    waivers: Waivers | None = None
    update: bool = False
    inputs: dict[str, str] | None = None
    observations: bool = False


@dataclass(frozen=True)
class Judged:
    """What came of one implementation. footer: None if the run could not go on."""

    who: Who
    verdicts: tuple[Verdict, ...]
    footer: dict[str, Any] | None

    @property
    def exit(self) -> int:
        """0, 1, or 3."""
        return EXIT_BROKEN if self.footer is None else int(self.footer["exit"])


def judge_one(
    plan: Plan,
    target: Target,
    stream: Tee,
    consoles: tuple[Console, Console],
    *,
    kept: Section | None = None,
    baseline: Baseline | None = None,
    before: Sequence[Judged] | None = None,
) -> Judged:
    """Judge it and show what came. consoles: for results and for remarks; kept: what an earlier sitting judged; before: the
    implementations that were judged before, given for the last one, which also answers for the waivers. Raises CannotStart,
    click.UsageError for a `kept` that is another run's."""
    results, remarks = consoles
    if kept and kept.footer:
        done = Judged(kept.header.implementation, tuple(kept.verdicts), msgspec.to_builtins(kept.footer))
        return _shown(plan, target, results, done, resumed="nothing was missing in its stream")
    link = target.new_link()
    try:
        steps = list(preflight(link))
        hello = None if steps[0].problem else link.hello
    finally:
        link.close()
    more = {"rerun": target.rerun, "artifacts": artifacts(target, hello), "inputs": plan.inputs or {}}
    first = header(plan.selection, target.name, hello, [*plan.argv], more)
    who = msgspec.convert(first["implementation"], Who)
    if kept:
        if steps[-1].problem:
            summary.show_stop(results, target.name, stop_of(steps[-1]))
            return Judged(who, tuple(kept.verdicts), None)
        expect_same(kept, first)
    else:
        stream.write(first)
    if steps[-1].problem:
        end = footer(plan.selection, (), f"preflight: {steps[-1].name}") | {"preflight": stop_of(steps[-1])}
        return _ended(plan, target, stream, consoles, Judged(who, (), end), before)
    results.print(summary.title(plan.selection.profile, target.name, who), soft_wrap=True)
    started = time.monotonic()
    verdicts, stopped = _ask(plan, target, stream, remarks, kept, baseline)
    end = footer(plan.selection, verdicts, stopped) | {"seconds": round(time.monotonic() - started, 3)}
    if baseline:
        end["baseline"] = baseline.compared(verdicts)
    return _ended(plan, target, stream, consoles, Judged(who, tuple(verdicts), end), before)


def _ask(
    plan: Plan, target: Target, stream: Tee, remarks: Console, kept: Section | None, baseline: Baseline | None
) -> tuple[list[Verdict], str]:
    """(all verdicts, those kept first; why it stopped early, if it did)."""
    verdicts = [*kept.verdicts] if kept else []
    asked = kept.asked if kept else set()
    todo = tuple((rule, case) for rule, case in plan.selection.cases if case.id not in asked)
    failing = sum(verdict.fails_the_run for verdict in verdicts)
    if kept:
        remarks.print(f"resumed: {len(asked)} cases are judged, {len(todo)} are not")

    def enough() -> bool:
        return plan.max_fail is not None and failing >= plan.max_fail

    with bar(remarks, "judging", len(todo)) as advance:

        def heard(verdict: Verdict) -> None:
            nonlocal failing
            told = replace(
                verdict,
                waived=plan.waivers.reason(verdict) if plan.waivers else "",
                known=baseline is not None and baseline.knows(verdict),
            )
            verdicts.append(told)
            stream.write(case_line(told))
            failing += told.fails_the_run
            if enough():
                campaign.stop()
            advance(1, f"{told.rule.id}{f' {failing} failed' if failing else ''}")

        def keep_drawn(verdict: Verdict, judge: Judge) -> Verdict:
            return campaign.keep(replace(verdict, drawn=True), judge)

        campaign = Campaign(target.new_link, heard, target.outside, plan.out, target.rerun)
        if todo and not enough():
            campaign.run(todo, plan.jobs if target.outside else 1)
        if plan.selection.profile == "soak":
            soaked = {verdict.rule.id for verdict in verdicts if verdict.drawn}
            rules = [rule for rule in plan.selection.rules if rule.id not in soaked]
            soak(target.new_link, _until(enough, rules), heard, seed=plan.seed, examples=plan.examples, keep=keep_drawn)
    judged = sum(not verdict.drawn for verdict in verdicts)
    cut = judged < len(plan.selection.cases) or (plan.selection.profile == "soak" and enough())
    return verdicts, f"--max-fail {plan.max_fail}" if cut else ""


def _ended(
    plan: Plan,
    target: Target,
    stream: Tee,
    consoles: tuple[Console, Console],
    judged: Judged,
    before: Sequence[Judged] | None,
) -> Judged:
    """Complete the footer, write and show it."""
    results, remarks = consoles
    end = judged.footer or {}
    if plan.waivers and before is not None:
        end["waivers"] = _troubles(plan, [*before, judged], target.spawns, remarks)
    lost = end["baseline"]["lost"] if "baseline" in end else []
    failing = any(verdict.fails_the_run for verdict in judged.verdicts)
    end["exit"] = EXIT_FAILED if failing or lost or end["stopped"] or end.get("waivers") or not end["judged"] else 0
    stream.write(end)
    return _shown(plan, target, results, judged)


def _shown(plan: Plan, target: Target, results: Console, judged: Judged, resumed: str = "") -> Judged:
    if resumed:
        results.print(f"{summary.title(plan.selection.profile, target.name, judged.who)}: {resumed}", soft_wrap=True)
    summary.show_end(
        results, target.name, judged.verdicts, judged.footer or {}, target.rerun, observations=plan.observations
    )
    return judged


def _troubles(plan: Plan, runs: Sequence[Judged], spawns: bool, remarks: Console) -> list[dict[str, str]]:
    """The waivers that fail the run, once those that are to be cut are gone."""
    waivers = plan.waivers
    if waivers is None:
        return []
    suite = [(rule, case.id) for rule, cases in stored().items() for case in cases]
    reach = {case.id for _, case in select("certify", cap=ARGV_CAP if spawns else None).cases}
    found = waivers.troubles([run.verdicts for run in runs], suite, reach)
    if plan.update and found:
        try:
            waivers.cut(waiver for waiver, _ in found)
        except (BadFile, OSError) as error:
            remarks.print(f"--update-waivers cuts nothing: {error}", markup=False, soft_wrap=True)
        else:
            for waiver, why in found:
                line = f"cut {safe(waivers.path)}:{waiver.line}: {safe(str(waiver))}: {why}"
                remarks.print(line, markup=False, soft_wrap=True)
            return []
    return [{"where": f"{waivers.path}:{waiver.line}", "what": str(waiver), "why": why} for waiver, why in found]


def _until(ended: Callable[[], bool], rules: Sequence[Any]) -> Any:
    for rule in rules:
        if ended():
            return
        yield rule
