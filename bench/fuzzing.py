"""The fuzzer's rows: what opening costs beside decoding, and judging over a pipe beside judging in process.

Law: both ways get the same mutants, made beforehand; the amount counts only those that are accepted, since a rate of refusals
says little: `container` counts what opens, and so does `decoding`, which then decodes. A campaign counts files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from random import Random

from bench.measure import Row, Ways
from bench.running import c_reader, no_compiler
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.link import Link
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import load_catalogue
from fuzz.structure import Mutator
from fuzz.targets import TARGETS, Target, valid_files
from runner.driver import Process
from runner.misjudged import misjudged

MUTANTS, PIECE = 400, 20


@cache
def mutants() -> tuple[bytes, ...]:
    """Files as a campaign makes them."""
    dice, mutate, seeds = Random(1), Mutator(), valid_files()
    return tuple(mutate(dice, dice.choice(seeds), seeds) for _ in range(MUTANTS))


def pieces(work: Callable[[Sequence[bytes]], object], files: Sequence[bytes]) -> list[Callable[[], object]]:
    """The work on a few files at a time."""
    return [partial(work, files[start : start + PIECE]) for start in range(0, len(files), PIECE)]


def _checked(target: Target, files: Sequence[bytes]) -> int:
    return sum(target.check(raw).accepted for raw in files)


@contextmanager
def in_process() -> Iterator[Ways]:
    """Opening, and opening with decoding."""
    opened, decoded = TARGETS["container"], TARGETS["decoding"]
    accepted = _checked(opened, mutants())
    yield Ways(pieces(partial(_checked, opened), mutants()), pieces(partial(_checked, decoded), mutants()), accepted)


@contextmanager
def external() -> Iterator[Ways]:
    """A worker's judging of the C reader, over a pipe, and of our own reader, in this process."""
    load_catalogue()
    with closing(Process([c_reader()])) as process, closing(InProcess(reference())) as own:
        process.start()
        files = mutants()[: MUTANTS // 4]

        def judged(link: Link, some: Sequence[bytes]) -> int:
            return sum(misjudged(raw, link) is None for raw in some)

        yield Ways(pieces(partial(judged, process), files), pieces(partial(judged, own), files), len(files))


ROWS = (
    Row("fuzz-open", "open a mutant", "open it and decode every tensor", "accepted files", 1.2, in_process),
    Row(
        "fuzz-judge", "judge the C reader by a mutant, over a pipe", "judge our own reader by it, in process",
        "files", 0.5, external, no_compiler,
    ),
)  # fmt: skip
