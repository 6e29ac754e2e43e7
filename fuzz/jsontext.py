"""Mutations of JSON: first of its nodes, so that it stays JSON, then of its text.

Law: as `havoc`: bytes in, bytes out, following the dice alone; what can't be parsed is changed as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fuzz.havoc import NASTY, havoc

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, 1e-320, "", "0",
    "x" * 300, "\x00", "é\U0001f600", "__proto__", "../../x", "<|im_end|>", [], {}, [[]], {"a": {}}, [1, "a", None],
)  # fmt: skip
PIECES = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"null", b"true", b"NaN", b"Infinity", b"-", b"1e999", b"-0", b"01", b"+1",
    b".5", b'"\\ud800"', b'"\\u0000"', b"\\", b"/*x*/", b"//x\n", b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xed\xa0\x80",
    b"\x00", b"\xe2\x80\xa8", b"\t", b" ", b"'a'", b"9" * 400, b"9" * 5000, b'"a":1,', b'{"a":1,"a":2}', b"[" * 300,
    b'{"a":' * 300,
)  # fmt: skip
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|[A-Za-z]+|[\[\]{}:,]')


def json_bytes(dice: Random, raw: bytes, others: Sequence[bytes] = (), longest: int = 1 << 16) -> bytes:
    """JSON in, much the same JSON out: two times of three still JSON."""
    if dice.randrange(3):
        try:
            return _by_nodes(dice, raw, others)[:longest]
        except (ValueError, RecursionError):
            pass  # it is none; its text can still be changed
    return (_by_tokens(dice, raw) if dice.randrange(3) else havoc(dice, raw, others, longest))[:longest]


def _by_nodes(dice: Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    tree = {"": json.loads(raw)}
    for _ in range(1 + dice.randrange(3)):
        holder, key = _place(dice, tree)
        dice.choice(_NODES)(dice, holder, key, others)
    spacing = (",", ":") if dice.randrange(4) else (" , ", " :\n")
    return json.dumps(tree.get(""), separators=spacing, ensure_ascii=bool(dice.randrange(2))).encode("utf-8", "replace")


def _place(dice: Random, node: Any) -> tuple[Any, Any]:
    """(holder, key) of some node: a walk down, which may end anywhere. The root's key is ""."""
    while True:
        key = dice.choice([*node]) if isinstance(node, dict) else dice.randrange(len(node))
        below = node[key]
        if not (isinstance(below, dict | list) and below and (key == "" or dice.randrange(4))):
            return node, key
        if key == "" and dice.randrange(32) == 0:
            return node, key
        node = below


def _replace(dice: Random, holder: Any, key: Any, _: Sequence[bytes]) -> None:
    holder[key] = dice.choice(VALUES)


def _number(dice: Random, holder: Any, key: Any, _: Sequence[bytes]) -> None:
    value = holder[key]
    around = value if type(value) is int else 0
    holder[key] = dice.choice((around + 1, around - 1, -around, around * 2, dice.choice(NASTY), dice.getrandbits(16)))


def _remove(dice: Random, holder: Any, key: Any, _: Sequence[bytes]) -> None:  # noqa: ARG001 - one signature
    if key != "":
        del holder[key]


def _add(dice: Random, holder: Any, key: Any, _: Sequence[bytes]) -> None:
    value = holder[key]
    new = dice.choice(VALUES)
    if isinstance(value, dict):
        value[dice.choice((f"k{dice.randrange(99)}", "", "é", "skills", "section_hashes", "__proto__"))] = new
    elif isinstance(value, list):
        value.insert(dice.randrange(len(value) + 1), new)
    else:
        holder[key] = [value, new] if dice.randrange(2) else {"a": value}


def _copy(dice: Random, holder: Any, key: Any, _: Sequence[bytes]) -> None:
    """A node where another one is, copied so that the tree stays a tree."""
    other, at = _place(dice, holder)
    holder[key] = json.loads(json.dumps(other[at]))


def _graft(dice: Random, holder: Any, key: Any, others: Sequence[bytes]) -> None:
    """A node of another input."""
    if others:
        found, at = _place(dice, {"": json.loads(dice.choice(others))})
        holder[key] = found[at]


_NODES: tuple[Callable[[Random, Any, Any, Sequence[bytes]], None], ...] = (
    _replace, _replace, _number, _number, _remove, _add, _add, _copy, _graft,
)  # fmt: skip


def _by_tokens(dice: Random, raw: bytes) -> bytes:
    """Tokens replaced, dropped, doubled, or something put between them."""
    spans = [match.span() for match in TOKEN.finditer(raw)] or [(0, len(raw))]
    start, end = dice.choice(spans)
    token, piece = raw[start:end], dice.choice(PIECES)
    new = dice.choice((piece, b"", token + token, token + piece, piece + token))
    return raw[:start] + new + raw[end:]
