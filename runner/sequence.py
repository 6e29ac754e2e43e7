"""Cases to be asked in a given order in one process: a text file with the id of a stored case on each line.

Law: what a state leak needs to be seen again is kept as such a file, and the line that is shown for it names the file.
Blank lines and those that begin with `#` say nothing; anything else that is no id is an error that names its line.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from cmfspec.contract.rule import CATALOGUE, Rule
from golden.cases import Case, stored
from runner.terminal import safe

FILE = "sequence.txt"
LARGEST = 1 << 20  # bytes; all stored cases are less
SHOWN = 60


class BadSequence(ValueError):
    """The file is no sequence: a sentence for its author."""


def text(cases: Iterable[Case]) -> str:
    """The file's content."""
    return "".join(f"{case.id}\n" for case in cases)


def read(path: str, catalogue: Mapping[str, Rule] = CATALOGUE) -> tuple[tuple[Rule, Case], ...]:
    """The cases of a file, in its order; one may come twice. Raises BadSequence."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise BadSequence(f"{path}: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise BadSequence(f"{path}: more than {LARGEST} bytes; wanted the id of a case on each line")
    known = {
        case.id: (catalogue[rule], case) for rule, cases in stored().items() if rule in catalogue for case in cases
    }
    found: list[tuple[Rule, Case]] = []
    for number, line in enumerate(raw.decode("utf-8", "backslashreplace").splitlines(), 1):
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        if word not in known:
            raise BadSequence(
                f"{path}, line {number}: found {safe(word[:SHOWN])!r}, wanted the id of a stored case, as {next(iter(known))}"
            )
        found.append(known[word])
    if not found:
        raise BadSequence(f"{path}: no line names a case")
    return tuple(found)


def again(rerun: str, case: Case, after: tuple[Case, ...], folder: str | None) -> str:
    """The command line that asks a case again, with what must go before it. rerun: with `-k {case}` in it."""
    if after and folder:
        return rerun.replace("-k {case}", f"--sequence {shlex.quote(f'{folder}/{FILE}')}")
    return rerun.replace("{case}", case.id)
