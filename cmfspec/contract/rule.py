"""Rules: a sentence of the spec, and the check that holds an implementation to it.

Law: `@rule` files one frozen `Rule` in `CATALOGUE` and changes nothing about the function. A norm that can't be asked from
outside is `untested`, with its reason; what is in neither is not written yet. Everything else about a rule (its English
sentence, its level, how an ambiguity is resolved) is in rules.json, which the tests hold the declarations to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

LITERAL, DERIVED, FAMILY, SHOULD, OBSERVATION = "LITERAL", "DERIVED", "FAMILY", "SHOULD", "OBSERVATION"
TIERS = (LITERAL, DERIVED, FAMILY, SHOULD, OBSERVATION)
GRADED = (LITERAL, DERIVED, FAMILY)  # a failure here is what «not conformant» means

READER, VERIFIER, ENGINE, WRITER, TOOL = "reader", "verifier", "engine", "writer", "tool"
NOT_WRITTEN = "not yet written"
WRITER_ONLY = "binds writers only, and no published operation asks a writer yet"
NEWER_TEXT = "only a newer English text has it"

Check = Callable[..., None]


@dataclass(frozen=True)
class Norm:
    """A row of rules.json: the rule as enumerated from the text."""

    id: str
    section: str
    rule: str
    level: str
    tier: str
    profile: str
    binds: tuple[str, ...]
    test: str
    ruling: str

    @property
    def area(self) -> str:
        """ENV, FEAT, … Q."""
        return self.id.split("-")[0]


@dataclass(frozen=True)
class Rule:
    """A norm that can be asked, with its check.

    name: the rule in plain words; why: what it is for; quote: the sentence of the text that is the law.
    draw: argument name to what it is drawn from (conformance.draws); cases: how many are drawn of a larger space;
    always: arguments that are asked besides, since somebody has failed on them.
    bugs: public reports of the same fault.
    """

    id: str
    section: str
    tier: str
    binds: str
    quote: str
    check: Check
    draw: Mapping[str, Any]
    bugs: tuple[str, ...]
    name: str
    why: str
    cases: int
    always: tuple[Mapping[str, Any], ...] = ()

    @property
    def norm(self) -> Norm:
        """The row of rules.json."""
        return norms()[self.id]


@dataclass(frozen=True)
class Untested:
    """A norm that is not asked, and why."""

    id: str
    quote: str
    because: str


CATALOGUE: dict[str, Rule] = {}
UNTESTED: dict[str, Untested] = {}


def rule(
    identity: str,
    *,
    section: str,
    tier: str,
    binds: str,
    quote: str,
    draw: Mapping[str, Any] | None = None,
    bugs: tuple[str, ...] = (),
    cases: int = 24,
    always: Iterable[Mapping[str, Any]] = (),
) -> Callable[[Check], Check]:
    """Declare the check of a rule: a function of (subject, **drawn arguments) that raises an outcome or returns.

    cases: how many cases to draw where the space of arguments is larger than that; a smaller space is taken whole.
    always: arguments that are stored besides those.
    """

    def file(check: Check) -> Check:
        if identity in CATALOGUE or identity in UNTESTED:
            raise ValueError(f"{identity} is declared twice")
        name = check.__name__.replace("_", " ")
        why = " ".join((check.__doc__ or "").split())
        CATALOGUE[identity] = Rule(
            identity, section, tier, binds, quote, check, draw or {}, bugs, name, why, cases, tuple(always)
        )
        return check

    return file


def untested(identity: str, *, quote: str, because: str) -> None:
    """Declare a norm that is not asked of anybody, with the reason."""
    if identity in CATALOGUE or identity in UNTESTED:
        raise ValueError(f"{identity} is declared twice")
    UNTESTED[identity] = Untested(identity, quote, because)


@cache
def norms() -> dict[str, Norm]:
    """Every row of rules.json by id, in order."""
    rows = json.loads(files("cmfspec.spec").joinpath("rules.json").read_text("utf-8"))
    return {
        row["id"]: Norm(**{**row, "section": row["section"].lstrip("§"), "binds": tuple(row["binds"])}) for row in rows
    }


@cache
def spec_text() -> str:
    """The vendored text of the spec."""
    return files("cmfspec.spec").joinpath("SPEC.zh.md").read_text("utf-8")


@cache
def load_catalogue() -> dict[str, Rule]:
    """CATALOGUE, filled by every package that registers rules under the entry point group `cmfspec.rules`."""
    for point in entry_points(group="cmfspec.rules"):
        point.load()
    return CATALOGUE


def status(identity: str) -> tuple[str, str]:
    """(`tested` or `untested`, the reason if untested)."""
    if identity in CATALOGUE:
        return "tested", ""
    return "untested", UNTESTED[identity].because if identity in UNTESTED else NOT_WRITTEN
