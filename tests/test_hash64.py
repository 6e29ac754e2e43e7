"""hash64 against vectors that three implementations agree on, and against its own definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmfspec.format.hash64 import fmix64, hash64
from cmfspec.layout import HASH_SALT, U64
from golden.vectors import HASH64, SALT_INSIDE


def slowly(data: bytes) -> int:
    """§8 word by word."""
    acc = 0
    for i in range(0, len(data), 8):
        acc ^= fmix64(int.from_bytes(data[i : i + 8].ljust(8, b"\0"), "little")) ^ (i // 8 * HASH_SALT & U64)
    return fmix64(acc ^ len(data))


@pytest.mark.parametrize(("data", "want"), HASH64.items(), ids=lambda value: str(value)[:24])
def test_the_vectors(data: bytes, want: int) -> None:
    """As bytes and as a view."""
    assert hash64(data) == want
    assert hash64(memoryview(data)) == want
    assert SALT_INSIDE.get(data) != want


@given(st.binary(max_size=700))
def test_the_fast_way_is_the_slow_way(data: bytes) -> None:
    """Across the boundary between integers and arrays."""
    assert hash64(data) == slowly(data)


def test_long_data_is_hashed_in_blocks() -> None:
    """Over the block boundary, with a partial word at the end."""
    data = bytes(range(256)) * 2100 + b"abc"
    assert hash64(data) == slowly(data)
