"""Lies in the header JSON (§2): the whole of a right header, and one thing wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fuzz.mutations.mutation import Mutation, Table, family, one
from golden.recipes import HEADER

RIGHT = json.dumps(HEADER, separators=(",", ":"), sort_keys=True)
EPS = '"rms_norm_eps":1e-06'
VERSION = '"version":2'


def _raw(headers: Mapping[str, str | bytes]) -> Table:
    return one("header.raw", {name: (h.encode() if isinstance(h, str) else h).hex() for name, h in headers.items()})


def _instead(old: str, new: str | bytes) -> bytes:
    """The right header with one piece replaced."""
    before, _, after = RIGHT.partition(old)
    if old not in RIGHT:
        raise ValueError(f"the header has no {old}")
    return before.encode() + (new.encode() if isinstance(new, str) else new) + after.encode()


NOT_JSON: dict[str, str | bytes] = {
    "spaces": "    ",
    "word": "cmf",
    "cut-short": RIGHT[:-1],
    "half": RIGHT[: len(RIGHT) // 2],
    "no-colon": _instead(VERSION, '"version" 2'),
    "no-comma": _instead("," + VERSION, VERSION),
    "single-quotes": RIGHT.replace('"', "'"),
    "control-character": _instead('"cmf"', b'"c\x01mf"'),
    "raw-newline": _instead('"cmf"', '"c\nmf"'),
    "bad-escape": _instead('"cmf"', '"\\x63mf"'),
    "leading-zero": _instead(VERSION, '"version":02'),
    "plus": _instead(VERSION, '"version":+2'),
    "hexadecimal": _instead(VERSION, '"version":0x2'),
    "no-fraction": _instead(EPS, '"rms_norm_eps":1.'),
    "bare-word": _instead(VERSION, '"version":two'),
    "True": _instead("false", "False"),
    "zip": b"PK\x03\x04aaaa",
}
NOT_UTF8 = {
    "in-string": _instead('"cmf"', b'"c\xffmf"'),
    "in-unknown-field": _instead("{", b'{"zzz":"\xc3(",'),
    "in-a-key": _instead("{", b'{"\xe2\x28\xa1":1,'),
    "overlong": _instead('"cmf"', b'"cm\xc1\xa6"'),
    "surrogate": _instead('"cmf"', b'"\xed\xb0\x80"'),
    "above-10ffff": _instead("{", b'{"zzz":"\xf4\x90\x80\x80",'),
    "cut-at-the-end": RIGHT[:-1].encode() + b',"zzz":"\xf0\x9f',
    "latin-1": _instead("{", '{"zzz":"caf\xe9",'.encode("latin-1")),
}
UTF16 = {name: RIGHT.encode(name) for name in ("utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be", "utf-32")}
TRAILING = {
    "nul": RIGHT + "\0",
    "nuls": RIGHT + "\0" * 7,
    "x": RIGHT + "x",
    "brace": RIGHT + "}",
    "comma": RIGHT + ",",
    "second": RIGHT + RIGHT,
    "comment": RIGHT + "// cmf",
    "after-a-newline": RIGHT + "\n{}",
}
LAX: dict[str, str | bytes] = {
    "nan": _instead(EPS, '"rms_norm_eps":NaN'),
    "infinity": _instead(EPS, '"rms_norm_eps":Infinity'),
    "minus-infinity": _instead("{", '{"zzz":-Infinity,'),
    "nan-in-unknown": _instead("{", '{"zzz":[NaN],'),
    "block-comment": _instead("{", "{/* cmf */"),
    "line-comment": _instead("{", "{// cmf\n"),
    "comma-in-object": RIGHT[:-1] + ",}",
    "comma-in-list": _instead("]", ",]"),
    "hash-comment": _instead("{", "{# cmf\n"),
}
OBJECTS = [HEADER[key] for key in ("format", "version", "arch", "quant_type", "provenance")]
NO_OBJECT = {
    "list": "[]",
    "null": "null",
    "text": '"cmf"',
    "number": "2",
    "true": "true",
    "list-of-the-fields": json.dumps(OBJECTS),
    "list-of-eleven": json.dumps([*OBJECTS, *[None] * 6]),
    "list-around-it": f"[{RIGHT}]",
}

MUTATIONS: tuple[Mutation, ...] = (
    *family("VAL-012", "", "plain", _raw(NOT_JSON)),
    *family("HDR-002", "", "plain", _raw(NOT_UTF8)),
    *family("HDR-003", "", "plain", _raw(UTF16)),
    *family("HDR-004", "", "plain", _raw(TRAILING)),
    *family("HDR-005", "", "plain", _raw(LAX)),
    *family("HDR-006", "", "plain", _raw(NO_OBJECT)),
)
