"""`cmfspec certify`: two runs that agree become a certificate.

Law: a certificate is written only when everything was judged twice, in two orders and by different numbers of processes, with
equal outcomes, while hello and the files of the implementation stayed the same. It states the score whatever that is; exit 0
only if it is «conformant».
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from cmfspec.contract.rule import load_catalogue
from runner import signing, summary
from runner.asking import hello_of, say, to_its_end
from runner.certificate import (
    FORMAT,
    Certificate,
    Implementation,
    Signature,
    counted,
    outcomes_digest,
    score,
    this_suite,
    written,
)
from runner.certified import Subject, files, judged, outcomes, plan, subject_of
from runner.exits import EXIT_FAILED
from runner.recheck import signer, states
from runner.select import select
from runner.stream import footer
from runner.terminal import safe

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def certify_command(
    *, output: str | None, key: str | None, new_key: str | None, jobs: int | None, seed: int, **options: Any
) -> int:
    """`cmfspec certify`: the exit code."""
    if new_key:
        print(f"public key: {signing.new_key(new_key)}")
        return 0
    if not output:
        raise click.UsageError("wanted -o FILE, where the certificate goes (- for stdout)")
    _writable(output)
    private = signing.private_key(key) if key else None
    subject = subject_of(options)
    return to_its_end(lambda: _certify(subject, output, private, jobs, seed), subject.target)


def _certify(subject: Subject, output: str, private: Ed25519PrivateKey | None, jobs: int | None, seed: int) -> int:
    load_catalogue()
    selection, target = select("certify"), subject.target
    results, remarks = Console(stderr=output == "-", highlight=False), Console(stderr=True, highlight=False)
    hello = hello_of(target, results)
    made_of, runs = files(subject, hello), plan(target, jobs, seed)
    title = safe(f"{target.name} ({hello.name} {hello.version})")
    results.print(f"certifying {title}: {len(selection.cases)} cases, twice", markup=False, soft_wrap=True)
    first = judged(target, selection, runs[0], remarks)
    again = hello_of(target, results)
    second = judged(target, selection, runs[1], remarks)
    rerun = f"cmfspec run {target.command} -k {{case}}".replace("  ", " ")
    summary.show(results, first, footer(selection, first), rerun)
    one, two = outcomes(first), outcomes(second)
    unlike = [f"{case}: {one[case]}, then {two[case]}" for case in one if one[case] != two[case]]
    if unlike:
        say(
            f"no certificate: {len(unlike)} cases came out otherwise in another order, {runs[1].jobs} at a time", unlike
        )
        return EXIT_FAILED
    if again != hello:
        say("no certificate: hello was not the same twice")
        return EXIT_FAILED
    if files(subject, hello) != made_of:
        say("no certificate: a file of the implementation changed while it was judged")
        return EXIT_FAILED
    verdicts = counted(one)
    certificate = Certificate(
        certificate=FORMAT,
        suite=this_suite(),
        profile="certify",
        issued=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        implementation=Implementation(subject.options, hello, made_of),
        runs=list(runs),
        verdicts=verdicts,
        outcomes_sha256=outcomes_digest(one),
        score=score(verdicts),
    )
    certificate = msgspec.structs.replace(certificate, digest=written(certificate)[1])
    if private:
        signature = Signature("Ed25519", signing.public_of(private), signing.sign(private, certificate.message))
        certificate = msgspec.structs.replace(certificate, signature=signature)
    _write(output, written(certificate)[0])
    where = "on stdout" if output == "-" else output
    results.print(f"certificate {where} {states(certificate)}; {signer(certificate)}", markup=False, soft_wrap=True)
    return 0 if certificate.score.conformant else EXIT_FAILED


def _writable(output: str) -> None:
    """Raises click.UsageError before minutes of work would be lost."""
    folder = os.path.dirname(os.path.abspath(output))
    if output != "-" and (os.path.isdir(output) or not os.access(folder, os.W_OK)):
        raise click.UsageError(f"-o {output}: can't be written")


def _write(output: str, line: str) -> None:
    """All of it or nothing."""
    if output == "-":
        sys.stdout.write(line)
        return
    half = Path(f"{output}.{os.getpid()}.tmp")
    half.write_text(line, "ascii")
    half.replace(output)
