"""Waivers: failures that are known and put up with, for a reason and for a time.

Law: a waiver covers failures of its rule or case with its outcome and no other. One that is expired, matches no case of the
suite or covers nothing though all that it matches was asked *fails the run*, so that the list can only shrink by itself.
Cutting such entries touches no other byte of the file.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from cmfspec.contract.outcome import Outcome
from runner.judge import Verdict
from runner.strangers import BadFile, short, text_of

LIMIT = 1 << 20  # bytes of a file of waivers
KEYS = ("outcome", "reason", "url", "expires")  # and one of `rule`, `case`
GLOBS = ("rule", "case")
WANTED = f"an entry with rule or case, {', '.join(KEYS)}"
FAILURES = tuple(cls.name for cls in Outcome.__subclasses__() if cls.graded)


@dataclass(frozen=True)
class Waiver:
    """An entry. by: `rule` or `case`, what the glob is about; expires: its last day (UTC); line, last: where it stands in the
    file, from 1, both included."""

    by: str
    glob: str
    outcome: str
    reason: str
    url: str
    expires: datetime.date
    line: int
    last: int

    def __str__(self) -> str:
        return f"{self.by} {self.glob} {self.outcome}"

    def matches(self, rule: str, case: str) -> bool:
        """Whether it is about this rule or case."""
        return fnmatchcase(rule if self.by == "rule" else case, self.glob)

    def covers(self, verdict: Verdict, today: datetime.date) -> bool:
        """Whether it is this failure that is put up with."""
        return (
            verdict.failed
            and verdict.outcome == self.outcome
            and today <= self.expires
            and self.matches(verdict.rule.id, verdict.case.id)
        )


@dataclass(frozen=True)
class Waivers:
    """A file of them. flow: it can't be cut line by line."""

    path: str
    text: str
    entries: tuple[Waiver, ...]
    today: datetime.date
    flow: bool = False

    @property
    def sha256(self) -> str:
        """Of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def reason(self, verdict: Verdict) -> str:
        """Why this failure is put up with; empty if it is not."""
        return next((f"{w.reason} ({w.url})" for w in self.entries if w.covers(verdict, self.today)), "")

    def troubles(
        self, runs: Sequence[Sequence[Verdict]], suite: Iterable[tuple[str, str]], reach: Set[str]
    ) -> list[tuple[Waiver, str]]:
        """The waivers that fail the run, each with why. runs: the verdicts of each implementation; suite: (rule, case) of
        every case that there is; reach: the ids that a run with nothing left out would ask."""
        known = [*suite]
        judged = (
            frozenset[str].intersection(*(frozenset(v.case.id for v in run) for run in runs)) if runs else frozenset()
        )
        found: list[tuple[Waiver, str]] = []
        for waiver in self.entries:
            about = {case for rule, case in known if waiver.matches(rule, case)}
            asked = about & reach
            if self.today > waiver.expires:
                found.append((waiver, f"it expired on {waiver.expires}"))
            elif not about:
                found.append((waiver, "it matches no case of this suite"))
            elif asked and asked <= judged and not any(waiver.covers(v, self.today) for run in runs for v in run):
                found.append((waiver, f"nothing that it matches fails with {waiver.outcome} any more"))
        return found

    def cut(self, entries: Iterable[Waiver]) -> None:
        """Delete the lines of these entries from the file, and nothing else. Raises BadFile if the file changed since it was
        read, or if an entry has no lines of its own; OSError."""
        gone = [*entries]
        if not gone:
            return
        if self.flow:
            raise BadFile(
                self.path, 0, "a list in brackets, or an alias", "one entry after another, each behind a dash"
            )
        if text_of(self.path, LIMIT) != self.text:
            raise BadFile(self.path, 0, "another text than when the run began", "the same; cut nothing")
        lines = self.text.splitlines(keepends=True)
        drop = {number for waiver in gone for number in range(waiver.line, waiver.last + 1)}
        text = "".join(line for number, line in enumerate(lines, 1) if number not in drop)
        left = [_without_place(waiver) for waiver in self.entries if waiver not in gone]
        if [_without_place(waiver) for waiver in parse(self.path, text, self.today).entries] != left:
            raise BadFile(self.path, gone[0].line, "an entry that shares its lines", "one with lines of its own")
        _replace(self.path, text)


def load(path: str, today: datetime.date | None = None) -> Waivers:
    """Read a file of waivers. Raises BadFile."""
    return parse(path, text_of(path, LIMIT), today or datetime.datetime.now(datetime.UTC).date())


def parse(path: str, text: str, today: datetime.date) -> Waivers:
    """Waivers from YAML: a list of mappings of plain texts. Raises BadFile."""
    if "\x85" in text or "\u2028" in text or "\u2029" in text or "\f" in text or "\v" in text:
        raise BadFile(path, 0, "an odd line break", "lines that end with a newline")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "no YAML"
        raise BadFile(path, mark.line + 1 if mark else 0, short(problem), "YAML") from None
    except (RecursionError, ValueError) as error:
        raise BadFile(path, 0, short(error), "YAML") from None
    if root is None:
        return Waivers(path, text, (), today)
    if not isinstance(root, SequenceNode):
        raise BadFile(path, root.start_mark.line + 1, _kind(root), "a list of waivers")
    entries = tuple(_entry(path, node) for node in root.value)
    shared = len({id(node) for node in root.value}) < len(root.value)
    return Waivers(path, text, entries, today, bool(root.flow_style) or shared)


def _entry(path: str, node: Node) -> Waiver:
    line = node.start_mark.line + 1
    if not isinstance(node, MappingNode):
        raise BadFile(path, line, _kind(node), WANTED)
    given: dict[str, str] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        name = key.value if isinstance(key, ScalarNode) else _kind(key)
        if name not in (*GLOBS, *KEYS):
            raise BadFile(path, at, f"{short(name)!r}", WANTED)
        if name in given:
            raise BadFile(path, at, f"{name} twice", "each once")
        if not isinstance(value, ScalarNode) or not value.value.strip():
            raise BadFile(path, at, f"{name} with {_kind(value)}", "a text")
        given[name] = value.value.strip()
    missing = [name for name in KEYS if name not in given]
    by = [name for name in GLOBS if name in given]
    if missing or len(by) != 1:
        what = f"an entry without {', '.join(missing)}" if missing else "an entry with both or neither of rule and case"
        raise BadFile(path, line, what, WANTED)
    if given["outcome"] not in FAILURES:
        raise BadFile(path, line, f"outcome {short(given['outcome'])!r}", f"one of {', '.join(FAILURES)}")
    if not given["url"].startswith(("https://", "http://")):
        raise BadFile(path, line, f"url {short(given['url'])!r}", "one that begins with https://")
    try:
        expires = datetime.datetime.strptime(given["expires"], "%Y-%m-%d").date()
    except ValueError:
        raise BadFile(path, line, f"expires {short(given['expires'])!r}", "a day such as 2027-01-31") from None
    return Waiver(by[0], given[by[0]], given["outcome"], given["reason"], given["url"], expires, line, _last(node))


def _last(node: Node) -> int:
    """The last line of an entry. The end mark of a block is where the next token stands, behind any comments; that of a
    scalar or of a flow collection is its own."""
    if isinstance(node, MappingNode) and not node.flow_style:
        return max(_last(part) for pair in node.value for part in pair)
    mark = node.end_mark
    return mark.line if mark.column == 0 and mark.line > node.start_mark.line else mark.line + 1


def _kind(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return f"the text {short(node.value)!r}" if node.value.strip() else "nothing"
    return "a list" if isinstance(node, SequenceNode) else "a mapping"


def _without_place(waiver: Waiver) -> tuple[object, ...]:
    return (waiver.by, waiver.glob, waiver.outcome, waiver.reason, waiver.url, waiver.expires)


def _replace(path: str, text: str) -> None:
    """In one step: whoever reads it sees the old text or the new one."""
    real = os.path.realpath(path)
    handle, made = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".waivers-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        os.chmod(made, os.stat(real).st_mode & 0o7777)
        os.replace(made, real)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
