"""What the tests of isolation share: processes in a hostile mode, and the proof that nothing of them is left.

Law: a word in the environment marks all that a test starts; after the test no process carries it, and no descriptor is open.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.driver import Limits, Process
from runner.leftover import marked

HOSTILE = Path(__file__).parent / "hostile"
PYTHON = (sys.executable, "-I", "-S")
MARK = "CMFSPEC_TEST_MARK"
MIB = 1 << 20
QUICK = Limits(seconds=0.4)
LONG = Limits(seconds=20.0)
LEAN = Limits(seconds=10.0, memory=64 * MIB)
TIGHT = Limits(seconds=10.0, scratch=4 * MIB)
Make = Callable[..., Process]


def left_over(mark: str, seconds: float = 3.0) -> list[int]:
    """Who is left, given a moment."""
    until = time.monotonic() + seconds
    while (found := marked(f"{MARK}={mark}")) and time.monotonic() < until:
        time.sleep(0.02)
    return found


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A word in the environment of all that a test starts; nothing of it may be there afterwards."""
    word = uuid.uuid4().hex
    monkeypatch.setenv(MARK, word)
    descriptors = len(os.listdir("/proc/self/fd"))
    yield word
    assert left_over(word) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.fixture
def make(mark: str) -> Iterator[Make]:
    """Processes in a mode of misbehave.py; closed at the end, and their folders gone."""
    made: list[Process] = []

    def process(mode: str, limits: Limits = LONG) -> Process:
        made.append(Process([*PYTHON, str(HOSTILE / "misbehave.py"), mode], limits))
        return made[-1]

    yield process
    for each in made:
        each.close()
        assert not os.path.exists(each._scratch.path)
