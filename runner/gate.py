"""`cmfspec gate`: a newer text of the spec against the one that the rules quote.

Law: exit 0 only if the texts are the same but for white space and emphasis, so that every quote stands; any other change is
one that nobody has reviewed. Each quote is found, changed (with the closest new sentence) or gone; new text that no rule
quotes is listed by its section. Nothing of the new text is believed: it is only compared.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path

import click

from cmfspec.contract.rule import CATALOGUE, UNTESTED, load_catalogue, norms, spec_text
from cmfspec.spec import squeezed
from runner.exits import EXIT_FAILED
from runner.terminal import safe

LARGEST = 2**19  # bytes of a text; ours has 31 thousand
CLOSE = 0.5  # share of a quote that its closest sentence must hold to be called the same sentence, changed
LONGEST = 600  # characters of a sentence that are compared
COMPARED = 4000  # sentences that are candidates for a hint
LOOKED_AT = 6  # of them, those with the most characters in common are aligned
SHOWN = 12  # sentences of a section that are printed

HEADING = re.compile(r"#{1,6}\s+(.*)")
NUMBER = re.compile(r"(?:§\s*)?(\d+(?:\.\d+)*)\b")
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"\s*([-*>]|\d+\.)\s")
SENTENCE = re.compile(r"(?<=[。！？；])|(?<=[.!?;])\s")


@dataclass(frozen=True)
class Piece:
    """A sentence, a row of a table or a line of code. section: the number of its heading, or its words."""

    section: str
    text: str

    @property
    def bare(self) -> str:
        """The text as it is compared."""
        return squeezed(self.text)


@dataclass(frozen=True)
class Quoted:
    """What became of a rule's quote. state: `stands`, `moved` (it stands, but no longer in its section), `changed` or
    `gone`; closest: the new sentence nearest to it; hint: the way from one to the other, `[-out-]` and `{+in+}`."""

    id: str
    section: str
    state: str
    quote: str
    closest: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Changed:
    """A sentence that only one of the texts has. quoted_by: the rules that quote a part of it."""

    section: str
    text: str
    quoted_by: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """same: the texts differ in white space at most; quotes: every rule's; added, removed: sentences."""

    same: bool
    quotes: tuple[Quoted, ...]
    added: tuple[Changed, ...]
    removed: tuple[Changed, ...]

    @property
    def revisit(self) -> tuple[Quoted, ...]:
        """The rules whose quote does not stand where it stood."""
        return tuple(quoted for quoted in self.quotes if quoted.state != "stands")


def gate_command(path: str, as_json: bool) -> int:
    """`cmfspec gate`: the exit code."""
    load_catalogue()
    new = _read(path)
    found = compare(spec_text(), new)
    if as_json:
        digests = {
            name: hashlib.sha256(text.encode()).hexdigest() for name, text in (("old", spec_text()), ("new", new))
        }
        counts = Counter(quoted.state for quoted in found.quotes)
        head = {"file": path, "same": found.same, "sha256": digests, "quotes": dict(sorted(counts.items()))}
        body = {
            "revisit": [asdict(quoted) for quoted in found.revisit],
            "added": [asdict(piece) for piece in found.added],
            "removed": [asdict(piece) for piece in found.removed],
        }
        json.dump({**head, **body}, sys.stdout, ensure_ascii=True, indent=1)
        print()
    else:
        _show(path, found)
    return 0 if found.same else EXIT_FAILED


def compare(old: str, new: str) -> Comparison:
    """Hold `new` against `old`, the text that the rules quote."""
    bare_old, bare_new = squeezed(old), squeezed(new)
    quotes = {identity: rule.quote for identity, rule in CATALOGUE.items()}
    quotes |= {identity: norm.quote for identity, norm in UNTESTED.items()}
    if bare_old == bare_new:
        stand = tuple(
            Quoted(identity, norms()[identity].section, "stands", quote) for identity, quote in quotes.items()
        )
        return Comparison(True, stand, (), ())
    before, after = pieces(old), pieces(new)
    known, now = {piece.bare for piece in before}, {piece.bare for piece in after}
    fresh = [piece for piece in after if piece.bare not in known]
    homes_old, homes_new = _sections(before), _sections(after)
    hints = _windows(after, known)
    judged = tuple(
        _judge(identity, quotes[identity], bare_new, homes_old, homes_new, hints)
        for identity in norms()
        if identity in quotes
    )
    bare_quotes = {identity: squeezed(quote) for identity, quote in quotes.items()}
    bare_new_quotes = bare_quotes | {
        quoted.id: squeezed(quoted.closest) for quoted in judged if quoted.state == "changed"
    }
    gone = [piece for piece in before if piece.bare not in now]
    return Comparison(False, judged, _changed(fresh, bare_new, bare_new_quotes), _changed(gone, bare_old, bare_quotes))


def pieces(text: str) -> list[Piece]:
    """The text cut into sentences, rows and lines of code, each with its section."""
    found: list[Piece] = []
    section, fenced = "", False
    paragraph: list[str] = []

    def flush() -> None:
        whole = " ".join(paragraph)
        paragraph.clear()
        found.extend(Piece(section, sentence.strip()) for sentence in SENTENCE.split(whole) if squeezed(sentence))

    for line in text.splitlines():
        heading = None if fenced else HEADING.fullmatch(line.strip())
        if FENCE.match(line):
            flush()
            fenced = not fenced
        elif heading:
            flush()
            number = NUMBER.match(heading[1])
            section = number[1] if number else heading[1]
            found.append(Piece(section, heading[1]))
        elif fenced or line.lstrip().startswith("|"):
            flush()
            found += [Piece(section, line.strip())] if squeezed(line) else []
        else:
            if not line.strip() or ITEM.match(line):
                flush()
            paragraph.append(line)
    flush()
    return found


def _sections(found: Sequence[Piece]) -> dict[str, str]:
    """Section to its text, as it is compared."""
    homes: dict[str, list[str]] = {}
    for piece in found:
        homes.setdefault(piece.section, []).append(piece.bare)
    return {section: "".join(parts) for section, parts in homes.items()}


def _judge(
    identity: str,
    quote: str,
    bare_new: str,
    homes_old: dict[str, str],
    homes_new: dict[str, str],
    hints: Sequence[tuple[str, str, Counter[str]]],
) -> Quoted:
    bare, text = squeezed(quote), " ".join(quote.split())
    homes = [section for section, held in homes_old.items() if bare in held]
    section = homes[0] if homes else norms()[identity].section
    if bare in bare_new:
        there = [name for name, held in homes_new.items() if bare in held]
        moved = homes and there and not set(homes) & set(there)
        return (
            Quoted(identity, section, "moved", text, f"§{there[0]}")
            if moved
            else Quoted(identity, section, "stands", text)
        )
    closest, share = _closest(bare, hints)
    if share < CLOSE:
        return Quoted(identity, section, "gone", text)
    return Quoted(identity, section, "changed", text, closest, difference(text, closest))


def _windows(after: Sequence[Piece], known: set[str]) -> list[tuple[str, str, Counter[str]]]:
    """(sentence, as it is compared, its characters) of each new sentence, alone and with its neighbours: a quote may be
    longer than a sentence."""
    found: dict[str, None] = {}
    for at in [at for at, piece in enumerate(after) if piece.bare not in known][:COMPARED]:
        for first, last in ((at, at), (at, at + 1), (at - 1, at)):
            near = after[max(0, first) : last + 1]
            found[" ".join(piece.text for piece in near if piece.section == after[at].section)[: 2 * LONGEST]] = None
    return [(text, bare, Counter(bare)) for text in found for bare in (squeezed(text)[:LONGEST],)]


def _closest(bare: str, hints: Sequence[tuple[str, str, Counter[str]]]) -> tuple[str, float]:
    """The sentence that holds most of a quote, the shorter one if two hold as much, and what share of it."""
    letters = Counter(bare)
    likely = sorted(hints, key=lambda hint: -sum((letters & hint[2]).values()))[:LOOKED_AT]
    best, share = "", 0.0
    for text, candidate, _ in sorted(likely, key=lambda hint: len(hint[1])):
        blocks = SequenceMatcher(None, candidate, bare[:LONGEST], autojunk=False).get_matching_blocks()
        held = sum(block.size for block in blocks if block.size > 1) / max(1, len(bare[:LONGEST]))
        if held > share:
            best, share = text, held
    return best, share


def difference(old: str, new: str) -> str:
    """The new sentence with what went out as `[-…-]` and what came in as `{+…+}`."""
    parts: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, old[:LONGEST], new[:LONGEST], autojunk=False).get_opcodes():
        if tag == "equal":
            parts.append(old[i:j])
        else:
            parts.append((f"[-{old[i:j]}-]" if i < j else "") + (f"{{+{new[k:m]}+}}" if k < m else ""))
    return "".join(parts)


def _changed(found: Sequence[Piece], whole: str, quotes: dict[str, str]) -> tuple[Changed, ...]:
    """The sentences, each with the rules whose quote, or what has become of it, overlaps it in the whole text."""
    spans = [(at, at + len(bare), identity) for identity, bare in quotes.items() if (at := whole.find(bare)) >= 0]
    changed, seen = [], 0
    for piece in found:
        at = whole.find(piece.bare, seen)
        seen = start = at if at >= 0 else seen
        end = start + len(piece.bare)
        rules = tuple(identity for low, high, identity in spans if low < end and start < high and at >= 0)
        changed.append(Changed(piece.section, piece.text, rules))
    return tuple(changed)


def _show(path: str, found: Comparison) -> None:
    counts = Counter(quoted.state for quoted in found.quotes)
    if found.same:
        print(f"{path}: the text is ours, but for white space at most; all {counts['stands']} quotes stand")
        return
    for quoted in found.revisit:
        print(f"{quoted.id} §{safe(quoted.section)} {quoted.state}: {safe(quoted.quote)}")
        if quoted.state == "changed":
            print(f"  now {safe(quoted.hint)}")
        elif quoted.state == "moved":
            print(f"  to {safe(quoted.closest)}")
    for title, pieces_of in (
        ("new text that no rule quotes", [piece for piece in found.added if not piece.quoted_by]),
        ("text that is gone and that no rule quoted", [piece for piece in found.removed if not piece.quoted_by]),
    ):
        by_section: dict[str, list[str]] = {}
        for piece in pieces_of:
            by_section.setdefault(piece.section, []).append(piece.text)
        for section, texts in by_section.items():
            print(f"§{safe(section) or ' (before any heading)'}: {title}")
            for text in texts[:SHOWN]:
                print(f"  {safe(text[:LONGEST])}")
            if len(texts) > SHOWN:
                print(f"  and {len(texts) - SHOWN} more")
    if not (found.revisit or found.added or found.removed):
        print("the same sentences, in another order or more or less often")
    states = ", ".join(f"{counts[state]} {state}" for state in ("stands", "moved", "changed", "gone") if counts[state])
    print(f"{path}: not the text that the rules quote; quotes: {states.replace('stands', 'stand')}")
    if found.revisit:
        print(f"to revisit: {' '.join(quoted.id for quoted in found.revisit)}")


def _read(path: str) -> str:
    """The text. Raises click.UsageError for what is none."""
    try:
        if not Path(path).is_file():  # a FIFO would be waited for
            raise click.UsageError(f"{path}: no regular file")
        with Path(path).open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise click.UsageError(f"{path}: found more than {LARGEST} bytes, wanted a text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise click.UsageError(f"{path}: line {line}: found byte 0x{raw[error.start]:02x}, wanted UTF-8") from None
    if not text.strip():
        raise click.UsageError(f"{path}: found nothing, wanted a text of the spec")
    return text
