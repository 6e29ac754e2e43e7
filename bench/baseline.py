"""Baselines: a reviewed file for each row, `bench/baselines/<row>.json`, and what falls short of it.

Law: a ratio below 0.7 of its baseline fails; so does a row without a baseline or one that could not be measured: what was
not measured is not fast.
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.measure import Measured

FOLDER = Path(__file__).parent / "baselines"
ENOUGH = 0.7


class BadBaseline(ValueError):
    """A file that is no baseline: a sentence that names it."""


def read(name: str, folder: Path = FOLDER) -> float | None:
    """The ratio that is kept for a row, None if there is none. Raises BadBaseline."""
    path = folder / f"{name}.json"
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadBaseline(f"{path}: not JSON: {error}") from None
    ratio = kept.get("ratio") if isinstance(kept, dict) else None
    if not isinstance(ratio, (int, float)) or isinstance(ratio, bool) or not 0 < ratio < float("inf"):
        raise BadBaseline(f'{path}: found {str(kept)[:60]!r}, wanted {{"ratio": a number above 0, …}}')
    return float(ratio)


def write(measured: Measured, machine: str, folder: Path = FOLDER) -> None:
    """Keep what was measured."""
    folder.mkdir(exist_ok=True)
    kept = {"ratio": round(measured.ratio, 3), "median": round(measured.median_ratio, 3), "machine": machine}
    (folder / f"{measured.row.name}.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def falls_short(name: str, ratio: float, folder: Path = FOLDER) -> str:
    """Why a ratio is not good enough, or nothing. Raises BadBaseline."""
    kept = read(name, folder)
    if kept is None:
        return f"{name}: no baseline; `python -m bench --rebase -k {name}` writes one"
    if ratio < ENOUGH * kept:
        return f"{name}: {ratio:.2f} is below {ENOUGH} of the baseline, {kept:.2f}"
    return ""
