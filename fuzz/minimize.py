"""The one minimiser: the smallest file that still shows the same thing.

Law: on the blueprint first (edits, tensors, sections, header fields), then on plain numbers, bytes last; a candidate is kept
if and only if `still` says so. The number of trials and the time are bounded, since each may cost a hang.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cmfspec.format.blueprint import Blueprint, canonical, to_json
from cmfspec.format.build import Edit
from cmfspec.layout import OPTIONAL
from golden.files import File

TRIALS = 200
SLOW_TRIALS, SLOW_SECONDS = 30, 60.0
_OF_A_TENSOR = re.compile(r"(dir|payload|data\.gap)\[(\d+)\](.*)")


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
    for start, stop in runs(len(blueprint.tensors)):
        tensors = blueprint.tensors[:start] + blueprint.tensors[stop:]
        yield replace(_with(file, {"tensors": tensors}), edits=without_tensors(file.edits, start, stop))


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


def without_tensors(edits: tuple[Edit, ...], start: int, stop: int) -> tuple[Edit, ...]:
    """The edits of a file without its tensors from `start` to before `stop`."""

    def moved(index: int) -> int:
        return index - (stop - start) * (index >= stop)

    kept: list[Edit] = []
    for path, value in edits:
        match = _OF_A_TENSOR.fullmatch(path)
        if path == "data.order":
            kept.append((path, [moved(index) for index in value if not start <= index < stop]))
        elif not match:
            kept.append((path, value))
        elif not start <= int(match[2]) < stop:
            kept.append((f"{match[1]}[{moved(int(match[2]))}]{match[3]}", value))
    return tuple(kept)


def runs(count: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of what to leave out of `count` things: each half first, then smaller pieces, from the end."""
    size = count // 2
    while size > 1:
        yield from ((max(0, stop - size), stop) for stop in range(count, 0, -size))
        size //= 2
    yield from ((index, index + 1) for index in reversed(range(count)))


def _with(file: File, change: dict[str, Any]) -> File:
    return replace(file, recipe=canonical(to_json(replace(file.blueprint, **change))))


def minimize_bytes(
    content: bytes, still: Callable[[bytes], bool], trials: int = TRIALS, seconds: float = SLOW_SECONDS
) -> bytes:
    """The same on plain bytes: pieces left out, then pieces set to zero, the large ones first."""
    deadline = time.monotonic() + seconds
    best, left = content, trials
    for change in (_cut, _zeroed):
        size = max(1, len(best) // 2)
        while size and len(best) > 1:
            for stop in range(len(best), 0, -size):
                candidate = change(best, max(0, stop - size), stop)
                if candidate == best:
                    continue
                if left <= 0 or time.monotonic() > deadline:
                    return best
                left -= 1
                if still(candidate):
                    best = candidate
            size //= 2
    return best


def _cut(content: bytes, start: int, stop: int) -> bytes:
    return content[:start] + content[stop:]


def _zeroed(content: bytes, start: int, stop: int) -> bytes:
    return content[:start] + bytes(len(content[start:stop])) + content[stop:]
