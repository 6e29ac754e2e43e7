"""Where the text is silent: why a file that our reader accepts may be refused by another, and the other way round.

Law: a table of (rule, does it concern this file). A rule stands here if its ruling leaves it open, or if it is of a part that
our reader does not judge as a whole (what is in `arch`, in masks, in an index): such a part is surely right only where it is
that of a shipped seed, or where the text says that nobody may refuse it. Only a refusal is excused, never a crash or a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import cmfspec
from cmfspec.errors import Refusal
from cmfspec.format.container import Container
from cmfspec.format.view import ADDRESSED, View
from cmfspec.layout import BINARY_MASKS, DIR_HEAD_SIZE, MAX_NDIM, OPTIONAL, QUANT_2F, RECORD_SIZE, TENSOR_DIR
from fuzz.corpus import shipped
from runner.misjudged import Misjudged

ANY_OBJECT, ANY_TEXT = ("provenance",), ("quant_type",)  # nobody may refuse a file for what they hold
NULLABLE = ("tokenizer_config", "shard", "provenance", "moe", "mtp", "section_hashes")
KNOWN = (
    "format",
    "version",
    "arch",
    "quant_type",
    "provenance",
    "skills",
    *NULLABLE,
    "masks",
    "tokenizer",
    "chat_template",
)
SMALL = 2**31  # of a number in `arch`: what is larger may be more than a reader's integers hold
LARGE_HEADER = 2**16  # bytes

Concerns = Callable[[Container], bool]


def _spans(opened: Container) -> Iterator[tuple[str, int, int]]:
    yield from ((name, *opened.view.span(name)) for name in ADDRESSED)


def _past_the_end(opened: Container) -> bool:
    return any(not size and off > opened.view.size for _, off, size in _spans(opened))


def _absent_with_a_length(opened: Container) -> bool:
    return any(size and not off for name, off, size in _spans(opened) if name in OPTIONAL)


def _empty(opened: Container) -> bool:
    return any(off and not size for name, off, size in _spans(opened) if name in OPTIONAL)


def _overlapping(opened: Container) -> bool:
    """Two sections, or a section and the envelope; the data range may hold others."""
    spans = sorted((off, off + size) for name, off, size in _spans(opened) if size and off and name != "data")
    return any(left[1] > right[0] for left, right in zip([(0, 128), *spans], spans, strict=False))


def _odd_bits(opened: Container) -> bool:
    bits = opened.view.envelope["required_features"]
    names = {tensor.dtype_name for tensor in opened}
    wanted = {TENSOR_DIR: True, BINARY_MASKS: opened.view.present("masks"), QUANT_2F: bool(names & {"q8_2f", "vbit"})}
    return any(bool(bits >> bit & 1) != right for bit, right in wanted.items())


def _odd_records(opened: Container) -> bool:
    records = opened.view.directory.records
    beyond = any(record["shape"][axis] for record in records for axis in range(min(int(record["ndim"]), 6), MAX_NDIM))
    return beyond or any(not tensor.shape or 0 in tensor.shape for tensor in opened)


def _lying_payload(opened: Container) -> bool:
    """A reader may look at payloads when it opens the file."""
    for tensor in opened:
        try:
            opened.values(tensor.index)
        except Refusal as refusal:
            if refusal.fault.rule != "DT-004":
                return True
    return False


def _hashes_of_nothing(opened: Container) -> bool:
    """Malformed are only entries of sections that the file doesn't have."""
    hashes = opened.header.get("section_hashes")
    right = (isinstance(hashes, dict) and isinstance(hashes.get(name, ""), str) for name in opened.sections)
    return all(right)


def _shared_bytes(opened: Container) -> bool:
    spans = sorted((t.off, t.off + t.nbytes) for t in opened if t.nbytes)
    return any(left[1] > right[0] for left, right in pairwise(spans))


def _odd_names(opened: Container) -> bool:
    names = [tensor.name for tensor in opened]
    spans = sorted((int(r["name_off"]), int(r["name_off"]) + int(r["name_len"])) for r in opened.view.directory.records)
    shared = any(left[1] > right[0] for left, right in pairwise(spans))
    return shared or any(not name or not name.isprintable() for name in names)


def _odd_pool(opened: Container) -> bool:
    count, pool_off = opened.view.dir_head()
    return pool_off != DIR_HEAD_SIZE + RECORD_SIZE * count


def _header_as_never_seen(opened: Container) -> bool:
    """Something that the text gives a meaning to, and that no seed has."""
    if opened.view.span("header")[1] > LARGE_HEADER or b"\\" in bytes(opened.view.part("header")):
        return True
    header = opened.header
    return any(not _usual(name, header.get(name), name in header) for name in KNOWN)


def _usual(name: str, value: Any, present: bool) -> bool:
    if name == "arch":
        return isinstance(value, Mapping) and any(_same_arch(value, arch) for arch in _values()["arch"])
    if name in ANY_OBJECT and isinstance(value, dict):
        return True
    if name in ANY_TEXT and isinstance(value, str):
        return True
    if name == "section_hashes" and isinstance(value, dict):
        return all(isinstance(digits, str) and len(digits) == 16 for digits in value.values())
    return value in _values()[name] if present else None in _values()[name]


def _same_arch(value: Mapping[str, Any], arch: Mapping[str, Any]) -> bool:
    """The same but for what the text doesn't name, and for plain numbers of plain size."""

    def same(name: str, right: Any) -> bool:
        found = value.get(name)
        number = type(found) is int and type(right) is int and 0 < found < SMALL and name != "num_layers"
        return number or (type(found) is type(right) and found == right)

    return all(same(name, right) for name, right in arch.items()) and not value.keys() - arch.keys()


@cache
def _values() -> dict[str, list[Any]]:
    """What the seeds have at each known name of the header; None where one lacks it."""
    headers = [cmfspec.open(content).header for content in shipped()]
    return {name: [header.get(name) for header in headers] for name in KNOWN}


@cache
def _sections(name: str) -> frozenset[bytes]:
    return frozenset(bytes(cmfspec.open(content).view.part(name)) for content in shipped())


def _section_as_never_seen(name: str) -> Concerns:
    def concerns(opened: Container) -> bool:
        """The masks of one architecture are wrong for another."""
        arch = opened.header.get("arch")
        if not opened.view.present(name):
            return False
        return bytes(opened.view.part(name)) not in _sections(name) or arch not in _values()["arch"]

    return concerns


SILENT: tuple[tuple[str, Concerns], ...] = (
    ("ENV-006", lambda opened: opened.view.envelope["flags"] != 0),
    ("ENV-011", _absent_with_a_length),
    ("ENV-012", _empty),
    ("ENV-012", _past_the_end),
    ("ENV-020", _overlapping),
    ("FEAT-006", _odd_bits),
    ("HDR-011", _header_as_never_seen),
    ("VAL-011", _lying_payload),
    ("DIR-010", _odd_names),
    ("DIR-014", _odd_records),
    ("DIR-021", _shared_bytes),
    ("DIR-026", _odd_pool),
    *(
        (f"{rule}-001", _section_as_never_seen(name))
        for rule, name in (("MASK", "masks"), ("TOK", "vocab"), ("IDX", "index"))
    ),
)


# A wrong acceptance is excused where the ruling leaves it open: (question, what it is about, why, whether that is so here).
OPEN: tuple[tuple[str, frozenset[str], str, Concerns], ...] = (
    ("tensor", frozenset({"DIR-017"}), "DIR-017", lambda _: True),  # a limit of our own arrays, not of the text
    ("tensor", frozenset(), "DIR-016", lambda opened: any(0 in tensor.shape for tensor in opened)),
    ("verify", frozenset({"section_hashes"}), "HDR-023", _hashes_of_nothing),
)
# The same of a file that is refused by our reader: (what it is about, why, whether that is so here).
REFUSED: tuple[tuple[frozenset[str], str, Callable[[View], bool]], ...] = (
    # §1 aligns data_off; whether that binds where there are no data is SHOULD
    (frozenset({"ENV-017"}), "ENV-017", lambda view: not view.span("data")[1]),
    # no masks are legal, and whether there is a list of none then is open
    (frozenset({"MASK-001"}), "MASK-030", lambda view: not view.masks_head()[0]),
)


def excused(found: Misjudged, content: bytes) -> str:
    """The rule whose silence excuses it, or nothing."""
    if found.outcome == "WRONG_REJECT":
        opened = cmfspec.open(content)
        return next((rule for rule, concerns in SILENT if concerns(opened)), "")
    if found.outcome != "WRONG_ACCEPT":
        return ""
    if found.op == "open":
        view = View(content)
        return next((rule for about, rule, concerns in REFUSED if found.about == about and concerns(view)), "")
    rows = [row for row in OPEN if row[0] == found.op and row[1] <= found.about]
    if not rows or any(cmfspec.faults(content)):
        return ""
    opened = cmfspec.open(content)
    return next((rule for _, _, rule, concerns in rows if concerns(opened)), "")
