"""Every row of the bench, topic by topic: a topic is a module with its `ROWS`; a new one is named here."""

from __future__ import annotations

from bench import fuzzing, opening, running
from bench.measure import Row

ROWS: tuple[Row, ...] = (*running.ROWS, *fuzzing.ROWS, *opening.ROWS)
