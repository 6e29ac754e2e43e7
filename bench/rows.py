"""Every row of the bench, topic by topic: a topic is a module with its `ROWS`; a new one is named here."""

from __future__ import annotations

from bench import decoding, fuzzing, hashing, opening, products, running, starting
from bench.measure import Row

ROWS: tuple[Row, ...] = tuple(
    row for topic in (running, fuzzing, opening, hashing, decoding, products, starting) for row in topic.ROWS
)
