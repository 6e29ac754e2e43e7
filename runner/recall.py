"""A run's memory: the stream of the last run, and going on with one that was cut short.

Law: every run leaves its stream in `last.jsonl` of its results folder. `--resume` goes on only with the same run: same
suite and cases, same command line, same implementation down to its files, same waivers and baseline; else what is told at
the end was never so at one time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from runner.reading import Read, Section, cases_by_id, read
from runner.stream import Stream, Tee

LAST = "last.jsonl"
SAME = ("profile", "selection", "cases", "implementation", "artifacts", "inputs", "rerun")  # members of a header


def last_failed(out: str) -> tuple[frozenset[str], int]:
    """(ids of the stored cases that failed in the last run, how many drawn ones did). Raises BadFile; click.UsageError if no
    run is remembered."""
    path = Path(out) / LAST
    if not path.exists():
        raise click.UsageError(f"--last-failed: no run is remembered in {path}")
    failed = [verdict for section in read(str(path)).sections for verdict in section.verdicts if verdict.failed]
    stored = frozenset(verdict.case.id for verdict in failed if verdict.case.id in cases_by_id())
    return stored, sum(verdict.case.id not in stored for verdict in failed)


def unfinished(json_file: str | None, out: str, argv: Sequence[str]) -> Read | None:
    """The stream to go on with, None if there is none yet. Raises BadFile; click.UsageError for another run's."""
    path = json_file or str(Path(out) / LAST)
    if path == "-":
        raise click.UsageError("--resume: wanted a stream in a file, not on stdout")
    if not os.path.lexists(path):
        return None
    found = read(path)
    for section in found.sections:
        if _words(section.header.argv) != _words(argv):
            was, now = " ".join(_words(section.header.argv)), " ".join(_words(argv))
            raise click.UsageError(f"--resume: {section.where} is the stream of `{was}`, not of `{now}`")
        if section.footer is None and section is not found.sections[-1]:
            raise click.UsageError(f"--resume: {section.where} did not end, and another run follows it")
    return found


def expect_same(section: Section, header: Mapping[str, Any]) -> None:
    """Raises click.UsageError if the section is of another run than the header that we would write."""
    for name in SAME:
        was, now = section.raw.get(name), header[name]
        if was != now:
            raise click.UsageError(f"--resume: {section.where} is another run's: {name} was {was}, and is {now}")


def open_streams(json_file: str | None, out: str, kept: Read | None, remark: Callable[[str], None]) -> Tee:
    """Where the lines go: the file that the user wants, and the memory. A memory that can't be written is only remarked upon,
    unless it is what is resumed. Raises OSError."""
    last = Path(out) / LAST
    whole = kept.whole if kept else 0
    if json_file and json_file != "-" and os.path.realpath(json_file) == os.path.realpath(last):
        json_file = None
    wanted = Stream(json_file, whole)
    try:
        last.parent.mkdir(parents=True, exist_ok=True)
        memory = Stream(str(last), 0 if json_file else whole)
    except OSError as error:
        if kept and not json_file:
            raise
        remark(f"{last}: {error.strerror}; this run is not remembered")
        return Tee(wanted)
    if json_file and kept:
        memory.put(Path(kept.path).read_bytes()[:whole])
    return Tee(wanted, memory)


def _words(argv: Sequence[str]) -> list[str]:
    return [word for word in argv if word != "--resume"]
