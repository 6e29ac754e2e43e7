"""`cmfspec rules` and `cmfspec explain`: the catalogue for people and for machines."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cmfspec.contract.rule import CATALOGUE, UNTESTED, load_catalogue, norms, status
from conformance.twins import twins_of
from golden.cases import stored


def described(identity: str) -> dict[str, Any]:
    """A rule as JSON."""
    norm, (state, because) = norms()[identity], status(identity)
    rule = CATALOGUE.get(identity)
    quote = rule.quote if rule else UNTESTED[identity].quote if identity in UNTESTED else ""
    return {
        "id": identity,
        "section": norm.section,
        "level": norm.level,
        "tier": norm.tier,
        "profile": norm.profile,
        "binds": list(norm.binds),
        "rule": norm.rule,
        "quote": quote,
        "status": state,
        "because": because,
        "twins": [twin.name for twin in twins_of(identity)],
    }


def rules_command(area: str | None, as_json: bool) -> int:
    """`cmfspec rules`: the exit code."""
    load_catalogue()
    found = [described(identity) for identity, norm in norms().items() if not area or norm.area == area.upper()]
    if not found:
        areas = ", ".join(dict.fromkeys(norm.area for norm in norms().values()))
        raise click.UsageError(f"--area {area!r}: wanted one of {areas}")
    if as_json:
        json.dump(found, sys.stdout, ensure_ascii=False, indent=1)
        print()
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("rule", "§", "tier", "status"):
        table.add_column(column, no_wrap=True)
    table.add_column("", overflow="fold")
    for row in found:
        state = "[green]tested[/]" if row["status"] == "tested" else "[dim]untested[/]"
        text = row["rule"] if row["status"] == "tested" else f"{row['rule']} [dim]({row['because']})[/]"
        table.add_row(
            row["id"],
            row["section"],
            row["tier"],
            state,
            text.replace("[", "\\[").replace("\\[dim]", "[dim]").replace("\\[/]", "[/]"),
        )
    Console(highlight=False).print(table)
    tested = sum(row["status"] == "tested" for row in found)
    print(f"{len(found)} rules, {tested} tested, {len(found) - tested} untested")
    return 0


def explain_command(identity: str, as_json: bool) -> int:
    """`cmfspec explain`: the exit code."""
    load_catalogue()
    identity = identity.upper().split("/")[0]
    if identity not in norms():
        near = [known for known in norms() if known.split("-")[0] == identity.split("-")[0]]
        hint = f"; that area has {near[0]} to {near[-1]}" if near else "; `cmfspec rules` lists them"
        raise click.UsageError(f"no rule {identity!r}{hint}")
    row, norm, rule = described(identity), norms()[identity], CATALOGUE.get(identity)
    row |= {"test": norm.test, "ruling": norm.ruling}
    if rule:
        row |= {"name": rule.name, "why": rule.why, "bugs": list(rule.bugs), "cases": len(stored().get(identity, ()))}
    if as_json:
        json.dump(row, sys.stdout, ensure_ascii=False, indent=1)
        print()
        return 0
    lines = [
        f"{identity}  §{row['section']}  {row['level']}, {row['tier']}, profile {row['profile']}, "
        f"binds {', '.join(row['binds'])}"
    ]
    if rule:
        lines += ["", f"  {rule.name}", f"  {rule.why}"]
    lines += [
        "",
        f"  the text:  {' '.join(row['quote'].split()) or '(not quoted yet)'}",
        f"  the rule:  {norm.rule}",
        f"  the test:  {norm.test}",
    ]
    if norm.ruling.strip("— "):
        lines.append(f"  ruling:    {norm.ruling}")
    lines.append(
        f"  status:    {row['status']}"
        + (f", {row['because']}" if row["because"] else f", {row['cases']} stored cases")
    )
    if row["twins"]:
        lines.append(f"  twins:     {', '.join(row['twins'])}")
    if rule and rule.bugs:
        lines.append(f"  seen in:   {', '.join(rule.bugs)}")
    print("\n".join(lines))
    return 0
