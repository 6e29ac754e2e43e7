"""The header JSON (§2), decoded strictly.

Law: the whole of it is valid UTF-8 first, since a decoder may skip what it doesn't know unchecked; then exactly one JSON
object with unique keys, bounded depth and integers, no NaN, no lone surrogate. Unknown fields are ignored by whoever reads
it. Anything else is a `Parse` refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from cmfspec.errors import Fault, refusal
from cmfspec.layout import MAX_JSON_DEPTH, MAX_JSON_DIGITS

# What can be wrong with JSON, and the rule of the header that it breaks.
HEADER_RULES: Mapping[str, str] = {
    "utf8": "HDR-002",
    "bom": "HDR-003",
    "trailing": "HDR-004",
    "strict": "HDR-005",
    "object": "HDR-006",
    "duplicate": "HDR-007",
    "surrogate": "HDR-008",
    "digits": "HDR-012",
    "depth": "HDR-028",
    "json": "VAL-012",
}
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STEP = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1


class _Broken(Exception):
    """Raised inside the decoder's hooks; carries what is wrong, and in words what was found."""

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(found)
        self.what, self.found, self.wanted = what, found, wanted


def strict_object(
    raw: bytes | memoryview, field: str, base: int, rules: Mapping[str, str] = HEADER_RULES
) -> dict[str, Any]:
    """The JSON object in `raw`, which stands at `base` in the file.

    Raises Parse, with the rule that `rules` gives for what is wrong.
    """
    raw = bytes(raw)

    def refuse(what: str, at: int, found: str, wanted: str) -> NoReturn:
        raise refusal(Fault("Parse", rules[what], field, base + at, found, wanted)) from None

    if 0 in raw[:4] or raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        refuse("bom", 0, f"bytes {raw[:4].hex(' ')}", "UTF-8, not UTF-16 or UTF-32")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse("utf8", error.start, f"bytes {raw[error.start : error.start + 4].hex(' ')}", "UTF-8")
    if text.startswith("\ufeff"):
        refuse("bom", 0, "a byte order mark", "JSON without one")
    brackets = np.frombuffer(_STRING.sub(b"", raw).translate(None, _NO_BRACKET), np.uint8)
    depth = int(np.cumsum(_STEP[brackets], dtype=np.int32).max(initial=0))
    if depth > MAX_JSON_DEPTH:
        refuse("depth", 0, f"nesting {depth} deep", f"at most {MAX_JSON_DEPTH}")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_bounded)
    except _Broken as broken:
        refuse(broken.what, 0, broken.found, broken.wanted)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        what = "trailing" if error.msg == "Extra data" else _kind_of(text, error.pos)
        refuse(
            what,
            at,
            f"{error.msg.lower()}: {text[error.pos : error.pos + 16]!r}",
            "one JSON object and nothing after it",
        )
    except RecursionError:
        refuse("depth", 0, "nesting too deep for this process", f"at most {MAX_JSON_DEPTH}")
    if not isinstance(value, dict):
        refuse("object", 0, f"a JSON {type(value).__name__}", "an object")
    if _SURROGATE.search(raw):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            refuse("surrogate", 0, "a lone surrogate escape", "text that UTF-8 can carry")
    return value


def _kind_of(text: str, at: int) -> str:
    """`strict` for a comment or a trailing comma, which laxer readers take; `json` for the rest."""
    before, here, after = text[:at].rstrip()[-1:], text[at : at + 1], text[at + 1 :].lstrip()[:1]
    comma = {before + here, here + after} & {",]", ",}"}  # by where this version of Python sees it
    return "strict" if comma or here in ("/", "#") else "json"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Broken("duplicate", f"the key {ascii(twice)[:80]} twice", "unique keys")
    return found


def _no_constant(word: str) -> NoReturn:
    raise _Broken("strict", word, "a JSON number")


def _bounded(digits: str) -> int:
    if len(digits) > MAX_JSON_DIGITS:
        raise _Broken("digits", f"an integer of {len(digits)} digits", f"at most {MAX_JSON_DIGITS}")
    return int(digits)
