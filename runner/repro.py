"""`cmfspec repro`: ask the case of a folder that `cmfspec run` has left, once more.

Law: a folder is a stranger's text: whatever is in it, it makes a verdict or a usage error. Exit 1 if the case fails, in
whatever way; 0 if it passes; 3 if that was not judged: not applicable, or a failure that one case alone does not show.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cmfspec.contract.outcome import PASS
from cmfspec.contract.rule import CATALOGUE, Rule, load_catalogue
from cmfspec.format.blueprint import canonical
from golden.cases import Case, decode
from golden.files import File
from runner.asking import hello_of, say, to_its_end
from runner.driver import CannotStart
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.judge import Judge, Verdict
from runner.reproducer import CASE, UNSHRINKABLE
from runner.sequence import FILE
from runner.target import Target, target_of
from runner.terminal import safe

LARGEST = 64 * 2**20  # bytes of case.json, and of the junk that an edit may ask for
ORDERED = ("order", "data.order")
JUNK = re.compile(r"tail|gap\..*|data\.gap\[\d+\]|dir\.gap|payload\[\d+\]\.size")


@dataclass(frozen=True)
class Left:
    """What a folder holds. name: the id of the case that failed; case: the same one, its file made smaller; was: the
    outcome then, empty if the folder does not say; sequence: the file that names those to go before it, if any."""

    name: str
    rule: Rule
    case: Case
    was: str
    sequence: str = ""


def repro_command(folder: str, *, as_json: bool, **options: Any) -> int:
    """`cmfspec repro`: the exit code."""
    target = target_of(options)
    load_catalogue()
    left = read(folder)
    return to_its_end(lambda: _again(folder, left, target, as_json), target)


def read(folder: str) -> Left:
    """The case of a folder. Raises click.UsageError."""
    path = Path(folder) / CASE
    row = _json(path)
    name, args, was = row.get("case"), row.get("args"), row.get("outcome", "")
    if not isinstance(name, str) or not isinstance(args, dict) or not isinstance(was, str):
        raise click.UsageError(f'{path}: wanted {{"case": "RULE/…", "args": {{…}}, "outcome": "…"}}')
    rule = CATALOGUE.get(name.split("/")[0])
    if rule is None:
        raise click.UsageError(f"{path}: case {safe(name[:80])!r} is of no rule that this suite tests")
    if set(args) != set(rule.draw):
        wanted = ", ".join(sorted(rule.draw)) or "none"
        raise click.UsageError(
            f"{path}: {rule.id} has the arguments {wanted}, found {safe(', '.join(sorted(args))[:200])}"
        )
    for key, value in args.items():
        try:
            argument = decode(value)
            if isinstance(argument, File):
                _bounded(argument)
                argument.content()
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            said = safe(f"{type(error).__name__}: {error}"[:200])
            raise click.UsageError(f"{path}: args.{safe(key)} makes no file: {said}") from None
    sequence = path.with_name(FILE)
    return Left(name, rule, Case(rule.id, canonical(args)), was, str(sequence) if sequence.is_file() else "")


def _again(folder: str, left: Left, target: Target, as_json: bool) -> int:
    hello_of(target, Console(stderr=True, highlight=False))
    link = target.new_link()
    try:
        verdict = Judge(link, target.outside).judge(left.rule, left.case)
    except CannotStart:
        raise
    except Exception as error:  # the check of a rule, on arguments that nobody drew
        say(f"{folder}/{CASE}: {left.rule.id} can't be asked this: {type(error).__name__}: {error}")
        return EXIT_BROKEN
    finally:
        link.close()
    code, means = _meaning(left, verdict)
    if as_json:
        row = {
            "folder": folder, "case": left.name, "rule": left.rule.id, "was": left.was, "outcome": verdict.outcome,
            "expected": verdict.expected, "got": verdict.got, "stderr": verdict.stderr[-4000:], "means": means,
        }  # fmt: skip
        json.dump(row, sys.stdout, ensure_ascii=True, indent=1)
        print()
        return code
    print(f"{safe(left.name)} {left.rule.name}, asked of {safe(target.name)}")
    print(f"  {verdict.outcome}: {means}")
    if verdict.outcome != PASS:
        print(f"  expected {safe(verdict.expected)}")
        print(f"  got      {safe(verdict.got)}")
    last = [line for line in verdict.stderr.strip().splitlines() if line.strip()][-1:]
    if last:
        print(f"  stderr   {safe(last[0][:160])}")
    return code


def _meaning(left: Left, verdict: Verdict) -> tuple[int, str]:
    """(exit code, what the verdict says of the folder)."""
    was = safe(left.was) or "not recorded"
    if verdict.failed:
        if verdict.outcome == left.was:
            return EXIT_FAILED, "still fails, in the same way"
        return EXIT_FAILED, f"still fails, in another way: it was {was}"
    if verdict.outcome != PASS:
        return EXIT_BROKEN, f"not judged; it was {was}"
    if left.was in UNSHRINKABLE:
        hint = f"; `cmfspec run --sequence {left.sequence}` asks those before it, too" if left.sequence else ""
        return EXIT_BROKEN, f"passes alone, which proves nothing: it was {was}, and one case does not show that{hint}"
    return 0, f"no longer fails; it was {was}"


def _json(path: Path) -> dict[str, Any]:
    """The object in a file. Raises click.UsageError."""
    try:
        if not path.is_file():
            beside = path.parent / "file.cmf"
            hint = f"; `cmfspec minimize {beside}` judges the file alone" if beside.is_file() else ""
            raise click.UsageError(f"{path}: no such file; wanted a folder that `cmfspec run` has left{hint}")
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise click.UsageError(f"{path}: found more than {LARGEST} bytes")
        found = json.loads(raw.decode("utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise click.UsageError(f"{path}: line {error.lineno}: found no JSON ({error.msg}), wanted an object") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path}: found no JSON ({str(error)[:120]}), wanted an object") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{path}: line 1: found a JSON {type(found).__name__}, wanted an object")
    return found


def _bounded(file: File) -> None:
    """Raises ValueError for a file that would be larger than memory."""
    for path, value in file.edits:
        if path in ORDERED and not (isinstance(value, list) and len(value) == len({str(item) for item in value})):
            raise ValueError(f"{path} = {str(value)[:40]}, wanted each once")
        size = value.get("plus") if isinstance(value, dict) else value
        if JUNK.fullmatch(path) and not (type(size) is int and abs(size) <= LARGEST):
            raise ValueError(f"{path} = {str(value)[:40]}, wanted at most {LARGEST} bytes")
