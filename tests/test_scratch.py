"""The quick look at a scratch folder says nothing that the long one would not say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cmfspec.contract.outcome import Protocol, Resource
from runner.scratch import ENTRY, Scratch

LIMIT = 64 * 1024


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    made = Scratch(str(tmp_path), LIMIT)
    yield made
    made.close()


def answers(scratch: Scratch, count: int, size: int) -> None:
    for _ in range(count):
        Path(scratch.new_out()).write_bytes(b"x" * size)


def tmp_elsewhere(scratch: Scratch) -> None:
    """A link in the place of TMPDIR."""
    os.rmdir(scratch.tmp)
    os.symlink("/", scratch.tmp)


def folder_as_answer(scratch: Scratch) -> None:
    os.mkdir(out := scratch.new_out())
    Path(f"{out}/full").write_bytes(b"x" * 2 * LIMIT)


PAST: dict[str, Callable[[Scratch], object]] = {
    "a file in TMPDIR": lambda scratch: Path(f"{scratch.tmp}/x").write_bytes(b"x" * 2 * LIMIT),
    "a file beside the placed ones": lambda scratch: Path(f"{scratch.path}/x").write_bytes(b"x" * 2 * LIMIT),
    "many empty files": lambda scratch: [Path(f"{scratch.tmp}/{n}").touch() for n in range(LIMIT // ENTRY)],
    "one large answer": lambda scratch: answers(scratch, 1, 2 * LIMIT),
    "many small answers": lambda scratch: answers(scratch, LIMIT // ENTRY, 1),
    "a folder as an answer": folder_as_answer,
}
WITHIN: dict[str, Callable[[Scratch], object]] = {
    "nothing": lambda _: None,
    "an answer": lambda scratch: answers(scratch, 1, 100),
    "an answer that never came": lambda scratch: scratch.new_out(),
    "a file in TMPDIR": lambda scratch: Path(f"{scratch.tmp}/x").write_bytes(b"x"),
    "no TMPDIR": lambda scratch: os.rmdir(scratch.tmp),
    "TMPDIR is a link": tmp_elsewhere,
}


@pytest.mark.parametrize("vice", PAST.values(), ids=PAST)
def test_a_folder_past_its_limit_is_found_at_settle(scratch: Scratch, vice: Callable[[Scratch], object]) -> None:
    scratch.place(b"placed", None)
    vice(scratch)
    assert scratch.overfull()
    fault = scratch.settle()
    assert fault
    assert fault.kind is Resource


@pytest.mark.parametrize("virtue", WITHIN.values(), ids=WITHIN)
def test_a_folder_within_its_limit_settles_and_goes_on(scratch: Scratch, virtue: Callable[[Scratch], object]) -> None:
    path = scratch.place(b"placed", None)
    virtue(scratch)
    assert scratch.settle() is None
    assert not os.path.exists(path)
    assert scratch.settle() is None


def test_a_folder_that_is_gone_is_a_changed_input(scratch: Scratch) -> None:
    scratch.place(b"placed", None)
    shutil.rmtree(scratch.path)
    fault = scratch.settle()
    assert fault
    assert fault.kind is Protocol
    assert os.path.exists(scratch.place(b"again", None))
