"""What a fuzzing campaign has found: one find for each way of being wrong, with its smallest file.

Law: two files are the same find if outcome, question, rule and normalised stack are; a find keeps the smaller file. A folder
of finds is a stranger's text when it is read again: what is not ours is named, with its place, and refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from cmfspec.errors import Fault
from runner.crashtext import crash_text, memory_text
from runner.misjudged import Misjudged

FINDINGS = "findings"
FILE, ORIGINAL, RECORD, NOTE = "file.cmf", "original.cmf", "find.json", "README.md"
STACKED = ("CRASH", "RESOURCE", "ERROR", "PROTOCOL", "WRONG_REJECT")  # of which what was said tells one from another
DEATHS = ("CRASH", "RESOURCE", "ERROR", "TIMEOUT", "PROTOCOL")
FRAMES = 3
_FRAME = re.compile(r"^\s*#\d+ (?:0x[0-9a-fA-F]+ )?in (\S+)", re.MULTILINE)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_PLACE = re.compile(r"[\w./-]+\.\w+:\d+")  # a line of a source file, which is the best of all stacks
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|«[^»]*»|`[^`]*`")


@dataclass(frozen=True)
class Find:
    """One way in which an implementation is wrong. signature: what makes it the same as another; rules: what the file
    breaks by our reader, none if it is valid; executions, seconds: of the campaign when it came."""

    signature: str
    outcome: str
    op: str
    about: tuple[str, ...]
    rules: tuple[str, ...]
    expected: str
    got: str
    stderr: str
    size: int
    executions: int
    seconds: float

    @property
    def name(self) -> str:
        """The folder's name."""
        return f"{self.outcome}-{self.op}-{hashlib.sha256(self.signature.encode()).hexdigest()[:8]}"


def stack(found: Misjudged, faults: Iterable[Fault]) -> str:
    """What tells this find from others of the same outcome: functions or a line of source, else what was said without its
    numbers, else the first rule that the file breaks."""
    if found.outcome not in STACKED:
        return ""
    frames = _FRAME.findall(found.stderr)[:FRAMES]
    if frames:
        return " < ".join(frames)
    said = crash_text(found.stderr) or memory_text(found.stderr) or found.got
    places = _PLACE.findall(said)
    if places:
        return "/".join(str(places[-1]).split("/")[-3:])  # where it was built says nothing
    text = normal(said)
    return text if found.outcome != "CRASH" else f"{text} {next((fault.rule for fault in faults), '')}".strip()


def normal(text: str) -> str:
    """What somebody said, without what differs from file to file."""
    return _NUMBER.sub("#", _QUOTED.sub("…", _ADDRESS.sub("…", text))).strip()[:80]


def tagged(found: Misjudged, faults: Iterable[Fault]) -> Misjudged:
    """The same with its stack among what it is about, so that a smaller file must show that too. A death is about its stack
    alone: where it dies does not follow from what the file was to show."""
    said = stack(found, faults)
    if found.outcome in DEATHS:
        return replace(found, about=frozenset({said or found.op}))
    return replace(found, about=found.about | {said}) if said else found


def signature(found: Misjudged) -> str:
    """Of a tagged one. A death at one question is often one at the next, too."""
    op = () if found.outcome in DEATHS else (found.op,)
    return " | ".join((found.outcome, *op, *sorted(found.about)))


def subsumed(found: Misjudged, known: Iterable[str]) -> bool:
    """Whether another find explains this one: the same, or a file wrongly accepted that breaks a rule which is known to go
    unheeded."""
    if signature(found) in known:
        return True
    if found.outcome != "WRONG_ACCEPT":
        return False
    return any(signature(replace(found, about=frozenset({rule}))) in known for rule in found.about)


def write(folder: Path, find: Find, content: bytes, original: bytes, target: str) -> Path:
    """Write the folder of a find and return its path; an older one of the same signature gives way to a smaller file."""
    home = folder / FINDINGS / find.name
    if (home / FILE).is_file() and (home / FILE).stat().st_size <= len(content):
        return home
    home.mkdir(parents=True, exist_ok=True)
    (home / FILE).write_bytes(content)
    (home / ORIGINAL).write_bytes(original)
    (home / NOTE).write_text(_note(find, home, target), "utf-8", errors="backslashreplace")
    (home / RECORD).write_text(json.dumps(asdict(find), indent=1) + "\n", "ascii")  # last: without it there is no find
    return home


def read(folder: Path) -> list[Find]:
    """The finds of a campaign. Raises click.UsageError."""
    return [_record(path) for path in sorted((folder / FINDINGS).glob(f"*/{RECORD}"))]


def _record(path: Path) -> Find:
    row = json_object(path)
    wanted = Find.__annotations__
    kinds: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "tuple[str, ...]": list}
    for name, kind in wanted.items():
        if not isinstance(row.get(name), kinds[kind]):
            found = "nothing" if name not in row else f"a JSON {type(row[name]).__name__}"
            raise click.UsageError(f"{path}: {name}: found {found}, wanted {kind}")
    lists = {name: tuple(map(str, row[name])) for name, kind in wanted.items() if kind.startswith("tuple")}
    return Find(**{**{name: row[name] for name in wanted}, **lists})


def json_object(path: Path) -> dict[str, Any]:
    """The object in a file. Raises click.UsageError, with the line."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise click.UsageError(f"{path}: line {error.lineno}: found no JSON ({error.msg}), wanted an object") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path}: found no JSON ({str(error)[:80]}), wanted an object") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{path}: line 1: found a JSON {type(found).__name__}, wanted an object")
    return found


def _note(find: Find, home: Path, target: str) -> str:
    rules = ", ".join(find.rules)
    what = f"breaks {rules}" if rules else "is valid"
    return f"""# {find.outcome} at {find.op}

- expected: {find.expected}
- got: {find.got}
- by our own reader the file {what}
- signature: {find.signature}

`{FILE}` ({find.size} bytes) is the smallest file found that shows it, `{ORIGINAL}` the one that showed it first. Again, and
as a stored case:

    cmfspec minimize {shlex.quote(str(home / FILE))} {target}
    cmfspec corpus promote {shlex.quote(str(home / FILE))}
"""
