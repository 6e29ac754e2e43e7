"""`cmfspec run` and `cmfspec doctor`: from the options to links, a campaign, a stream and an exit code.

Law: zero cases is a broken run, and so is a command that can't be executed; neither is ever a success. Several
implementations are judged one after another, each in a section of its own; the worst decides.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from cmfspec.contract.rule import TIERS, load_catalogue
from runner import differences, summary
from runner.baseline import Baseline, baseline_for
from runner.driver import CannotStart
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.preflight import preflight, stop_of
from runner.reading import Read, Who, read_whole
from runner.recall import last_failed, open_streams, unfinished
from runner.select import Selection, in_order, select
from runner.session import Judged, Plan, judge_one
from runner.strangers import BadFile
from runner.target import ARGV_CAP, Target, target_of, targets_of
from runner.terminal import safe
from runner.waivers import Waivers, load

__all__ = ["ARGV_CAP", "Target", "doctor_command", "run_command", "target_of", "targets_of"]


def run_command(
    *,
    profile: str,
    pattern: str | None,
    tiers: tuple[str, ...],
    jobs: int | None,
    cap: int | None,
    sequence: str | None,
    seed: int,
    examples: int,
    json_file: str | None,
    out: str,
    observations: bool,
    waive: str | None = None,
    update_waivers: bool = False,
    baseline: str | None = None,
    max_fail: int | None = None,
    last: bool = False,
    resume: bool = False,
    **options: Any,
) -> int:
    """`cmfspec run`: the exit code."""
    wrong = [tier for tier in tiers if tier.upper() not in TIERS]
    if wrong:
        raise click.UsageError(f"--tier {wrong[0]!r}: wanted one of {', '.join(TIERS)}")
    if update_waivers and not waive:
        raise click.UsageError("--update-waivers: wanted --waive FILE too")
    if "-" in (waive, baseline):
        raise click.UsageError("--waive and --baseline: wanted a file, not stdin")
    if sequence and (last or resume):
        raise click.UsageError(
            "--sequence asks its cases from the first to the last; --last-failed, --resume have no say"
        )
    if last and resume:
        raise click.UsageError("--resume goes on with the last run, --last-failed begins another; give one of them")
    targets = targets_of(options)
    load_catalogue()
    cap = (ARGV_CAP if targets[0].spawns else None) if cap is None else cap or None
    selection = select(profile, pattern, tuple(tier.upper() for tier in tiers), cap)
    if sequence:
        selection, jobs = in_order(sequence, selection), 1
    remarks = Console(stderr=True, highlight=False)
    results = Console(stderr=json_file == "-", highlight=False)
    try:
        if last:
            selection = _failed_last(selection, out, remarks)
        waivers = load(waive) if waive else None
        base = read_whole(baseline) if baseline else None
        bases = [baseline_for(base, target.name, len(targets) == 1) if base else None for target in targets]
        kept = unfinished(json_file, out, sys.argv[1:]) if resume else None
    except BadFile as error:
        raise click.UsageError(str(error)) from None
    if not selection.cases:
        asked = f"-k {pattern!r} --tier {list(tiers)}" + " --last-failed" * last
        remarks.print(f"[bold red]no case is selected[/] by {escape(asked)}; `cmfspec rules` lists the rules")
        return EXIT_BROKEN
    plan = Plan(
        selection, tuple(sys.argv[1:]), jobs or len(os.sched_getaffinity(0)), Path(out), seed, examples, max_fail,
        waivers, update_waivers, _inputs(waivers, baseline), observations,
    )  # fmt: skip
    try:
        stream = open_streams(json_file, out, kept, lambda text: remarks.print(text, markup=False, soft_wrap=True))
    except OSError as error:
        why = "another run is writing it" if isinstance(error, BlockingIOError) else error.strerror
        remarks.print(f"[bold red]no stream[/]: {escape(safe(json_file or out))}: {why}")
        return EXIT_BROKEN
    at = 0
    judged: list[Judged] = []
    try:
        for at, known in enumerate(bases):
            judged.append(_next(plan, targets, at, (results, remarks), stream, kept, known, judged))
            if judged[-1].footer is None:
                break
        differences.show(results, [(one.who, one.verdicts) for one in judged])
        return max(one.exit for one in judged)
    except CannotStart as error:
        remarks.print(f"[bold red]cannot run[/] {escape(safe(targets[at].name))}: {escape(safe(str(error)))}")
        return EXIT_BROKEN
    except KeyboardInterrupt:
        remarks.print("[bold red]interrupted[/]: the stream has no footer; --resume goes on with it")
        return EXIT_BROKEN
    finally:
        stream.close()


def _next(
    plan: Plan,
    targets: tuple[Target, ...],
    at: int,
    consoles: tuple[Console, Console],
    stream: Any,
    kept: Read | None,
    base: Baseline | None,
    judged: list[Judged],
) -> Judged:
    """Judge the implementation at place `at`."""
    section = kept.sections[at] if kept and at < len(kept.sections) else None
    before = judged if at + 1 == len(targets) else None
    return judge_one(plan, targets[at], stream, consoles, kept=section, baseline=base, before=before)


def _failed_last(selection: Selection, out: str, remarks: Console) -> Selection:
    stored, drawn = last_failed(out)
    if drawn:
        remarks.print(f"{drawn} failed drawn cases of the last run are not asked again; their seed draws them")
    if not stored:
        remarks.print("nothing that is stored failed in the last run")
    return selection.only(stored)


def _inputs(waivers: Waivers | None, baseline: str | None) -> dict[str, str]:
    """SHA-256 of what decides which failures count."""
    found = {"waive": waivers.sha256} if waivers else {}
    if baseline:
        found["baseline"] = hashlib.sha256(Path(baseline).read_bytes()).hexdigest()
    return found


def doctor_command(**options: Any) -> int:
    """`cmfspec doctor`: the exit code."""
    console = Console(highlight=False)
    return max(_doctor(target, console) for target in targets_of(options))


def _doctor(target: Target, console: Console) -> int:
    link = target.new_link()
    try:
        failed = False
        for step in preflight(link):
            failed = bool(step.problem)
            if failed:
                summary.show_stop(console, target.name, stop_of(step))
            else:
                said = link.hello
                about = Who(target.name, said.name, said.version, said.language, said.build)
                name = f" {summary.who(about)}" if step.name == "hello" else ""
                console.print(f"[green]ok[/] {step.name}{name}")
        return EXIT_FAILED if failed else 0
    except CannotStart as error:
        console.print(f"[bold red]cannot run[/] {escape(safe(target.name))}: {escape(safe(str(error)))}")
        return EXIT_BROKEN
    finally:
        link.close()
