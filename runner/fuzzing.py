"""`cmfspec fuzz`: a campaign against an implementation, with our own reader as the oracle.

Law: the folder is the campaign: finds, what answered in new ways, how long it ran. A second run of the same implementation
goes on from there, of another one is refused. Exit 0: nothing was found; 1: something was, now or before; 3: nothing was
executed, a command can't be started, or an exception of our own (with the file that made it, if one did).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import queue
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from fuzz.structure import FIELDS
from runner import finds
from runner.asking import NotJudged, hello_of, say
from runner.driver import CannotStart
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.finds import Find
from runner.fuzzworker import Plan, Report, work
from runner.run import Target, target_of
from runner.terminal import safe

STATE, CORPUS, OURS = "campaign.json", "corpus", "ours"
LARGEST = 1 << 20  # bytes of an input that is taken from the corpus of an earlier run
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
WAIT = 0.5  # seconds that we wait for an event
LINE = 10.0  # seconds between lines of status where stderr is no terminal
PATIENCE = 90.0  # seconds that a worker may take to stop: it may be making a find smaller


@dataclass
class State:
    """What the campaign has done, over all its runs. since: seconds of it when the last find came."""

    implementation: str
    runs: int = 0
    executions: int = 0
    questions: int = 0
    accepted: int = 0
    repeated: int = 0
    unconfirmed: int = 0
    novel: int = 0
    seconds: float = 0.0
    since: float = 0.0
    finds: dict[str, Find] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """As it is stored: without the finds, which have folders of their own."""
        return {name: value for name, value in vars(self).items() if name != "finds"}


def fuzz_command(
    *,
    duration: str,
    executions: int | None,
    jobs: int | None,
    out: str,
    seed: int,
    max_finds: int | None,
    without: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """`cmfspec fuzz`: the exit code."""
    seconds = seconds_of(duration)
    strange = sorted(set(without) - FIELDS)
    if strange:
        raise click.UsageError(f"--without {strange[0]}: no such field; wanted one of {', '.join(sorted(FIELDS))}")
    target = target_of(dict(options))
    folder = Path(out)
    state = resumed(folder, target)
    console = Console(stderr=True, highlight=False)
    try:
        hello_of(target, console)
    except NotJudged:
        return EXIT_FAILED
    except CannotStart as error:
        say(f"cannot run {target.name}: {error}")
        return EXIT_BROKEN
    workers = jobs or len(os.sched_getaffinity(0))
    plans = [
        Plan(
            options, f"{seed}/{state.runs}", number, workers, tuple(_inputs(folder)), frozenset(state.finds),
            None if executions is None else -(-executions // workers), frozenset(without),
        )
        for number in range(workers)
    ]  # fmt: skip
    state.runs += 1
    broken = _campaign(plans, state, folder, target, seconds, max_finds, console)
    _store(folder, state)
    _show(state, folder, target, as_json)
    if broken or not state.executions:
        say(broken or "nothing was executed")
        return EXIT_BROKEN
    return EXIT_FAILED if state.finds else 0


def seconds_of(text: str) -> float:
    """`90`, `90s`, `10m`, `2h`. Raises click.UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if not match or not float(match[1]):
        raise click.UsageError(f"--time {text!r}: wanted a time such as 90s, 10m or 2h")
    return float(match[1]) * SECONDS[match[2]]


def resumed(folder: Path, target: Target) -> State:
    """The campaign of this folder, or a new one. Raises click.UsageError for that of another implementation."""
    path = folder / STATE
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"--out {folder}: it is no folder")
    if not path.exists():
        if (folder / finds.FINDINGS).exists():
            raise click.UsageError(f"{folder}: it has finds and no {STATE}: not a campaign of ours")
        return State(target.command)
    row = finds.json_object(path)
    wanted = State(target.command).row()
    for name, value in wanted.items():
        kinds = (int, float) if isinstance(value, float) else type(value)
        if not isinstance(row.get(name), kinds) or (not isinstance(value, str) and row[name] < 0):
            raise click.UsageError(
                f"{path}: {name}: found {safe(str(row.get(name))[:40])}, wanted {type(value).__name__}"
            )
    if row["implementation"] != target.command:
        raise click.UsageError(
            f"{path}: a campaign against {safe(row['implementation'][:200]) or 'the embedded reference'}; "
            "--out DIR begins another"
        )
    found = {find.signature: find for find in finds.read(folder)}
    return State(**{name: row[name] for name in wanted}, finds=found)


def _inputs(folder: Path) -> Iterator[bytes]:
    """What earlier runs and `corpus import` have left."""
    for path in sorted((folder / CORPUS).glob("*.cmf")):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_size <= LARGEST:
                yield path.read_bytes()


def kept(folder: Path, content: bytes) -> Path:
    """Put an input into the campaign's corpus, under the SHA-256 of it."""
    home = folder / CORPUS
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{hashlib.sha256(content).hexdigest()[:16]}.cmf"
    if not path.exists():
        path.write_bytes(content)
    return path


def _campaign(
    plans: list[Plan], state: State, folder: Path, target: Target, seconds: float, most: int | None, console: Console
) -> str:
    """Run the workers until the time is over; returns what broke, if something did."""
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    stop = context.Event()
    told = [context.SimpleQueue() for _ in plans]
    processes = [
        context.Process(target=work, args=(plan, events, channel, stop), daemon=False)
        for plan, channel in zip(plans, told, strict=True)
    ]
    for process in processes:
        process.start()
    began, before, status = time.monotonic(), state.seconds, _Status(console)
    broken, running, stopping = "", len(processes), 0.0
    while running:
        try:
            event = _next(events)
            state.seconds = before + time.monotonic() - began
            if event is None:
                pass
            elif event[0] == "report":
                _add(state, event[1], folder)
            elif event[0] == "find":
                _found(state, event, folder, target)
                for channel in told:
                    channel.put(event[1].signature)
            else:
                running -= 1
                if event[0] == "broken":
                    broken = broken or _ours(event, folder)
        except KeyboardInterrupt:
            seconds = 0.0
        status.show(state)
        over = state.seconds - before >= seconds or (most is not None and len(state.finds) >= most) or bool(broken)
        if over and not stopping:
            stopping = time.monotonic()
            stop.set()
        late = stopping and time.monotonic() - stopping > PATIENCE
        if late or (event is None and not any(process.is_alive() for process in processes)):
            break
    if running and not broken and not stopping:
        broken = "a worker died without a word"
    status.end()
    for process in processes:
        process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()
    return broken


def _next(events: Any) -> Any:
    try:
        return events.get(timeout=WAIT)
    except queue.Empty:
        return None


def _add(state: State, report: Report, folder: Path) -> None:
    for name in ("executions", "questions", "accepted", "repeated", "unconfirmed"):
        setattr(state, name, getattr(state, name) + getattr(report, name))
    state.novel += len(report.novel)
    for content in report.novel:
        kept(folder, content)


def _found(state: State, event: tuple[Any, ...], folder: Path, target: Target) -> None:
    """Workers number their own executions: what is stored counts those of the campaign."""
    _, find, content, original = event
    known = state.finds.get(find.signature)
    if known is None:
        state.since = state.seconds
        find = Find(**{**vars(find), "executions": state.executions, "seconds": round(state.seconds, 1)})
    elif known.size <= find.size:
        return
    state.finds[find.signature] = find
    finds.write(folder, find, content, original, target.command)
    _store(folder, state)


def _ours(event: tuple[Any, ...], folder: Path) -> str:
    """An exception of our own: the file that made it is kept, since it is a find in us."""
    _, text, content = event
    if content is None:
        return str(text)
    home = folder / OURS
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{hashlib.sha256(content).hexdigest()[:16]}.cmf"
    path.write_bytes(content)
    return f"{text}our own reader broke on {path}: nothing is said about the implementation"


def _store(folder: Path, state: State) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / STATE
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(state.row(), indent=1) + "\n", "ascii")
    beside.replace(path)


class _Status:
    """One live line on a terminal, elsewhere a line now and then."""

    def __init__(self, console: Console) -> None:
        self._live = console.status("starting") if console.is_terminal else None
        self._last = time.monotonic()
        self._before: tuple[float, int] | None = None
        self._rate = 0.0
        if self._live:
            self._live.start()

    def show(self, state: State) -> None:
        """Say how it goes."""
        now = time.monotonic()
        if self._before is None:
            self._before = now, state.executions
        then, executions = self._before
        if now - then >= 2.0:
            self._rate = (state.executions - executions) / (now - then)
            self._before = now, state.executions
        if self._live:
            self._live.update(line_of(state, self._rate))
        elif now - self._last >= LINE:
            self._last = now
            print(line_of(state, self._rate), file=sys.stderr)

    def end(self) -> None:
        """No more of it."""
        if self._live:
            self._live.stop()


def line_of(state: State, rate: float) -> str:
    """The status line."""
    share = f"{state.accepted / state.executions:.0%}" if state.executions else "·"
    last = f", last {_clock(state.seconds - state.since)} ago" if state.finds else ""
    return (
        f"{_clock(state.seconds)}  {state.executions} executions, {rate:.0f}/s, {share} valid  "
        f"{state.novel} new ways to answer  {len(state.finds)} finds{last}"
    )


def _clock(seconds: float) -> str:
    whole = int(max(0.0, seconds))
    return (
        f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
    )


def _show(state: State, folder: Path, target: Target, as_json: bool) -> None:
    found = sorted(state.finds.values(), key=lambda find: find.seconds)
    if as_json:
        row = {
            **state.row(),
            "finds": [{**vars(find), "folder": str(folder / finds.FINDINGS / find.name)} for find in found],
        }
        json.dump(row, sys.stdout, indent=1)
        print()
        return
    share = state.accepted / state.executions if state.executions else 0.0
    print(
        f"{safe(target.name)}: {state.executions} executions ({state.questions} questions) in {_clock(state.seconds)}, "
        f"{share:.0%} of the files valid, {state.novel} new ways to answer, {state.unconfirmed} not confirmed"
    )
    for find in found:
        rules = f" [{', '.join(find.rules)}]" if find.rules else ""
        print(f"{find.outcome} at {find.op}{rules}: {safe(find.got[:160])}")
        print(f"  {folder / finds.FINDINGS / find.name}: {find.size} bytes, after {_clock(find.seconds)}")
    print(f"{len(found)} finds" if found else "nothing was found")
