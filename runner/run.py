"""`cmfspec run` and `cmfspec doctor`: from the options to links, a campaign, a stream and an exit code.

Law: zero cases is a broken run, and so is a command that can't be executed; neither is ever a success.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import cmfspec
from cmfspec.codecs import CODECS
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.link import Link
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import CATALOGUE, GRADED, TIERS, load_catalogue
from cmfspec.layout import IMPLEMENTED_FEATURES
from runner import summary
from runner.campaign import Campaign
from runner.driver import CannotStart, Command, Limits, Process
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.judge import Verdict
from runner.preflight import Step, preflight
from runner.select import in_order, select
from runner.soak import soak
from runner.stream import Stream, case_line, footer, header
from runner.terminal import safe

ARGV_CAP = 12  # cases of a rule that a command which starts anew for each question is asked


@dataclass(frozen=True)
class Target:
    """Whom to judge. name: for people; command: the options that name it again; new_link: makes a link to it."""

    name: str
    command: str
    new_link: Callable[[], Link]
    outside: bool
    spawns: bool = False


def target_of(options: dict[str, Any]) -> Target:
    """The implementation that the options name. Raises click.UsageError."""
    impl, argv = options.pop("impl"), options.pop("argv")
    refuse, features, dtypes = options.pop("refuse_exit"), options.pop("feature"), options.pop("dtype")
    limits = _limits(options.pop("timeout_scale"), options.pop("mem_limit"))
    if impl and argv:
        raise click.UsageError("--impl and --argv name two implementations; give one of them")
    if impl:
        words = shlex.split(impl)
        if not words:
            raise click.UsageError("--impl names no command")
        return Target(impl, f"--impl {shlex.quote(impl)}", lambda: Process(words, limits), outside=True)
    if argv:
        templates = dict(_template(entry) for entry in argv)
        settings: dict[str, Any] = {
            "refuse_exit": set(refuse) or {1},
            "features": features or IMPLEMENTED_FEATURES,
            "dtypes": dtypes or tuple(CODECS),
        }
        command = " ".join(f"--argv {shlex.quote(entry)}" for entry in argv)
        try:
            Command(templates, limits, **settings).close()
        except ValueError as error:
            raise click.UsageError(f"--argv: {error}") from None
        return Target(command, command, lambda: Command(templates, limits, **settings), outside=True, spawns=True)
    return Target("the embedded reference", "", lambda: InProcess(reference()), outside=False)


def _template(entry: str) -> tuple[str, str]:
    op, equals, command = entry.partition("=")
    if not equals:
        raise click.UsageError(f"--argv {entry!r}: wanted OP=CMD, such as open='./r {{file}}'")
    return op.strip(), command


def _limits(scale: float, memory: str) -> Limits:
    if memory.lower() == "none":
        return Limits(seconds=Limits.seconds * scale, memory=None)
    if not memory.isdecimal():
        raise click.UsageError(f"--mem-limit {memory!r}: wanted a number of MiB, or none")
    return Limits(seconds=Limits.seconds * scale, memory=int(memory) << 20)


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
    **options: Any,
) -> int:
    """`cmfspec run`: the exit code."""
    wrong = [tier for tier in tiers if tier.upper() not in TIERS]
    if wrong:
        raise click.UsageError(f"--tier {wrong[0]!r}: wanted one of {', '.join(TIERS)}")
    target = target_of(options)
    load_catalogue()
    cap = (ARGV_CAP if target.spawns else None) if cap is None else cap or None
    selection = select(profile, pattern, tuple(tier.upper() for tier in tiers), cap)
    if sequence:
        selection, jobs = in_order(sequence, selection), 1
    remarks = Console(stderr=True, highlight=False)
    if not selection.cases:
        remarks.print(
            f"[bold red]no case is selected[/] by -k {pattern!r} --tier {list(tiers)}; `cmfspec rules` lists the rules"
        )
        return EXIT_BROKEN
    results = Console(stderr=json_file == "-", highlight=False)
    stream = Stream(json_file)
    try:
        link = target.new_link()
        try:
            steps = list(preflight(link))
            hello = None if steps[0].problem else link.hello
        finally:
            link.close()
        stream.write(header(selection, target.name, hello, sys.argv[1:]))
        if steps[-1].problem:
            show_step(results, target, steps[-1])
            stream.write(
                {
                    **footer(selection, ()),
                    "complete": False,
                    "conformant": False,
                    "stopped": f"preflight: {steps[-1].name}",
                }
            )
            return EXIT_FAILED
        results.print(
            f"cmfspec {cmfspec.__version__}, profile {profile}: {target.name} ({_title(hello)})", soft_wrap=True
        )
        rerun = f"cmfspec run {target.command} -k {{case}}".replace("  ", " ")
        started = time.monotonic()
        verdicts: list[Verdict] = []
        with _progress(remarks, len(selection.cases)) as advance:

            def heard(verdict: Verdict) -> None:
                verdicts.append(verdict)
                stream.write(case_line(verdict))
                advance(verdict)

            campaign = Campaign(target.new_link, heard, target.outside, Path(out), rerun)
            campaign.run(selection.cases, (jobs or len(os.sched_getaffinity(0))) if target.outside else 1)
            if profile == "soak":
                soak(target.new_link, selection.rules, heard, seed=seed, examples=examples, keep=campaign.keep)
        end = footer(selection, verdicts)
        end["seconds"] = round(time.monotonic() - started, 3)
        stream.write(end)
        order = {identity: place for place, identity in enumerate(CATALOGUE)}
        verdicts.sort(key=lambda verdict: order[verdict.rule.id])
        summary.show(results, verdicts, end, rerun, observations=observations)
        return EXIT_FAILED if end["failed_rules"] or not end["judged"] else 0
    except CannotStart as error:
        remarks.print(f"[bold red]cannot run[/] {target.name}: {error}", markup=True)
        return EXIT_BROKEN
    except KeyboardInterrupt:
        remarks.print("[bold red]interrupted[/]: the stream has no footer")
        return EXIT_BROKEN
    finally:
        stream.close()


def doctor_command(**options: Any) -> int:
    """`cmfspec doctor`: the exit code."""
    target = target_of(options)
    console = Console(highlight=False)
    link = target.new_link()
    try:
        failed = False
        for step in preflight(link):
            failed = bool(step.problem)
            if failed:
                show_step(console, target, step)
            else:
                said = f" {_title(link.hello)}" if step.name == "hello" else ""
                console.print(f"[green]ok[/] {step.name}{said}")
        return EXIT_FAILED if failed else 0
    except CannotStart as error:
        console.print(f"[bold red]cannot run[/] {target.name}: {error}")
        return EXIT_BROKEN
    finally:
        link.close()


def show_step(console: Console, target: Target, step: Step) -> None:
    """Say why the preflight failed."""
    console.print(f"[bold red]{target.name} fails at {step.name}[/], before any rule", soft_wrap=True)
    console.print(f"  {safe(step.problem)}", markup=False, soft_wrap=True)
    console.print(f"  hint: {step.hint}", markup=False, soft_wrap=True)
    for line in step.stderr.strip().splitlines()[-5:]:
        console.print(f"  stderr: {safe(line)}", markup=False, soft_wrap=True)


def _title(hello: Any) -> str:
    parts = [hello.name, hello.version, f"in {hello.language}" if hello.language else "", hello.build]
    return escape(safe(" ".join(part for part in parts if part)))


class _progress:  # noqa: N801 - used as a function
    """A bar on a terminal, nothing elsewhere; calling it with a verdict moves it."""

    def __init__(self, console: Console, total: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("judging", total=total)
        self._failed = 0

    def __enter__(self) -> Callable[[Verdict], None]:
        self._bar.start()
        return self._advance

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _advance(self, verdict: Verdict) -> None:
        self._failed += verdict.failed and verdict.rule.tier in GRADED
        note = f" [red]{self._failed} failed[/]" if self._failed else ""
        self._bar.update(self._task, advance=1, description=f"{verdict.rule.id}{note}")
