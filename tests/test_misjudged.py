"""A fuzzer's oracle accuses nobody of what the text leaves open, and of everything that it doesn't."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import cmfspec
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.reference import Parts, reference
from cmfspec.contract.rule import load_catalogue
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.format.checks import CHECKS
from runner.misjudged import misjudged

load_catalogue()
MASKS = {
    "duplicate": ('{"masks": [], "a": 1, "a": 2}', ""),
    "surrogate": ('{"masks": [], "a": "\\ud800"}', ""),
    "digits": ('{"masks": [], "a": ' + "9" * 5000 + "}", ""),
    "depth": ('{"masks": [], "a": ' + "[" * 300 + "]" * 300 + "}", ""),
    "trailing": ('{"masks": []}{}', "MASK-001"),
    "strict": ('{"masks": [],}', "MASK-001"),
    "object": ("[]", "MASK-001"),
    "utf8": ('{"masks": [], "\\ud800": 1}', "MASK-001"),
}


@pytest.mark.parametrize("what", MASKS)
def test_only_what_the_text_forbids_in_the_masks_is_held_against_who_accepts_it(what: str) -> None:
    """Whoever reads 5,000 digits, or nests deeper than we do, breaks no rule."""
    text, rule = MASKS[what]
    meta = text.encode("utf-8") if what != "utf8" else text.encode().replace(b"\\ud800", b"\xff")
    masks = bytes(4) + len(meta).to_bytes(4, "little") + meta
    lax = tuple(check for check in CHECKS if not check.name.startswith("masks."))
    with closing(InProcess(reference(Parts(checks=lax)))) as link:
        found = misjudged(render(Blueprint({}, (Entry("w", 1, (1,), b"\0\0"),), masks)), link)
    assert ((found and found.about) or frozenset()) == frozenset({rule} - {""}), json.dumps(str(found))


def test_a_limit_of_our_reader_binds_no_other() -> None:
    """Names over the same bytes of the pool, more of them than we read: another reader may."""
    entries = (*(Entry(str(at), 1, (0,), b"") for at in range(400)), Entry("x" * 65000, 1, (0,), b""))
    edits = [
        (f"dir[{at}].{field}", value) for at in range(400) for field, value in (("name_off", at), ("name_len", 60000))
    ]
    content = render(Blueprint({}, entries), edits)
    (fault, *_) = cmfspec.faults(content)
    assert fault.field == "dir.names"
    lax = tuple(check for check in CHECKS if check.name not in ("dir.names", "dir.duplicates"))
    with closing(InProcess(reference(Parts(checks=lax)))) as link:
        assert misjudged(content, link) is None
