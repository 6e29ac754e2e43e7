"""Whom to certify: its files, what it declares, and one run over every case.

Law: nothing of the profile `certify` is left out, and every case has one verdict; anything else is a broken run.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from cmfspec.contract.protocol import Hello
from runner.asking import NotJudged, say
from runner.campaign import Campaign
from runner.certificate import Artifact, Run, artifacts
from runner.command import files_of
from runner.judge import Verdict
from runner.progress import bar
from runner.select import Selection
from runner.target import Target, target_of


@dataclass(frozen=True)
class Subject:
    """words: the command lines that name files of it; options: those that named it, as they were given."""

    target: Target
    words: tuple[tuple[str, ...], ...]
    options: dict[str, Any]


def subject_of(options: dict[str, Any]) -> Subject:
    """The implementation that the options name. Raises click.UsageError."""
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    target = target_of(dict(options))
    impl, argv = options["impl"], options["argv"]
    lines: list[str] = [impl] if impl else [entry.partition("=")[2] for entry in argv]
    return Subject(target, tuple(tuple(shlex.split(line)) for line in lines), given)


def files(subject: Subject, hello: Hello) -> list[Artifact]:
    """What it is made of: what hello says, and the program and files that its command lines name. Raises NotJudged."""
    try:
        return artifacts([*hello.artifacts, *files_of(subject.words)])
    except (OSError, ValueError) as error:
        say(f"a file that hello or the command line names can't be read: {error}")
        raise NotJudged from None


def plan(target: Target, jobs: int | None, seed: int) -> tuple[Run, Run]:
    """The two runs: as stored, and shuffled with another number of processes. In this process there is one worker."""
    many = (jobs or len(os.sched_getaffinity(0))) if target.outside else 1
    other = (many // 2 if many > 1 else 2) if target.outside else 1
    return Run("stored", many), Run("shuffled", other, seed)


def judged(target: Target, selection: Selection, run: Run, console: Console) -> list[Verdict]:
    """The verdict on every case, in the order of their ids. Raises CannotStart."""
    cases = selection.cases
    if run.seed is not None:
        cases = tuple(sorted(cases, key=lambda asked: hashlib.sha256(f"{run.seed}#{asked[1].id}".encode()).digest()))
    verdicts: list[Verdict] = []
    with bar(console, f"{run.order}, {run.jobs} at a time", len(cases)) as advance:

        def heard(verdict: Verdict) -> None:
            verdicts.append(verdict)
            advance(1)

        Campaign(target.new_link, heard, target.outside).run(cases, run.jobs)
    if len(verdicts) != len(cases) or not cases or not selection.complete:
        raise RuntimeError(f"{len(verdicts)} verdicts on {len(cases)} cases")
    return sorted(verdicts, key=lambda verdict: verdict.case.id)


def outcomes(verdicts: list[Verdict]) -> dict[str, str]:
    """Case id to outcome."""
    return {verdict.case.id: verdict.outcome for verdict in verdicts}
