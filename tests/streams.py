"""Streams as a run would write them, made without one, for the tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cmfspec.contract.protocol import Hello
from cmfspec.contract.rule import OBSERVATION, load_catalogue
from runner.judge import Verdict
from runner.select import Selection, select
from runner.stream import Stream, case_line, footer, header

load_catalogue()


def verdicts(pattern: str | None, failing: Mapping[str, str] | None = None, **more: Any) -> list[Verdict]:
    """A verdict for each case of a pattern: PASS, or OBSERVED; `failing` is rule or case to outcome."""
    found = []
    for rule, case in select("certify", pattern).cases:
        outcome = (failing or {}).get(case.id) or (failing or {}).get(rule.id)
        if outcome:
            found.append(Verdict(rule, case, outcome, "a refusal", "open: accepted", 0.001, **more))
        elif rule.tier == OBSERVATION:
            found.append(Verdict(rule, case, "OBSERVED", "anything: the text is silent", "open: accepted", 0.001))
        else:
            found.append(Verdict(rule, case, "PASS", "", "", 0.001))
    return found


def lines(
    pattern: str | None,
    found: Iterable[Verdict],
    *,
    command: str = "./r",
    ended: bool = True,
    more: Mapping[str, Any] | None = None,
    stopped: str = "",
    **end: Any,
) -> list[dict[str, Any]]:
    """The lines of one implementation's section. more: members of the header; end: of the footer."""
    told, selection = [*found], select("certify", pattern)
    hello = Hello(protocol=1, name="r", version="1", operations=["open"], features=[], dtypes=[])
    first = {"rerun": f"cmfspec run --impl {command} -k {{case}}", "artifacts": {}, "inputs": {}, **(more or {})}
    made = [header(selection, command, hello, ["run", "--impl", command], first), *map(case_line, told)]
    if ended:
        last = footer(selection, told, stopped)
        failing = any(verdict.fails_the_run for verdict in told) or end.get("waivers") or stopped or not last["judged"]
        made.append({**last, "exit": int(bool(failing)), **end})
    return made


def written(path: Path, *sections: list[dict[str, Any]], tail: str = "") -> str:
    """The path of a stream with these sections, and a tail of text."""
    stream = Stream(str(path))
    for section in sections:
        for line in section:
            stream.write(line)
    stream.put(tail.encode())
    stream.close()
    return str(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A stream as it stands."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def whole(found: Iterable[Verdict]) -> Selection:
    """A selection that left nothing out, with the cases of these verdicts."""
    return Selection("certify", tuple((verdict.rule, verdict.case) for verdict in found), complete=True)
