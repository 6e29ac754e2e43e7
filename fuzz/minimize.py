"""The one minimiser: the smallest file that still shows the same thing.

Law: on the blueprint first (edits, tensors, sections, header fields), then on plain numbers; a candidate is kept if and only
if `still` says so. The number of trials and the time are bounded, since each may cost a hang.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cmfspec.format.build import Blueprint, Edit, canonical, to_json
from cmfspec.layout import OPTIONAL
from golden.files import File

TRIALS = 200
SLOW_TRIALS, SLOW_SECONDS = 30, 60.0
_RECORD = re.compile(r"dir\[(\d+)\](.*)")


def minimize(file: File, still: Callable[[File], bool], trials: int = TRIALS, seconds: float = SLOW_SECONDS) -> File:
    """The smallest variant of `file` for which `still` holds, as far as the bounds allow. `still(file)` is taken as given.

    A candidate that can't be rendered is passed over and costs no trial.
    """
    deadline = time.monotonic() + seconds
    best = file.inlined()
    left, progress = trials, True
    while progress:
        progress = False
        for candidate in smaller(best):
            if left <= 0 or time.monotonic() > deadline:
                return best
            try:
                size = len(candidate.content())
            except (KeyError, IndexError, ValueError, OverflowError):
                continue
            if weight(candidate, size) >= weight(best, len(best.content())):
                continue
            left -= 1
            if still(candidate):
                best, progress = candidate, True
                break
    return best


def weight(file: File, size: int) -> tuple[int, int]:
    """What makes one file smaller than another: its bytes, then the length of its description."""
    return size, len(canonical(file.to_json()))


def smaller(file: File) -> Iterator[File]:
    """Candidates, the boldest first."""
    blueprint = file.blueprint
    for kept in _edits(file.edits):
        yield replace(file, edits=kept)
    yield from (_with(file, change) for change in _changes(blueprint))
    for index in reversed(range(len(blueprint.tensors))):
        tensors = blueprint.tensors[:index] + blueprint.tensors[index + 1 :]
        yield replace(_with(file, {"tensors": tensors}), edits=_without_tensor(file.edits, index))


def _edits(edits: tuple[Edit, ...]) -> Iterator[tuple[Edit, ...]]:
    for place, (path, value) in enumerate(edits):
        yield edits[:place] + edits[place + 1 :]
        if path == "tail" or path.startswith("gap."):
            yield (*edits[:place], (path, value // 2), *edits[place + 1 :])


def _changes(blueprint: Blueprint) -> Iterator[dict[str, Any]]:
    for section in OPTIONAL:
        if getattr(blueprint, section):
            yield {section: b""}
    if blueprint.header:
        yield {"header": {}}
    yield from ({"header": header} for header in _without_a_key(dict(blueprint.header)))


def _without_a_key(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in node.items():
        yield {k: v for k, v in node.items() if k != key}
        if isinstance(value, dict):
            yield from ({**node, key: inner} for inner in _without_a_key(value))


def _without_tensor(edits: tuple[Edit, ...], gone: int) -> tuple[Edit, ...]:
    kept: list[Edit] = []
    for path, value in edits:
        match = _RECORD.fullmatch(path)
        if not match:
            kept.append((path, value))
        elif int(match[1]) != gone:
            kept.append((f"dir[{int(match[1]) - (int(match[1]) > gone)}]{match[2]}", value))
    return tuple(kept)


def _with(file: File, change: dict[str, Any]) -> File:
    return replace(file, recipe=canonical(to_json(replace(file.blueprint, **change))))
