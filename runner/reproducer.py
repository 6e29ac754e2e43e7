"""What a failure leaves behind: a folder from which it can be debugged without us.

Law: the file is as small as it can be made while the rule fails in the same way; request, reply and stderr are those of
that file; the last line of the note reruns exactly this case.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import cmfspec
from cmfspec.contract.link import Link
from cmfspec.contract.subject import Asked
from fuzz.minimize import SLOW_SECONDS, SLOW_TRIALS, TRIALS, minimize
from golden.cases import Case, case_of
from golden.files import File
from runner.judge import Verdict, ask
from runner.sequence import FILE, text

SLOW = ("CRASH", "TIMEOUT", "RESOURCE")
UNSHRINKABLE = ("FLAKY", "STATE_LEAK")  # one file alone does not show them
CASE = "case.json"
QUICK_SECONDS = 10.0  # for a failure that comes at once
LARGEST = 16 * 2**20  # bytes of a file that is copied; a larger one is described only
_NO_PATH = re.compile(r"[^A-Za-z0-9._-]+")


def home_of(verdict: Verdict, folder: Path) -> Path:
    """Where the reproducer of a verdict lies."""
    return folder / _NO_PATH.sub("-", verdict.case.id)


def write(verdict: Verdict, case: Case, evidence: Asked, folder: Path, rerun: str) -> str:
    """Write the folder of a failing verdict and return its path. case, evidence: as small as they could be made."""
    home = home_of(verdict, folder)
    home.mkdir(parents=True, exist_ok=True)
    if len(evidence.content) <= LARGEST:
        (home / "file.cmf").write_bytes(evidence.content)
    if evidence.exchange:
        (home / "request.json").write_text(evidence.exchange[0] + "\n", "utf-8")
        (home / "reply.json").write_text(evidence.exchange[1] + "\n", "utf-8")
    if verdict.stderr:
        (home / "stderr.txt").write_text(verdict.stderr, "utf-8", errors="replace")
    if verdict.after:
        (home / FILE).write_text(text((*verdict.after, verdict.case)), "ascii")
    described = {"case": verdict.case.id, "args": json.loads(case.args), "hole": evidence.hole}
    described |= {"outcome": verdict.outcome, "expected": verdict.expected, "got": verdict.got}
    (home / CASE).write_text(json.dumps(described, ensure_ascii=False, indent=1) + "\n", "utf-8")
    (home / "README.md").write_text(_note(verdict, rerun), "utf-8")
    return str(home)


def smallest(verdict: Verdict, link: Link) -> tuple[Case, Asked]:
    """The case with each file of its arguments made as small as it can be while the rule fails in the same way, and what
    is then asked. A smaller file must still have the same faults, or none: what is shown as wrongly accepted is wrong."""
    rule, arguments = verdict.rule, verdict.case.arguments()
    if verdict.outcome in UNSHRINKABLE:
        return verdict.case, verdict.evidence
    slow = verdict.outcome in SLOW
    best, evidence = verdict.case, verdict.evidence
    for name, value in arguments.items():
        if not isinstance(value, File):
            continue
        faults = _faults(value)

        def still(candidate: File, name: str = name, faults: frozenset[str] = faults) -> bool:
            nonlocal best, evidence
            if _faults(candidate) != faults or (faults and _faults(candidate.base)):
                return False
            case = case_of(rule.id, {**arguments, name: candidate})
            try:
                outcome, asked = ask(rule, case, link)
            except (LookupError, ValueError, StopIteration):  # the check needs what the candidate has lost
                return False
            if outcome is None or outcome.name != verdict.outcome:
                return False
            best, evidence = case, asked
            return True

        arguments[name] = minimize(
            value, still, SLOW_TRIALS if slow else TRIALS, SLOW_SECONDS if slow else QUICK_SECONDS
        )
    return best, evidence


def _faults(file: File) -> frozenset[str]:
    """The rules that a file breaks, by our own reader."""
    return frozenset(fault.rule for fault in cmfspec.faults(file.content()))


def _note(verdict: Verdict, rerun: str) -> str:
    rule, norm = verdict.rule, verdict.rule.norm
    return f"""# {rule.id}: {rule.name}

{norm.rule} ({rule.tier}, §{rule.section})

> {rule.quote}

{rule.why}

- outcome: {verdict.outcome}
- expected: {verdict.expected}
- got: {verdict.got}
- ruling: {norm.ruling}

`file.cmf` is the smallest file found that shows it; `request.json` and `reply.json` are the question about it and the answer;
`{CASE}` is the case; `cmfspec repro` asks it again of whom its options name.{_before(verdict)} Again, as it was drawn:

    {rerun}
"""


def _before(verdict: Verdict) -> str:
    if not verdict.after:
        return ""
    return f" `{FILE}` names the cases that must go before it in the same process, and the case itself, in order."
