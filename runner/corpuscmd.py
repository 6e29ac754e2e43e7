"""`cmfspec corpus`: seeds out to other fuzzers, their finds back in, and a find made a stored case.

Law: a file that is given is a stranger's. What is exported is named by its SHA-256, so that exporting twice changes nothing;
what is imported is kept only if our own targets see something in it that they have not seen. A promoted case must be passed
by our own reader, by the rule that the file breaks, and says so in `golden/promoted.jsonl`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import cmfspec
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.outcome import Outcome
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import CATALOGUE, Rule, load_catalogue
from cmfspec.errors import Refusal
from cmfspec.format.blueprint import canonical, to_json
from cmfspec.format.build import render
from cmfspec.format.container import read
from cmfspec.format.unbuild import blueprint_of
from fuzz.corpus import shipped
from fuzz.dictionary import text as dictionary
from fuzz.targets import TARGETS
from golden import make
from golden.cases import PROMOTED, Case, case_of
from golden.files import File
from runner import finds
from runner.asking import say
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.fuzzing import CORPUS, kept
from runner.judge import ask
from runner.terminal import safe

LARGEST = 1 << 20  # bytes of a file that is imported
STORED = 1 << 15  # bytes of a file that becomes a stored case
SEEN_BY = ("decoding", "verify")  # the targets that say whether a file is new
WHATEVER = "ENV-022"  # the rule of every file: it is accepted or refused, and nothing else


def export_command(folder: str, *, campaign: str | None, dictionary_file: str | None) -> int:
    """`cmfspec corpus export`: the exit code."""
    contents = [*shipped(), *(_campaign(Path(campaign)) if campaign else ())]
    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        names = {f"{hashlib.sha256(content).hexdigest()[:16]}.cmf": content for content in contents}
        for name, content in names.items():
            (home / name).write_bytes(content)
        if dictionary_file:
            Path(dictionary_file).write_text(dictionary(), "ascii")
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from None
    print(f"{len(names)} files in {home}" + (f"; the dictionary is {dictionary_file}" if dictionary_file else ""))
    return 0


def _campaign(folder: Path) -> Iterator[bytes]:
    """What a campaign has kept and found. Raises click.UsageError if there is none."""
    paths = [*sorted((folder / CORPUS).glob("*.cmf")), *sorted((folder / finds.FINDINGS).glob(f"*/{finds.FILE}"))]
    if not paths:
        raise click.UsageError(f"{folder}: found no campaign, wanted one with inputs in {CORPUS}/ or {finds.FINDINGS}/")
    yield from (path.read_bytes() for path in paths)


def import_command(folder: str, *, out: str) -> int:
    """`cmfspec corpus import`: the exit code; 3 if there was nothing to read."""
    campaign = Path(out)
    seen: set[Any] = set()
    for content in (*shipped(), *(path.read_bytes() for path in sorted((campaign / CORPUS).glob("*.cmf")))):
        seen |= _seen(content)
    count, new = 0, 0
    for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        try:
            content = bytes(read(path)) if path.stat().st_size <= LARGEST else b""
        except (Refusal, OSError):
            continue
        if not content:
            continue
        count += 1
        shows = _seen(content)
        if not shows <= seen:
            seen |= shows
            new += 1
            kept(campaign, content)
    if not count:
        say(f"{folder}: found no file of 1 to {LARGEST} bytes: nothing was imported")
        return EXIT_BROKEN
    print(f"{count} files read, {new} of them new: {campaign / CORPUS}")
    return 0


def _seen(content: bytes) -> set[Any]:
    return {(name, TARGETS[name].check(content)) for name in SEEN_BY}


def promote_command(path: str, *, rule: str | None, dry_run: bool) -> int:
    """`cmfspec corpus promote`: the exit code; 1 if no rule takes the file."""
    load_catalogue()
    content = _content(path)
    faults = list(dict.fromkeys(fault.rule for fault in cmfspec.faults(content)))
    if rule is not None and rule not in CATALOGUE:
        raise click.UsageError(f"--rule {rule}: no rule that this suite tests; `cmfspec rules` lists them")
    wanted = [rule] if rule else [*faults, WHATEVER]
    for identity in wanted:
        why = "it takes other arguments than a file"
        for file in as_arguments(content):
            case = _case(identity, file)
            why = _not_passed(CATALOGUE[identity], case) if case else why
            if case and not why:
                return _stored(path, case, faults, dry_run)
        say(f"{identity}: not for this file: {why}")
    say(f"{path}: no rule takes it; it breaks {', '.join(faults) or 'none'}")
    return EXIT_FAILED


def as_arguments(content: bytes) -> Iterator[File]:
    """A file as the argument of a case: its blueprint if that makes the same bytes, and the bytes put upon an empty file,
    which is right and so can be the control."""
    try:
        blueprint, edits = blueprint_of(content)
        if render(blueprint, edits) == content:
            yield File(canonical(to_json(blueprint)), edits)
    except (ValueError, LookupError, OverflowError):
        pass
    yield File("empty", (("put", [0, content.hex()]), ("cut", len(content))))


def _case(identity: str, file: File) -> Case | None:
    rule = CATALOGUE.get(identity)
    return case_of(rule.id, {"file": file}) if rule and set(rule.draw) == {"file"} else None


def _not_passed(rule: Rule, case: Case) -> str:
    """Why our own reader does not pass the case; nothing if it does."""
    link = InProcess(reference())
    try:
        outcome, _ = ask(rule, case, link)
    except Exception as error:  # the check needs what this file doesn't have
        return f"it can't be asked: {type(error).__name__}: {error}"
    finally:
        link.close()
    return f"our own reader: {outcome.name}: {outcome}" if isinstance(outcome, Outcome) else ""


def _stored(path: str, case: Case, faults: list[str], dry_run: bool) -> int:
    known = PROMOTED.read_text("ascii").splitlines() if PROMOTED.is_file() else []
    line = canonical({"rule": case.rule, "args": case.args})
    if line in known:
        print(f"{case.id} is stored already")
        return 0
    if not dry_run:
        try:
            PROMOTED.write_text("".join(f"{each}\n" for each in sorted({*known, line})), "ascii")
            make.write(make.make_cases())
        except OSError as error:
            raise click.UsageError(f"{error.filename}: {error.strerror}: cases are stored in a checkout") from None
    what = f"breaks {', '.join(faults)}" if faults else "is valid"
    guards = f": {CATALOGUE[case.rule].name}"
    print(f"{safe(path)} {what}; {'it would be' if dry_run else 'it is'} {case.id} now{guards}")
    return 0


def _content(path: str) -> bytes:
    try:
        content = bytes(read(path))
    except Refusal as refusal:
        raise click.UsageError(f"{path}: {refusal.fault.found}") from None
    if len(content) > STORED:
        raise click.UsageError(
            f"{path}: found {len(content)} bytes, wanted at most {STORED}: `cmfspec minimize` it first"
        )
    return content
