"""Any file, judged: does an implementation say of it what our reader says?

Law: our reader is the oracle, and only where the text decides. A file whose only faults are OBSERVATIONs may be accepted or
refused; one that needs a feature or an encoding that hello does not declare may be refused; a fault that is not LITERAL, or
is one of a payload, may also be refused when a tensor is asked for. The kind of a refusal is not looked at, since a file may
have several faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cmfspec
from cmfspec.codecs import CODECS
from cmfspec.contract.link import Link
from cmfspec.contract.outcome import Outcome, WrongAccept, WrongReject, WrongValue
from cmfspec.contract.rule import LITERAL, OBSERVATION, norms
from cmfspec.contract.subject import Subject
from cmfspec.errors import Fault, Refusal
from cmfspec.format.blueprint import Entry
from cmfspec.format.container import Container
from cmfspec.format.view import View
from cmfspec.layout import IMPLEMENTED_FEATURES

LATER = ("DT", "Q")  # areas of payloads and their shapes, which a reader may look at when it decodes
UNASKED = ("MASK", "IDX")  # areas whose faults may wait until the section is asked for, which no operation does


@dataclass(frozen=True)
class Bytes:
    """A file as it is."""

    raw: bytes

    def content(self) -> bytes:
        """The bytes."""
        return self.raw


@dataclass(frozen=True)
class Misjudged:
    """outcome: as of a case; op: the question; about: what it was about (the rules that a wrongly accepted file breaks,
    the kind of a wrong refusal, the encoding of a wrong value, `valid` or `invalid` for all else)."""

    outcome: str
    op: str
    about: frozenset[str]
    expected: str
    got: str
    stderr: str = ""

    def is_like(self, other: Misjudged) -> bool:
        """Whether another file is misjudged in the same way as this one; it may break fewer of the same rules."""
        same = (self.outcome, self.op) == (other.outcome, other.op)
        return same and bool(other.about) == bool(self.about) and other.about <= self.about


@dataclass
class _Question:
    """What is being asked, for whoever catches the outcome."""

    op: str = "open"
    about: frozenset[str] = frozenset()


def misjudged(content: bytes, link: Link, known: tuple[Fault, ...] | None = None) -> Misjudged | None:
    """How the file is misjudged, None if it is not. known: its faults, from whoever has them already. Raises CannotStart."""
    faults = tuple(cmfspec.faults(content)) if known is None else known
    question = _Question(about=frozenset({"invalid" if faults else "valid"}))
    outcome: Outcome | None = None
    try:
        subject = Subject(link)
        if faults:
            _invalid(subject, content, faults, question)
        else:
            _valid(subject, content, question)
    except Outcome as raised:
        outcome = raised
    try:
        link.settle()
    except Outcome as raised:
        outcome = outcome or raised
    if outcome is None or not outcome.graded:
        return None
    return Misjudged(outcome.name, question.op, question.about, outcome.expected, outcome.got, outcome.stderr)


def _invalid(subject: Subject, content: bytes, faults: tuple[Fault, ...], question: _Question) -> None:
    answer = subject.open(Bytes(content))
    counted = _counted(subject, content, faults)
    if not answer.accepted or not counted:
        return
    if not any(norms()[rule].tier == LITERAL and norms()[rule].area not in LATER for rule in counted):
        question.op = "tensor"
        if all(norms()[rule].area in UNASKED for rule in counted) or _refused_later(subject, content):
            return
    question.op, question.about = "open", counted
    raise WrongAccept(f"a refusal: it breaks {', '.join(sorted(counted))}", str(answer))


def _counted(subject: Subject, content: bytes, faults: tuple[Fault, ...]) -> frozenset[str]:
    """The rules for which a reader that declares this must refuse the file."""
    features = View(content).envelope["required_features"]
    unknown = {bit for bit in range(32) if features >> bit & 1} - {*IMPLEMENTED_FEATURES, *subject.hello.features}
    dtypes = {str(dtype) for dtype in subject.hello.dtypes}
    return frozenset(
        fault.rule
        for fault in faults
        if norms()[fault.rule].tier != OBSERVATION
        and fault.kind != "Other"  # a limit of our reader, which no other has to have
        and not (fault.kind == "UnsupportedFeature" and not unknown)
        and not (fault.field.endswith(".dtype") and fault.found in dtypes)
    )


def _refused_later(subject: Subject, content: bytes) -> bool:
    """Whether a tensor, of an encoding that hello declares, is refused when it is asked for."""
    records = View(content).directory.records
    asked = [index for index, record in enumerate(records) if int(record["dtype"]) in _decoded(subject)]
    return any(not subject.tensor(Bytes(content), index).accepted for index in asked)


def _valid(subject: Subject, content: bytes, question: _Question) -> None:
    opened, file = cmfspec.open(content), Bytes(content)
    answer = subject.open(file)
    if not answer.accepted:
        if not any(_undeclared(subject, opened)):
            question.about = frozenset({answer.reply.kind})
            raise WrongReject("the file accepted", str(answer))
        return
    answer.must_be_accepted(len(opened))
    if "tensors" in subject.hello.operations:
        question.op = "tensors"
        _listed(subject, file, opened)
    for tensor in opened:
        if tensor.dtype in _decoded(subject) and CODECS[tensor.dtype].weight:
            question.op, question.about = "tensor", frozenset({tensor.dtype_name})
            values = subject.tensor(file, tensor.index)
            broken = _lie(opened, tensor.index)
            if broken is None:
                values.must_decode(Entry(tensor.name, tensor.dtype, tensor.shape, bytes(opened.raw(tensor.index))))
            elif norms()[broken].tier != OBSERVATION:
                question.about = frozenset({broken})
                values.must_refuse()
    if "verify" in subject.hello.operations:
        problems = sorted({problem.where for problem in cmfspec.verify(opened)})
        question.op, question.about = "verify", frozenset(problems or ("valid",))
        verdict = subject.verify(file)
        if problems:
            verdict.must_find_something()
        else:
            verdict.must_be_sound()


def _listed(subject: Subject, file: Bytes, opened: Container) -> None:
    """The directory as it stands, a damaged file's wrong hashes included."""
    answer = subject.tensors(file)
    answer.must_be_accepted()
    lines = answer.lines()
    if len(lines) != len(opened):
        raise WrongValue(f"{len(opened)} tensors", f"{len(lines)}")
    for line, t in zip(lines, opened, strict=True):
        want = (t.name, t.dtype, list(t.shape), str(t.off), str(t.nbytes), f"{t.hash:016x}")
        got = (line.name, line.dtype, line.shape, line.off, line.nbytes, line.hash.lower())
        if got != want:
            raise WrongValue(f"tensor {t.index} as {ascii(want)[:120]}", ascii(got)[:120])


def _lie(opened: Container, index: int) -> str | None:
    """The rule that a payload breaks by our reader, None if it decodes."""
    try:
        opened.values(index)
    except Refusal as refusal:
        return refusal.fault.rule
    return None


def _decoded(subject: Subject) -> tuple[int, ...]:
    """The encodings of which hello undertakes to give values."""
    return tuple(subject.hello.dtypes) if "f32" in subject.hello.forms else ()


def _undeclared(subject: Subject, opened: Container) -> Iterator[bool]:
    """Of each feature and encoding that the file needs, whether hello does not declare it."""
    features = opened.view.envelope["required_features"]
    yield from (bit not in subject.hello.features for bit in range(32) if features >> bit & 1)
    yield from (tensor.dtype not in subject.hello.dtypes for tensor in opened)
