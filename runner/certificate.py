"""The certificate: what was judged, by what, and what came of it, so that anybody can check it and judge again.

Law: a certificate is one line of canonical JSON; its digest is the SHA-256 of that JSON without `digest` and `signature`, and
a signature is PureEd25519 over a line that names its purpose and the digest's 32 bytes. Its score follows from its verdicts
and is computed again by whoever reads it. A key that the reader did not name is unpinned: it proves nothing about who signed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

import cmfspec
from cmfspec.contract.protocol import PROTOCOL, Hello
from cmfspec.contract.rule import CATALOGUE, GRADED, norms, status
from cmfspec.format.blueprint import canonical
from cmfspec.spec import digests
from golden.cases import digest as cases_digest
from golden.cases import stored
from runner.stream import RULE_STATES, rule_state

FORMAT: Literal[1] = 1
LARGEST = 8 * 2**20  # bytes of a certificate; a hello may have one of them
PURPOSE = (
    b"cmfspec certificate 1\n"  # signed in front of the digest: a key that signs models too signs no certificate by it
)

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Verdicts = dict[str, dict[str, Count]]


class Broken(Exception):
    """A certificate that does not hold, as a sentence."""


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By what was judged: the version, and SHA-256 of the stored cases and of the texts."""

    version: str
    protocol: int
    revision: str
    cases_sha256: Sha256
    spec_sha256: Sha256
    rules_sha256: Sha256
    rulings_sha256: Sha256


class Artifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the implementation. path: where it lay; bytes: its size."""

    path: str
    bytes: Count
    sha256: Sha256


class Implementation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who was judged. options: those that named it; hello: what it declares, its capabilities among it."""

    options: dict[str, Any]
    hello: Hello
    artifacts: list[Artifact]


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run over all cases. seed: of the shuffled order; jobs: processes at a time."""

    order: Literal["stored", "shuffled"]
    jobs: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    seed: int | None = None


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of it. rules, tiers: how many rules passed, failed, …; outcomes: how many cases."""

    conformant: bool
    cases: Count
    rules: dict[str, Count]
    tiers: dict[str, dict[str, Count]]
    failed_rules: list[str]
    outcomes: dict[str, Count]


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose certificate it is."""

    algorithm: Literal["Ed25519"]
    public_key: Sha256  # 32 bytes in hex, like a SHA-256
    signature: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """verdicts: rule id to how many of its cases had which outcome; outcomes_sha256: of every case with its outcome."""

    certificate: Literal[1]
    suite: Suite
    profile: Literal["certify"]
    issued: str
    implementation: Implementation
    runs: list[Run]
    verdicts: Verdicts
    outcomes_sha256: Sha256
    score: Score
    digest: Sha256 = ""
    signature: Signature | None = None

    @property
    def message(self) -> bytes:
        """What is signed."""
        return PURPOSE + bytes.fromhex(self.digest)


def this_suite() -> Suite:
    """The suite that is installed here."""
    return Suite(cmfspec.__version__, PROTOCOL, "zh", cases_digest(), **digests())


def outcomes_digest(outcomes: Mapping[str, str]) -> str:
    """SHA-256 of case ids and their outcomes, whatever order they came in."""
    return hashlib.sha256("".join(f"{case} {outcomes[case]}\n" for case in sorted(outcomes)).encode()).hexdigest()


def counted(outcomes: Mapping[str, str]) -> Verdicts:
    """Rule id to its outcomes, counted. outcomes: by case id."""
    found: dict[str, Counter[str]] = {}
    for case, outcome in outcomes.items():
        found.setdefault(case.split("/")[0], Counter())[outcome] += 1
    return {rule: dict(sorted(count.items())) for rule, count in sorted(found.items())}


def score(verdicts: Mapping[str, Mapping[str, int]]) -> Score:
    """What follows from the verdicts, by the rules of this suite. Raises KeyError for a rule that it has not."""
    states = {identity: rule_state(CATALOGUE[identity], verdicts[identity]) for identity in verdicts}
    states |= {identity: "not_run" for identity in CATALOGUE if identity not in verdicts}
    rules, tiers, outcomes = Counter(states.values()), dict[str, Counter[str]](), Counter[str]()
    rules["untested"] = sum(status(identity)[0] == "untested" for identity in norms())
    for identity, state in states.items():
        tiers.setdefault(CATALOGUE[identity].tier, Counter())[state] += 1
    for counts in verdicts.values():
        outcomes.update(counts)
    graded = {identity: states[identity] for identity in CATALOGUE if CATALOGUE[identity].tier in GRADED}
    failed = [identity for identity, state in graded.items() if state == "failed"]
    return Score(
        conformant=not failed and "passed" in graded.values() and "not_run" not in states.values(),
        cases=sum(outcomes.values()),
        rules={state: rules[state] for state in RULE_STATES},
        tiers={tier: dict(sorted(count.items())) for tier, count in tiers.items()},
        failed_rules=failed,
        outcomes=dict(sorted(outcomes.items())),
    )


def written(certificate: Certificate) -> tuple[str, str]:
    """(the line of JSON with its digest, the digest). A signature is left as it is."""
    body = msgspec.to_builtins(certificate)
    body["digest"] = _digest(body)
    return canonical(body) + "\n", body["digest"]


def read(path: str) -> Certificate:
    """The certificate in a file, if form, digest and score hold; its signature is not looked at. Raises Broken; OSError."""
    raw = _content(path)
    try:
        body = json.loads(raw.decode("utf-8"))
        form = canonical(body) + "\n"
    except (ValueError, RecursionError) as error:
        raise Broken(f"not a line of JSON: {str(error)[:120]}") from None
    if form.encode() != raw:
        raise Broken(f"not canonical JSON: byte {_first_difference(form.encode(), raw)} is not what it would be")
    try:
        certificate = msgspec.convert(body, Certificate)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Broken(f"not a certificate: {error}") from None
    if _digest(body) != certificate.digest:
        raise Broken(f"found the digest {certificate.digest}, wanted {_digest(body)}: it is not as it was issued")
    _consistent(certificate)
    return certificate


def _consistent(certificate: Certificate) -> None:
    """Its score follows from its verdicts. Of another suite's, only what needs no rules is known."""
    stated, verdicts = certificate.score, certificate.verdicts
    if [run.order for run in certificate.runs] != ["stored", "shuffled"]:
        raise Broken("found other runs than one in stored order and one shuffled")
    if certificate.suite == this_suite():
        whole = {identity: len(cases) for identity, cases in stored().items() if identity in CATALOGUE}
        if {identity: sum(counts.values()) for identity, counts in verdicts.items()} != whole:
            raise Broken("its verdicts are not those of every case of this suite")
        found = score(verdicts)
        if msgspec.to_builtins(found) != msgspec.to_builtins(stated):
            raise Broken("its score does not follow from its verdicts")
    total = sum(sum(counts.values()) for counts in verdicts.values())
    if not total or total != stated.cases or total != sum(stated.outcomes.values()):
        raise Broken(f"found {stated.cases} cases stated, {total} in the verdicts")
    if stated.conformant and stated.failed_rules:
        raise Broken("found failed rules and «conformant»")


def artifacts(paths: Iterable[str]) -> list[Artifact]:
    """Size and SHA-256 of each file, in order. Raises OSError; ValueError for what is no regular file."""
    found: list[Artifact] = []
    for path in dict.fromkeys(os.path.abspath(path) for path in paths):
        if not os.path.isfile(path):
            raise ValueError(f"{path}: no regular file")
        with Path(path).open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            found.append(Artifact(path, file.tell(), sha256))
    return found


def _digest(body: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in body.items() if name not in ("digest", "signature")}
    return hashlib.sha256(canonical(rest).encode()).hexdigest()


def _content(path: str) -> bytes:
    if not os.path.isfile(path):
        raise Broken("no regular file")
    with Path(path).open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise Broken(f"more than {LARGEST} bytes")
    return raw


def _first_difference(a: bytes, b: bytes) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
