"""`cmfspec minimize`: a smaller file that is misjudged in the same way.

Law: first whole tensors go, then whatever the blueprint has, last plain bytes; trials and time are bounded for all of it
together. What is written was judged once more by a fresh process, and is misjudged; if nothing smaller is, the file itself
is what is written. Exit 0: it is there; 1: the file is not misjudged, or not twice in the same way, and nothing is written.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import cmfspec
from cmfspec.contract.link import Link
from cmfspec.contract.rule import load_catalogue
from cmfspec.errors import Refusal
from cmfspec.format.blueprint import Blueprint, canonical, to_json
from cmfspec.format.build import Edit, render
from cmfspec.format.container import read
from cmfspec.format.unbuild import blueprint_of
from fuzz.minimize import SLOW_TRIALS, TRIALS, minimize, minimize_bytes, runs, without_tensors
from golden.files import File
from runner.asking import hello_of, say, to_its_end
from runner.exits import EXIT_FAILED
from runner.misjudged import Misjudged, misjudged
from runner.progress import Advance, bar
from runner.reproducer import SLOW
from runner.target import Target, target_of
from runner.terminal import safe

LARGEST = 64 * 2**20  # bytes of a file that is made smaller
SPELT_OUT = 2**20  # bytes of a file whose blueprint is handled as JSON


@dataclass
class Trials:
    """How often it may still be asked, and until when. way: how the file is misjudged; best: the smallest one so far;
    judge: what says how a candidate is misjudged."""

    link: Link
    way: Misjudged
    best: bytes
    left: int
    deadline: float
    advance: Advance
    judge: Callable[[bytes, Link], Misjudged | None] = misjudged

    def still(self, content: bytes) -> bool:
        """Whether this file is misjudged in the same way. False when trials or time are used up."""
        if self.left <= 0 or time.monotonic() > self.deadline:
            return False
        self.left -= 1
        found = self.judge(content, self.link)
        if found is None or not self.way.is_like(found):
            self.advance(1)
            return False
        self.best, self.way = content, found
        self.advance(1, f"{len(content)} bytes")
        return True

    @property
    def seconds(self) -> float:
        """Time that is left."""
        return self.deadline - time.monotonic()


def minimize_command(
    path: str, *, output: str | None, trials: int | None, seconds: float, as_json: bool, **options: Any
) -> int:
    """`cmfspec minimize`: the exit code."""
    target = target_of(options)
    output = output or str(Path(path).with_suffix(".min.cmf"))
    content = _content(path)
    if Path(output).resolve() == Path(path).resolve():
        raise click.UsageError(f"-o {output}: that is the file itself")
    return to_its_end(lambda: _minimize(target, path, content, output, trials, seconds, as_json), target)


def _minimize(
    target: Target, path: str, content: bytes, output: str, trials: int | None, seconds: float, as_json: bool
) -> int:
    load_catalogue()
    remarks = Console(stderr=True, highlight=False)
    hello_of(target, remarks)
    link = target.new_link()
    try:
        way = _twice(content, link)
        if way is None:
            return EXIT_FAILED
        bound = trials or (SLOW_TRIALS if way.outcome in SLOW else TRIALS)
        with bar(remarks, f"{len(content)} bytes", bound) as advance:
            left = Trials(link, way, content, bound, time.monotonic() + seconds, advance)
            smallest(left)
        if len(left.best) > len(content):
            left.best = content
        link.renew()
        found = misjudged(left.best, link)
        if found is None or not way.is_like(found):
            say("the smaller file is not misjudged by a fresh process: the file itself is left as it is")
            left.best, found = content, way
    finally:
        link.close()
    try:
        Path(output).write_bytes(left.best)
    except OSError as error:
        raise click.UsageError(f"-o {output}: {error.strerror}") from None
    _show(path, output, content, left.best, found, as_json)
    return 0


def smallest(trials: Trials) -> None:
    """Make `trials.best` as small as the bounds allow."""
    try:
        blueprint, edits = blueprint_of(trials.best)
        content = render(blueprint, edits)
    except (ValueError, LookupError, OverflowError):
        content = b""
    if content and (content == trials.best or trials.still(content)):
        blueprint, edits = _fewer_tensors(blueprint, edits, trials)
        content = render(blueprint, edits)
        if len(content) <= SPELT_OUT:
            file = File(canonical(to_json(blueprint)), edits)
            minimize(file, lambda candidate: trials.still(candidate.content()), trials.left, trials.seconds)
    minimize_bytes(trials.best, trials.still, trials.left, trials.seconds)


def _fewer_tensors(blueprint: Blueprint, edits: tuple[Edit, ...], trials: Trials) -> tuple[Blueprint, tuple[Edit, ...]]:
    """Leave tensors out, half of them at once if that can be; on the blueprint itself, however large it is."""
    progress = True
    while progress and trials.left > 0:
        progress = False
        for start, stop in runs(len(blueprint.tensors)):
            fewer = replace(blueprint, tensors=blueprint.tensors[:start] + blueprint.tensors[stop:])
            kept = without_tensors(edits, start, stop)
            if trials.still(render(fewer, kept)):
                blueprint, edits, progress = fewer, kept, True
                break
    return blueprint, edits


def _twice(content: bytes, link: Link) -> Misjudged | None:
    """How the file is misjudged; None, said, if it is not, or not twice in the same way."""
    found = [_fresh(content, link), _fresh(content, link)]
    first, second = found
    faults = list(cmfspec.faults(content))
    if first is None and second is None:
        what = f"breaks {', '.join(dict.fromkeys(fault.rule for fault in faults))}" if faults else "is valid"
        say(f"not misjudged: by our reader the file {what}, and nothing that the implementation says contradicts it")
        return None
    if first is None or second is None or not first.is_like(second):
        names = [each.outcome if each else "nothing wrong" for each in found]
        say(f"not twice the same: {names[0]}, then {names[1]}; no smaller file would show that")
        return None
    return second


def _fresh(content: bytes, link: Link) -> Misjudged | None:
    link.renew()
    return misjudged(content, link)


def _content(path: str) -> bytes:
    """The file's bytes. Raises click.UsageError."""
    try:
        content = read(path)
    except Refusal as refusal:
        raise click.UsageError(f"{path}: {refusal.fault.found}") from None
    if len(content) > LARGEST:
        raise click.UsageError(f"{path}: found {len(content)} bytes, wanted at most {LARGEST}")
    return bytes(content)


def _show(path: str, output: str, before: bytes, after: bytes, found: Misjudged, as_json: bool) -> None:
    faults = [str(fault) for fault in cmfspec.faults(after)]
    if as_json:
        row = {
            "file": path, "out": output, "before": len(before), "after": len(after), "outcome": found.outcome, "op": found.op,
            "about": sorted(found.about), "expected": found.expected, "got": found.got, "stderr": found.stderr[-4000:],
            "faults": faults,
        }  # fmt: skip
        json.dump(row, sys.stdout, ensure_ascii=True, indent=1)
        print()
        return
    print(f"{found.outcome} at {found.op}: expected {safe(found.expected)}; got {safe(found.got)}")
    for fault in faults[:5]:
        print(f"  {safe(fault)}")
    last = [line for line in found.stderr.strip().splitlines() if line.strip()][-1:]
    if last:
        print(f"  stderr: {safe(last[0][:160])}")
    print(f"{path}: {len(before)} bytes; {output}: {len(after)} bytes, misjudged in the same way")
