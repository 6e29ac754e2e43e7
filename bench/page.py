"""The page that `python -m bench` writes."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Measured

HEAD = """# Performance

Written by `python -m bench`, not by hand. A row is a ratio: how many times as fast we are as another way to do the same work,
minimum to minimum, both timed in turns in one run; the ratio of the medians stands beside it. The rates are this machine's
and compare with nothing: {machine}.

| row | ratio | medians | aim | we | they | turns |
|---|--:|--:|--:|--:|--:|--:|
"""
BOUNDS = """
## Short of the aim

What stops them, measured in the same turns: a third way, in the last column, does without it. Where even that is short of
the aim, the aim is out of this arithmetic's reach; what lies between is the cost of what the third way leaves out.

| row | ratio | aim | at the bound | the bound |
|---|--:|--:|--:|---|
"""


def page(found: Sequence[Measured], machine: str) -> str:
    """The whole page."""
    rows = [
        f"| {each.row.name} | {each.ratio:.2f} | {each.median_ratio:.2f} | {each.row.aim:.2f} "
        f"| {each.rate(each.ours):,.0f} {each.row.unit}/s | {each.rate(each.other):,.0f} {each.row.unit}/s "
        f"| {each.turns} |\n"
        for each in found
    ]
    legend = [f"- **{each.row.name}**: {each.row.ours}; against {each.row.other}.\n" for each in found]
    return HEAD.format(machine=machine) + "".join(rows) + "\n" + "".join(legend) + _short(found)


def _short(found: Sequence[Measured]) -> str:
    """The rows whose aim is not met, and what was measured of the reason."""
    short = [
        f"| {each.row.name} | {each.ratio:.2f} | {each.row.aim:.2f} | {each.bound_ratio:.2f} | {each.row.bound} |\n"
        for each in found
        if each.ratio < each.row.aim and each.bound_ratio is not None
    ]
    return BOUNDS + "".join(short) if short else ""
