"""Dice for stored cases.

Law: what they show follows from the seed alone, whatever version of anything is installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any


class Dice:
    """Random numbers that follow from a seed alone."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count = seed, 0

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit − 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._seed}#{self._count}".encode()).digest()
        return int.from_bytes(digest[:16], "big") % limit

    def one_of(self, values: Iterable[Any]) -> Any:
        """One of the values."""
        values = tuple(values)
        return values[self.below(len(values))]
