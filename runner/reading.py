"""Streams read back: what `report`, `--baseline`, `--resume` and `--last-failed` know of a run.

Law: a stream may be garbage, torn, or made by another suite; it is read strictly, and what does not follow from its own lines
is refused. Only its end may be missing: then it is an incomplete run. Of a line without its newline nothing is believed.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, BinaryIO

import msgspec

import cmfspec
from cmfspec.contract.outcome import PASS, Outcome
from cmfspec.contract.protocol import PROTOCOL
from cmfspec.contract.rule import CATALOGUE
from cmfspec.spec import digests
from golden.cases import Case, digest, stored
from runner.judge import Verdict
from runner.select import Selection
from runner.strangers import BadFile, opened, short
from runner.stream import footer as footer_of

LONGEST = 16 << 20  # bytes of a line
OUTCOMES = frozenset({PASS, *(cls.name for cls in Outcome.__subclasses__())})
FOLLOWS = (
    "judged",
    "rules",
    "tiers",
    "failed_rules",
    "waived",
    "outcomes",
    "cases",
    "conformant",
)  # of a footer, from its lines


class Who(msgspec.Struct, frozen=True):
    """The implementation: its command line, and what its hello said."""

    command: str
    name: str = ""
    version: str = ""
    language: str = ""
    build: str = ""
    kinds: bool = True


class Header(msgspec.Struct, tag_field="type", tag="header", frozen=True):
    """The first line of a section."""

    profile: str
    cases: int
    implementation: Who
    argv: list[str]
    started: datetime.datetime
    rerun: str
    artifacts: dict[str, str]
    inputs: dict[str, str]
    selection: dict[str, Any]


class Line(msgspec.Struct, tag_field="type", tag="case", frozen=True):
    """A verdict."""

    rule: str
    case: str
    outcome: str
    expected: str
    got: str
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    reproducer: str | None = None
    after: list[str] = []
    stderr: str = ""
    waived: str = ""
    known: bool = False
    drawn: str | None = None


class Trouble(msgspec.Struct, frozen=True):
    """A waiver that fails the run."""

    where: str
    what: str
    why: str


class Stop(msgspec.Struct, frozen=True):
    """The step of the preflight at which an implementation failed."""

    step: str
    problem: str
    hint: str = ""
    stderr: str = ""


class Against(msgspec.Struct, frozen=True):
    """What came of a comparison with a baseline, in cases. lost: passed then, not judged now."""

    file: str
    new: list[str]
    known: int
    better: list[str]
    lost: list[str]
    unasked: int


class Footer(msgspec.Struct, tag_field="type", tag="footer", frozen=True):
    """The last line of a section. exit: what the run's exit code is, as far as this section goes."""

    complete: bool
    judged: bool
    conformant: bool | None
    stopped: str
    rules: dict[str, int]
    tiers: dict[str, dict[str, int]]
    failed_rules: list[str]
    waived: int
    outcomes: dict[str, int]
    cases: int
    exit: int
    seconds: float = 0.0
    preflight: Stop | None = None
    baseline: Against | None = None
    waivers: list[Trouble] = []


@dataclass
class Section:
    """One implementation's part of a stream. raw: the header as it stands; asked: the ids of the stored cases that were
    judged; footer: None if the run did not end."""

    where: str
    raw: dict[str, Any]
    header: Header
    verdicts: list[Verdict] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    footer: Footer | None = None

    @property
    def exit(self) -> int:
        """0, 1; 3 for a run that did not end."""
        return 3 if self.footer is None else self.footer.exit


@dataclass(frozen=True)
class Read:
    """A stream. whole: bytes of it up to the end of the last whole line; torn: there is something behind them."""

    path: str
    sections: tuple[Section, ...]
    whole: int
    torn: bool


@cache
def cases_by_id() -> dict[str, Case]:
    """Every stored case."""
    return {case.id: case for cases in stored().values() for case in cases}


def read(path: str) -> Read:
    """Read a stream; `-` is stdin. The catalogue must be loaded. Raises BadFile."""
    sections: list[Section] = []
    whole, torn = 0, False
    with opened(path) as file:
        for number, line in enumerate(_lines(path, file), 1):
            if not line.endswith(b"\n"):
                torn = True
                break
            whole += len(line)
            _take(path, number, line, sections)
    return Read(path, tuple(sections), whole, torn)


def read_whole(path: str) -> Read:
    """A stream with at least a header, and a footer for each. Raises BadFile."""
    found = read(path)
    if not found.sections:
        raise BadFile(path, 0, "no header", "the stream of a run")
    for section in found.sections:
        if section.footer is None or found.torn:
            raise BadFile(path, 0, "a run without a footer", "one that ended; `--resume` goes on with it")
    return found


def _lines(path: str, file: BinaryIO) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise BadFile(path, number, f"a line of more than {LONGEST} bytes", "the line of a stream")
        yield line


def _take(path: str, number: int, line: bytes, sections: list[Section]) -> None:
    """Add what a line says."""
    raw = _decoded(path, number, line)
    kind = raw.get("type")
    open_section = sections[-1] if sections and sections[-1].footer is None else None
    if kind == "header":
        _expect_this_suite(path, number, raw)
        sections.append(Section(f"{path}:{number}", raw, _convert(path, number, raw, Header)))
    elif kind not in ("case", "footer"):
        raise BadFile(path, number, f"type {short(kind)!r}", "header, case or footer")
    elif open_section is None:
        raise BadFile(path, number, f"a {kind} outside of a run", "a header before it")
    elif kind == "case":
        verdict = _verdict(path, number, _convert(path, number, raw, Line))
        again = open_section.header.selection.get("sequence") is True  # a sequence may name a case twice
        if not verdict.drawn and not again and verdict.case.id in open_section.asked:
            raise BadFile(path, number, f"{verdict.case.id} twice", "each case once")
        if not verdict.drawn:
            open_section.asked.add(verdict.case.id)
        open_section.verdicts.append(verdict)
    else:
        open_section.footer = _convert(path, number, raw, Footer)
        _expect_to_follow(path, number, open_section, open_section.footer)


def _decoded(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        line.decode("utf-8")  # the decoder skips what it does not know without looking
        raw = msgspec.json.decode(line)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise BadFile(path, number, f"{short(repr(line.rstrip())[2:-1])} ({error})", "a line of JSON") from None
    if not isinstance(raw, dict):
        raise BadFile(path, number, short(raw), "an object")
    return raw


def _convert(path: str, number: int, raw: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        wanted = f"a {raw['type']} as cmfspec {cmfspec.__version__} writes it"
        raise BadFile(path, number, f"something else: {short(error)}", wanted) from None


def _expect_this_suite(path: str, number: int, raw: dict[str, Any]) -> None:
    """What another suite found can't be told in the words of this one."""
    here: dict[str, Any] = {"suite": cmfspec.__version__, "protocol": PROTOCOL, "cases_sha256": digest(), **digests()}
    for name, value in here.items():
        if raw.get(name) != value:
            remedy = "run again, or read it with the suite that wrote it"
            raise BadFile(
                path, number, f"the stream of another suite, {name} {short(raw.get(name))}", f"{value}: {remedy}"
            )


def _verdict(path: str, number: int, line: Line) -> Verdict:
    """The verdict that a line tells of."""
    rule = CATALOGUE.get(line.rule)
    if rule is None:
        raise BadFile(path, number, f"rule {short(line.rule)!r}", "a rule of this suite")
    case = cases_by_id().get(line.case) if line.drawn is None else Case(line.rule, line.drawn)
    if case is None or case.id != line.case or case.rule != line.rule:
        raise BadFile(path, number, f"case {short(line.case)!r} of {line.rule}", "a case of this suite")
    if line.outcome not in OUTCOMES:
        raise BadFile(path, number, f"outcome {short(line.outcome)!r}", f"one of {', '.join(sorted(OUTCOMES))}")
    unknown = next((identity for identity in line.after if identity not in cases_by_id()), None)
    if unknown is not None:
        raise BadFile(path, number, f"{line.case} after {short(unknown)!r}", "after cases of this suite")
    after = tuple(cases_by_id()[identity] for identity in line.after)
    return Verdict(
        rule, case, line.outcome, line.expected, line.got, line.seconds, line.stderr, reproducer=line.reproducer,
        after=after, drawn=line.drawn is not None, waived=line.waived, known=line.known,
    )  # fmt: skip


def _expect_to_follow(path: str, number: int, section: Section, footer: Footer) -> None:
    """The footer is what its lines come to: no line was lost, and none is better than it was."""
    if footer.complete and (footer.stopped or section.asked < cases_by_id().keys()):
        raise BadFile(path, number, "a complete run without all cases", "a line for each")
    judged = sum(not verdict.drawn for verdict in section.verdicts)
    if not footer.stopped and not 0 < section.header.cases == judged:
        found = f"an end after {judged} of {section.header.cases} cases"
        raise BadFile(path, number, found, "a line for each, or why it stopped")
    selection = Selection(section.header.profile, (), footer.complete)
    computed = footer_of(selection, section.verdicts, footer.stopped)
    for name in FOLLOWS:
        if getattr(footer, name) != computed[name]:
            found = f"a footer with {name} {short(getattr(footer, name))}"
            raise BadFile(path, number, found, f"{short(computed[name])}, as its lines say")
    failing = (
        any(verdict.fails_the_run for verdict in section.verdicts)
        or footer.stopped
        or footer.waivers
        or not footer.judged
    )
    lost = footer.baseline.lost if footer.baseline else []
    if footer.exit != int(bool(failing or lost)):
        raise BadFile(path, number, f"a footer with exit {footer.exit}", "the one that its lines say")
