"""`cmfspec certificate verify`: does a certificate hold, whose is it, and does it come out the same again?

Law: yes only if form, digest, score and signature hold, the key is the one that was named (if one was), a replay (if one was
asked for) finds the same files and outcomes, and what is stated is «conformant». What can't be checked is a broken run,
never a yes. A key that nobody named is unpinned: reported, and not trusted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec
from rich.console import Console

from cmfspec.contract.rule import load_catalogue
from runner import signing
from runner.asking import SHOWN, hello_of, to_its_end
from runner.certificate import Broken, Certificate, counted, outcomes_digest, read, this_suite
from runner.certified import Subject, files, judged, outcomes, plan, subject_of
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.select import select
from runner.stream import RULE_STATES
from runner.terminal import safe

DECLARED = ("name", "version", "operations", "features", "dtypes", "kinds", "forms")  # of hello, the same at a replay


@dataclass
class Checked:
    """What was found. problems: sentences, none if it holds; trust: pinned, unpinned, unsigned, or none if that could not
    be said; broken: something could not be checked at all; replay: how much was judged again."""

    certificate: Certificate | None = None
    problems: list[str] = field(default_factory=list)
    trust: str = "none"
    broken: bool = False
    replay: dict[str, int] | None = None

    @property
    def holds(self) -> bool:
        """Whether everything that was asked for holds."""
        return self.certificate is not None and not self.problems and not self.broken

    @property
    def exit(self) -> int:
        """The exit code."""
        if self.broken:
            return EXIT_BROKEN
        conformant = self.certificate is not None and self.certificate.score.conformant
        return 0 if self.holds and conformant else EXIT_FAILED


def verify_command(
    path: str, *, pubkey: str | None, replay: bool, as_json: bool, jobs: int | None, **options: Any
) -> int:
    """`cmfspec certificate verify`: the exit code."""
    if (options["impl"] or options["argv"]) and not replay:
        raise click.UsageError("an implementation is named and --replay is not: nothing would be judged")
    pinned = signing.public_key(pubkey) if pubkey else None
    subject = subject_of(options) if replay else None
    load_catalogue()
    checked = _check(path, pinned)
    if checked.certificate and subject and not checked.problems:
        if checked.certificate.suite != this_suite():
            checked.problems.append("it can't be replayed here: another suite than the one installed has issued it")
            checked.broken = True
        else:
            checked.problems.append("the replay did not come to its end")  # unless it does
            ended = to_its_end(lambda: _replay(checked, subject, jobs), subject.target)
            checked.broken = ended == EXIT_BROKEN
    if as_json:
        json.dump(_as_json(path, checked), sys.stdout, ensure_ascii=True, indent=1)
        print()
    else:
        _show(path, checked)
    return checked.exit


def _check(path: str, pinned: str | None) -> Checked:
    """Without a replay. Raises click.UsageError for a file that can't be read."""
    checked = Checked()
    try:
        checked.certificate = read(path)
        checked.trust = _trust(checked.certificate, pinned)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except Broken as error:
        checked.problems.append(str(error))
    except signing.NoCryptography as error:
        checked.problems.append(f"its signature can't be checked: {error}")
        checked.broken = True
    return checked


def _trust(certificate: Certificate, pinned: str | None) -> str:
    """`pinned`, `unpinned` or `unsigned`. Raises Broken for a signature that is wrong or another's; NoCryptography."""
    signature = certificate.signature
    if signature is None:
        if pinned:
            raise Broken(f"it is not signed, and --pubkey wants the signature of {pinned}")
        return "unsigned"
    if not signing.signed_by(signature.public_key, signature.signature, certificate.message):
        raise Broken("its signature is not that of the key that it names")
    if pinned and signature.public_key != pinned:
        raise Broken(f"it is signed by {signature.public_key}, and --pubkey wants {pinned}")
    return "pinned" if pinned else "unpinned"


def _replay(checked: Checked, subject: Subject, jobs: int | None) -> int:
    """Judge again, in one more order; what is not the same becomes a problem."""
    certificate = checked.certificate
    if certificate is None:
        raise RuntimeError("no certificate to replay")
    stated, console = certificate.implementation, Console(stderr=True, highlight=False)
    hello = hello_of(subject.target, console)
    problems = [
        f"hello says {name} {_short(getattr(hello, name))}, not {_short(getattr(stated.hello, name))}"
        for name in DECLARED
        if getattr(hello, name) != getattr(stated.hello, name)
    ]
    found = files(subject, hello)
    before, now = {file.sha256: file.path for file in stated.artifacts}, {file.sha256: file.path for file in found}
    problems += [f"{before[sha]} of SHA-256 {sha} is not there any more" for sha in before if sha not in now]
    problems += [f"{now[sha]} of SHA-256 {sha} was not there" for sha in now if sha not in before]
    order = plan(subject.target, jobs, 1 + max(run.seed or 0 for run in certificate.runs))[1]
    came_out = outcomes(judged(subject.target, select("certify"), order, console))
    verdicts = counted(came_out)
    unlike = [
        f"{rule} came out {_counts(verdicts.get(rule, {}))}, not {_counts(counts)}"
        for rule, counts in certificate.verdicts.items()
        if verdicts.get(rule) != counts
    ]
    if not unlike and outcomes_digest(came_out) != certificate.outcomes_sha256:
        unlike = ["as many cases of each rule came out in each way, but not the same cases"]
    checked.problems[:] = problems + unlike
    checked.replay = {"files": len(found), "cases": len(came_out)}
    return 0


def states(certificate: Certificate) -> str:
    """What it states, in words."""
    stated = certificate.score
    order = (*RULE_STATES, *sorted(set(stated.rules) - {*RULE_STATES}))
    rules = ", ".join(f"{stated.rules[state]} {state.replace('_', ' ')}" for state in order if stated.rules.get(state))
    word = "conformant" if stated.conformant else f"NOT conformant, {len(stated.failed_rules)} graded rules failed"
    return f"states: {word} ({stated.cases} cases; rules: {safe(rules)})"


def signer(certificate: Certificate, trust: str = "unpinned") -> str:
    """Who signed it, and what that is worth."""
    if certificate.signature is None:
        return "not signed: anybody may have written it"
    worth = {"pinned": "the key that was named", "unpinned": "unpinned: nobody vouches for this key"}
    return f"signed by {certificate.signature.public_key}, {worth.get(trust, 'which was not checked')}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in counts.items()) or "not at all"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _as_json(path: str, checked: Checked) -> dict[str, Any]:
    found: dict[str, Any] = {"file": path, "holds": checked.holds, "trust": checked.trust, "problems": checked.problems}
    certificate = checked.certificate
    if certificate:
        signature = certificate.signature
        found |= {
            "conformant": certificate.score.conformant,
            "failed_rules": certificate.score.failed_rules,
            "suite": msgspec.to_builtins(certificate.suite),
            "this_suite": certificate.suite == this_suite(),
            "name": certificate.implementation.hello.name,
            "version": certificate.implementation.hello.version,
            "signed_by": signature.public_key if signature else None,
        }
    return found | ({"replay": checked.replay} if checked.replay else {})


def _show(path: str, checked: Checked) -> None:
    print(f"{path}: {'holds' if checked.holds else 'does not hold'}")
    for problem in checked.problems[:SHOWN]:
        print(f"  {safe(problem)}")
    if len(checked.problems) > SHOWN:
        print(f"  and {len(checked.problems) - SHOWN} more")
    certificate = checked.certificate
    if certificate is None:
        return
    hello, suite = certificate.implementation.hello, certificate.suite
    which = "this one" if suite == this_suite() else "another than this one"
    who = " ".join(part for part in (hello.name, hello.version, hello.language, hello.build) if part)
    print(f"  of {safe(who)}; files: {len(certificate.implementation.artifacts)}")
    print(
        f"  by cmfspec {safe(suite.version)}, cases {suite.cases_sha256[:16]}, {which}; issued {safe(certificate.issued)}"
    )
    print(f"  {states(certificate)}")
    print(f"  {signer(certificate, checked.trust)}")
    if checked.replay:
        print(f"  judged again: {checked.replay['cases']} cases; files: {checked.replay['files']}")
