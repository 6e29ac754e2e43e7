"""Stored cases: (rule, arguments), drawn once, judging for years.

Law: a case is canonical JSON; its id is the rule's and the first eight hex digits of the SHA-256 of that JSON. `smoke` is a
subset of `certify`. Where the arguments' space is no larger than the rule asks for, all of it is stored; otherwise our own
dice draw, seeded by the rule's id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from cmfspec.contract.rule import Rule
from cmfspec.format.blueprint import canonical
from golden.dice import Dice
from golden.files import File

PROMOTED = Path(__file__).parent / "promoted.jsonl"
SMOKE = 6  # cases of a rule in the smoke profile


@dataclass(frozen=True)
class Case:
    """One question to be judged. args: canonical JSON of the arguments' object."""

    rule: str
    args: str
    smoke: bool = False

    @property
    def id(self) -> str:
        """`FEAT-001/3f9a12c7`."""
        return f"{self.rule}/{hashlib.sha256(self.args.encode()).hexdigest()[:8]}"

    def arguments(self) -> dict[str, Any]:
        """The arguments as the check wants them."""
        return {name: decode(value) for name, value in json.loads(self.args).items()}


def encode(value: Any) -> Any:
    """An argument as JSON."""
    return value.to_json() if isinstance(value, File) else value


def decode(value: Any) -> Any:
    """The argument that `encode` wrote."""
    return File.from_json(value) if isinstance(value, dict) and "recipe" in value else value


def case_of(rule: str, arguments: Mapping[str, Any], smoke: bool = False) -> Case:
    """The case with these arguments."""
    return Case(rule, canonical({name: encode(value) for name, value in arguments.items()}), smoke)


def draw_cases(rule: Rule, dice: Dice) -> list[Case]:
    """The cases of a rule, in order; spread evenly over them those of smoke. dice: seeded by the rule's id."""
    names = sorted(rule.draw)
    spaces = [rule.draw[name].values for name in names]
    if all(space is not None for space in spaces) and prod(map(len, spaces)) <= rule.cases:
        drawn = [dict(zip(names, values, strict=True)) for values in product(*spaces)]
    else:
        drawn = [{name: rule.draw[name].sample(dice) for name in names} for _ in range(rule.cases)]
    unique = list(dict.fromkeys(case_of(rule.id, arguments).args for arguments in (*drawn, *rule.always)))
    step = max(1, -(-len(unique) // SMOKE))
    unique = list(dict.fromkeys((*unique, *promoted(rule.id))))
    return [Case(rule.id, args, place % step == 0) for place, args in enumerate(unique)]


def promoted(rule: str) -> list[str]:
    """The arguments of the cases of a rule that were found by a fuzzer and promoted (`cmfspec corpus promote`)."""
    lines = PROMOTED.read_text("ascii").splitlines() if PROMOTED.is_file() else []
    return [row["args"] for row in map(json.loads, lines) if row["rule"] == rule]


def store(cases: Mapping[str, list[Case]]) -> dict[str, str]:
    """File name to content: one file of JSON lines for each area."""
    areas: dict[str, list[str]] = {}
    for rule in sorted(cases):
        for case in cases[rule]:
            line = {"id": case.id, "smoke": case.smoke, "args": json.loads(case.args)}
            areas.setdefault(rule.split("-")[0], []).append(canonical(line))
    return {f"{area}.jsonl": "".join(f"{line}\n" for line in lines) for area, lines in areas.items()}


@cache
def stored() -> dict[str, tuple[Case, ...]]:
    """Rule id to its stored cases."""
    found: dict[str, list[Case]] = {}
    for line in _lines():
        row = json.loads(line)
        rule = row["id"].split("/")[0]
        found.setdefault(rule, []).append(Case(rule, canonical(row["args"]), row["smoke"]))
    return {rule: tuple(cases) for rule, cases in found.items()}


@cache
def digest() -> str:
    """SHA-256 of all stored cases: what a report says that it ran."""
    return hashlib.sha256("".join(f"{line}\n" for line in _lines()).encode()).hexdigest()


def _lines() -> Iterator[str]:
    folder = files("golden").joinpath("cases")
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if path.name.endswith(".jsonl"):
            yield from path.read_text("ascii").splitlines()
