"""`python -m bench`: measure every row, and write docs/performance.md.

Law: 0 good, 1 a ratio fell short of its baseline (`--check`), 2 usage. Only a run of every row writes the page.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import click

from bench.baseline import BadBaseline, falls_short, write
from bench.measure import ROUNDS, Measured, measure
from bench.page import page
from bench.rows import ROWS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"

BUSY = 0.5  # processes that run, on average over a minute


def machine() -> str:
    """What it was measured on."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def busy() -> str:
    """What else the machine does, if that is much: two threads beside another's work wait for each other, ours less than
    those of a library that gives each its half beforehand, and the ratio flatters us."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"load {load:.1f} before anything was measured: rows of two threads will say little" if load > BUSY else ""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-k", "pattern", default="", metavar="PART", help="Only rows whose name contains this; the page stays.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True, help="Turns at least.")
@click.option("--seconds", type=click.FloatRange(min=0), help="A row goes on until then, in place of its own time.")
@click.option("--check", is_flag=True, help="Exit with 1 where a ratio is below 0.7 of its baseline.")
@click.option("--rebase", is_flag=True, help="Write the baselines anew, to be reviewed.")
def main(pattern: str, rounds: int, seconds: float | None, check: bool, rebase: bool) -> None:
    """Measure how fast it is, as ratios."""
    rows = [row for row in ROWS if pattern in row.name]
    if not rows:
        raise click.UsageError(f"-k {pattern!r}: the rows are {', '.join(row.name for row in ROWS)}")
    if noise := busy():
        click.echo(noise, err=True)
    found: list[Measured] = []
    short: list[str] = []
    for row in rows:
        lacking = row.lacks()
        if lacking:
            click.echo(f"{row.name}: not measured: {lacking}")
            short.append(f"{row.name}: not measured: {lacking}")
            continue
        measured = measure(row, rounds, seconds)
        found.append(measured)
        bound = measured.bound_ratio
        click.echo(
            f"{row.name}: {measured.ratio:.2f} × (medians {measured.median_ratio:.2f}, aim {row.aim:.2f}); "
            f"{measured.rate(measured.ours):,.0f} {row.unit}/s against {measured.rate(measured.other):,.0f}, "
            f"{measured.turns} turns" + (f"; at the bound {bound:.2f} ×" if bound is not None else "")
        )
        if rebase:
            write(measured, machine())
        elif check:
            try:
                short += filter(None, [falls_short(row.name, measured.ratio)])
            except BadBaseline as error:
                raise click.UsageError(str(error)) from None
    if len(found) == len(ROWS):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(found, machine()), "utf-8")
    if check and short:
        click.echo("\n".join(["too slow:", *short]), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
