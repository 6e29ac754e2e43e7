"""Kernels answer what the formulas answer, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmfspec.format import hash64 as hashing
from cmfspec.format.hash64 import hash64_ranges
from golden.vectors import HASH64
from tests.test_hash64 import slowly


@st.composite
def ranges(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Bytes, and ranges of them: at odd places, overlapping, of no bytes, of pieces of words."""
    data = draw(st.binary(max_size=900))
    starts = st.integers(0, len(data))
    spans = st.tuples(starts, starts).map(lambda ends: (min(ends), abs(ends[1] - ends[0])))
    return data, draw(st.lists(spans, max_size=6))


@settings(deadline=None)  # the first example compiles
@given(ranges(), st.sampled_from([8, 64, 2**20]), st.integers(1, 3))
def test_many_ranges_are_hashed_in_one_call(found: tuple[bytes, list[tuple[int, int]]], cut: int, threads: int) -> None:
    """However they are cut into pieces."""
    data, spans = found
    starts, sizes = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_CUT", cut)
        got = hashing._compiled(data, starts, sizes, threads).tolist()
    assert got == [slowly(data[start : start + size]) for start, size in spans] == hash64_ranges(data, starts, sizes)


@pytest.mark.parametrize(("data", "want"), HASH64.items(), ids=lambda value: str(value)[:24])
def test_the_vectors_of_hash64_hold_for_the_kernel(data: bytes, want: int) -> None:
    assert hashing._compiled(data, np.array([0]), np.array([len(data)])).tolist() == [want]


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, -1), (0, 5), (5, 0), (3, 2), (2**62, 2**62)])
def test_a_range_outside_is_refused(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="within 4 bytes"):
        hash64_ranges(b"1234", np.array([start]), np.array([size]))


def test_large_data_takes_the_kernel_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the same door."""
    data = np.arange(300_001, dtype=np.uint32).tobytes()[:-3]
    asked: list[int] = []
    real = hashing._compiled

    def seen(*arguments: Any) -> Any:
        asked.append(len(arguments[0]))
        return real(*arguments)

    monkeypatch.setattr(hashing, "_compiled", seen)
    monkeypatch.setattr(hashing, "worth", lambda *_: False)
    slow = hashing.hash64(data)
    assert asked == []
    monkeypatch.setattr(hashing, "worth", lambda *_: True)
    assert hashing.hash64(data) == slow
    assert asked == [len(data)]
