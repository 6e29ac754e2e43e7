"""The stream of a run: JSON lines, the one truth that every report is made from.

Law: first a header, a line for each verdict, last a footer; each line is one unbuffered write to a file opened for append,
synced each second. A stream without a footer is an incomplete run. Several implementations in one run are one such section
after another, as if their streams were concatenated. The footer counts rules, not cases: a rule with one failing case has
failed, one with nothing but «not applicable» was not judged. One run writes a file at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import cmfspec
from cmfspec.contract.outcome import PASS, UNFAILED
from cmfspec.contract.protocol import PROTOCOL, Hello
from cmfspec.contract.rule import CATALOGUE, GRADED, OBSERVATION, Rule, norms, status
from cmfspec.spec import digests
from golden.cases import digest
from runner.judge import Verdict
from runner.select import Selection

SYNC = 1.0  # seconds between syncs to disk
LOCKED = 2.0  # seconds that another run may still hold a file
KEPT_STDERR = 4000  # characters of stderr in the line of a failure

# What can come of a rule.
RULE_STATES = ("passed", "failed", "observed", "not_applicable", "beyond", "untested", "not_run")


class Stream:
    """Where the lines go: a file, stdout (`-`), or nowhere (None). Safe to write from several threads.

    keep: how many bytes of the file to keep; the lines go behind them. Raises OSError, BlockingIOError if another run writes
    the file."""

    def __init__(self, target: str | None, keep: int = 0) -> None:
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._owned = target not in (None, "-")
        self._regular = False
        self._fd: int | None = None
        if target == "-":
            sys.stdout.flush()
            self._fd = 1
        elif target is not None:
            self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
                if self._regular:
                    _lock(self._fd)
                    os.ftruncate(self._fd, keep)
            except OSError:
                os.close(self._fd)
                raise

    def write(self, message: Mapping[str, Any]) -> None:
        """One line."""
        if self._fd is None:
            return
        self.put(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n")

    def put(self, line: bytes) -> None:
        """Whole lines, as they are."""
        if self._fd is None:
            return
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]
            if self._regular and time.monotonic() - self._synced > SYNC:
                os.fsync(self._fd)
                self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and close."""
        if self._owned and self._fd is not None:
            if self._regular:
                os.fsync(self._fd)
            os.close(self._fd)
        self._fd = None


def _lock(fd: int) -> None:
    """The lock ends with us, however we end; a child that a killed run was just starting may hold it a moment longer."""
    until = time.monotonic() + LOCKED
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


class Tee:
    """Several streams that get the same lines."""

    def __init__(self, *streams: Stream) -> None:
        self._streams = streams

    def write(self, message: Mapping[str, Any]) -> None:
        """One line to each."""
        for stream in self._streams:
            stream.write(message)

    def close(self) -> None:
        """Sync and close each."""
        for stream in self._streams:
            stream.close()


def header(
    selection: Selection,
    implementation: str,
    hello: Hello | None,
    argv: list[str],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The first line: what was asked of whom. more: further members."""
    return {
        "type": "header",
        "suite": cmfspec.__version__,
        "protocol": PROTOCOL,
        "revision": "zh",
        "cases_sha256": digest(),
        **digests(),
        "profile": selection.profile,
        "selection": {
            "pattern": selection.pattern,
            "tiers": list(selection.tiers),
            "cap": selection.cap,
            "last_failed": selection.last_failed,
            "sequence": selection.sequence,
        },
        "cases": len(selection.cases),
        "implementation": {"command": implementation, **_who(hello)},
        "argv": argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **(more or {}),
    }


def _who(hello: Hello | None) -> dict[str, Any]:
    if hello is None:
        return {}
    return {name: getattr(hello, name) for name in hello.__struct_fields__ if name != "artifacts"}


def case_line(verdict: Verdict) -> dict[str, Any]:
    """The line of a verdict."""
    rule = verdict.rule
    return {
        "type": "case",
        "rule": rule.id,
        "case": verdict.case.id,
        "level": rule.norm.level,
        "tier": rule.tier,
        "outcome": verdict.outcome,
        "expected": verdict.expected,
        "got": verdict.got,
        "seconds": round(verdict.seconds, 6),
        "reproducer": verdict.reproducer,
        **({"after": [case.id for case in verdict.after]} if verdict.after else {}),
        **({"stderr": verdict.stderr[-KEPT_STDERR:]} if verdict.stderr and verdict.failed else {}),
        **({"waived": verdict.waived} if verdict.waived else {}),
        **({"known": True} if verdict.known else {}),
        **({"drawn": verdict.case.args} if verdict.drawn else {}),
    }


def rule_state(rule: Rule, outcomes: Iterable[str]) -> str:
    """What a rule's cases make of it."""
    seen = set(outcomes)
    if rule.tier == OBSERVATION:
        return "observed" if seen - {"NOT_APPLICABLE", "BEYOND"} else _unjudged(seen)
    if seen - UNFAILED:
        return "failed"
    if PASS in seen:
        return "passed"
    return "observed" if "OBSERVED" in seen else _unjudged(seen)


def _unjudged(seen: set[str]) -> str:
    if not seen:
        return "not_run"
    return "beyond" if "BEYOND" in seen else "not_applicable"


def footer(selection: Selection, verdicts: Iterable[Verdict], stopped: str = "") -> dict[str, Any]:
    """The last line: what came of it. stopped: why the run ended before its cases did, if it did."""
    outcomes: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    waived = 0
    for verdict in verdicts:
        outcomes.setdefault(verdict.rule.id, []).append(verdict.outcome)
        counts[verdict.outcome] += 1
        waived += bool(verdict.waived) and verdict.rule.tier in GRADED
    states = {identity: rule_state(rule, outcomes.get(identity, ())) for identity, rule in CATALOGUE.items()}
    rules = Counter(states.values())
    rules["untested"] = sum(status(identity)[0] == "untested" for identity in norms())
    failed = [
        identity for identity, state in states.items() if state == "failed" and CATALOGUE[identity].tier in GRADED
    ]
    judged = any(state == "passed" and CATALOGUE[identity].tier in GRADED for identity, state in states.items())
    complete = selection.complete and not stopped
    conformant = (not failed and judged) if complete else None
    return {
        "type": "footer",
        "complete": complete,
        "judged": judged or bool(failed),
        "conformant": False if stopped and not counts else conformant,
        "stopped": stopped,
        "rules": {state: rules.get(state, 0) for state in RULE_STATES},
        "tiers": _tiers(states),
        "failed_rules": failed,
        "waived": waived,
        "outcomes": dict(sorted(counts.items())),
        "cases": sum(counts.values()),
    }


def _tiers(states: Mapping[str, str]) -> dict[str, dict[str, int]]:
    tiers: dict[str, Counter[str]] = {}
    for identity, state in states.items():
        tiers.setdefault(CATALOGUE[identity].tier, Counter())[state] += 1
    return {tier: dict(sorted(count.items())) for tier, count in tiers.items()}
