"""Named mutations: a valid file with one lie, as data.

Law: each breaks exactly the rule that it names; our own reader finds that fault in it and no other, and none in the file
without the edit. kinds: the refusals that §1.2 names for it; empty where it names none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cmfspec.format.build import Edit
from golden.files import File

PAGE = 4096


@dataclass(frozen=True)
class Mutation:
    """One lie. name: unique; breaks: a rule id; recipe: the valid file; edits: what makes it wrong."""

    name: str
    breaks: str
    kinds: tuple[str, ...]
    recipe: str
    edits: tuple[Edit, ...]

    @property
    def file(self) -> File:
        """The wrong file; its `base` is the right one."""
        return File(self.recipe, self.edits)


def _family(breaks: str, kind: str, recipe: str, table: Mapping[str, tuple[Edit, ...]]) -> Iterator[Mutation]:
    for name, edits in table.items():
        yield Mutation(f"{breaks}.{name}", breaks, (kind,) if kind else (), recipe, edits)


def _one(path: str, values: Mapping[str, Any]) -> dict[str, tuple[Edit, ...]]:
    return {name: ((path, value),) for name, value in values.items()}


def _section(section: str, off: Any, length: Any) -> tuple[Edit, ...]:
    edits = ((f"envelope.{section}_off", off), (f"envelope.{section}_len", length))
    return tuple(edit for edit in edits if edit[1] is not None)


MAGIC = {
    **{
        f"bit{bit}-of-byte{byte}": (("flip", ["file", byte, 1 << bit]),)
        for byte, bit in ((0, 0), (1, 5), (2, 7), (3, 0), (3, 1))
    },
    **{
        name: (("put", [0, raw.hex()]),)
        for name, raw in {
            "gguf": b"GGUF",
            "zeros": bytes(4),
            "text": b"CMF1",
            "lower": b"cmf\x01",
            "reversed": b"\x01FMC",
            "zip": b"PK\x03\x04",
            "ones": b"\xff" * 4,
        }.items()
    },
}
PAST_THE_END = {
    **{f"{s}-ends-1-past": _section(s, None, {"eof": 1}) for s in ("header", "dir", "data", "masks", "vocab", "index")},
    **{f"{s}-begins-at-end": _section(s, {"eof": 0}, 16) for s in ("header", "dir", "masks", "vocab", "index")},
    **{f"{s}-at-2^63": _section(s, 2**63, 16) for s in ("header", "dir", "masks", "vocab", "index")},
    **{f"{s}-2^63-long": _section(s, None, 2**63) for s in ("header", "dir", "data", "masks", "vocab", "index")},
    "data-at-2^40": _section("data", 2**40, None),
    "header-2^40-long": _section("header", None, 2**40),
}
WRAPPED = {
    **{f"{s}-wraps-to-8": _section(s, 2**64 - 8, 16) for s in ("header", "dir", "masks", "vocab", "index")},
    "data-wraps-to-4096": _section("data", 2**64 - PAGE, 2 * PAGE),
    **{
        f"{s}-len-rounds-to-0": _section(s, None, length)
        for s, length in (
            ("header", 2**64 - 1),
            ("dir", 2**64 - 63),
            ("data", 2**64 - 4095),
            ("vocab", 2**64 - 7),
            ("masks", 2**64 - 1),
        )
    },
}
NOT_UTF8 = {
    "fe-ff": b"\xff\xfe",
    "overlong-nul": b"a\xc0\x80b",
    "surrogate": b"\xed\xa0\x80",
    "cut-short": b"w.\xf0\x9f\x98",
    "past-10ffff": b"\xf5\x80\x80\x80",
    "stray-continuation": b"w\x80",
    "latin-1": b"caf\xe9.weight",
    "above-10ffff": b"\xf4\x90\x80\x80",
}
NOT_JSON = {
    "spaces": b"    ",
    "word": b"cmf",
    "cut-short": b'{"format":"cmf","arch":{',
    "no-colon": b'{"format" "cmf"}',
    "single-quotes": b"{'format':'cmf'}",
    "utf-16": '{"format":"cmf"}'.encode("utf-16-le"),
    "control-character": b'{"format":"c\x01mf"}',
    "bad-escape": b'{"format":"\\x63mf"}',
    "leading-zero": b'{"version":02}',
    "plus": b'{"version":+2}',
    "zip": b"PK\x03\x04aaaa",
}
NOT_UTF8_HEADER = {
    "in-string": b'{"format":"c\xffmf"}',
    "in-unknown-field": b'{"format":"cmf","zzz":"\xc3("}',
    "overlong": b'{"format":"cm\xc1\xa6"}',
    "surrogate": b'{"format":"\xed\xb0\x80"}',
}

MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for family in (
        _family("ENV-001", "", "plain", _one("cut", {f"{n}-bytes": n for n in (0, 1, 3, 4, 64, 127)})),
        _family("ENV-002", "InvalidMagic", "plain", MAGIC),
        _family(
            "ENV-004",
            "UnsupportedVersion",
            "plain",
            _one(
                "envelope.version", {str(v): v for v in (0, 3, 20, 0x0102, 0x20000, 2**25, 2**31, 2**31 + 2, 2**32 - 1)}
            ),
        ),
        _family("VAL-004", "UnsupportedVersion", "plain", _one("envelope.version", {"1": 1})),
        _family("VAL-004", "UnsupportedVersion", "full", _one("envelope.version", {"1-of-full": 1})),
        _family("ENV-013", "", "plain", _one("envelope.header_len", {"0": 0})),
        _family("ENV-014", "", "plain", _one("envelope.dir_len", {str(n): n for n in (0, 1, 15)})),
        _family("ENV-015", "Bounds", "full", PAST_THE_END),
        _family("ENV-016", "Bounds", "full", WRAPPED),
        _family(
            "ENV-017",
            "Bounds",
            "full",
            {
                f"plus-{k}": (("tail", 2 * PAGE), ("envelope.data_off", {"plus": k}))
                for k in (1, 8, 64, 512, 2048, 4095)
            },
        ),
        _family(
            "VAL-005",
            "Bounds",
            "plain",
            {
                "last-off-64": (("dir[2].off", {"plus": 64}),),
                "first-off-2^40": (("dir[0].off", 2**40),),
                "data-len-1-short": (("envelope.data_len", {"plus": -1}),),
                "data-len-0": (("envelope.data_len", 0), ("dir[0].off", 0), ("dir[1].off", 0), ("dir[2].off", 0)),
                "first-off-2^63": (("dir[0].off", 2**63),),
                "off-at-data-len": (("dir[1].off", 384),),
            },
        ),
        _family(
            "VAL-005",
            "Bounds",
            "full",
            {
                "vbit-nbytes-1-more": (("dir[3].nbytes", {"plus": 1}),),
                "vbit-nbytes-2^63": (("dir[3].nbytes", 2**63 - PAGE),),
            },
        ),
        _family(
            "VAL-006",
            "Bounds",
            "plain",
            {"wraps-to-0": (("dir[0].off", 2**64 - 64),), "wraps-to-76": (("dir[1].off", 2**64 - 64),)},
        ),
        _family("VAL-006", "Bounds", "full", {"nbytes-wraps": (("dir[3].nbytes", 2**64 - 64), ("dir[3].off", 64))}),
        _family("VAL-007", "Parse", "plain", {name: (("dir[1].name", raw.hex()),) for name, raw in NOT_UTF8.items()}),
        _family("VAL-008", "Parse", "plain", _one("dir[1].dtype", {str(n): n for n in (16, 17, 18, 100, 200, 255)})),
        _family("VAL-009", "Parse", "plain", _one("dir[1].ndim", {str(n): n for n in (7, 8, 127, 255)})),
        _family("VAL-012", "", "plain", _one("header.raw", {name: raw.hex() for name, raw in NOT_JSON.items()})),
        _family("HDR-002", "", "plain", _one("header.raw", {name: raw.hex() for name, raw in NOT_UTF8_HEADER.items()})),
        _family("HDR-003", "", "plain", _one("header.raw", {"bom": "efbbbf7b7d"})),
        _family("HDR-004", "", "plain", _one("header.raw", {"nul": "7b7d00", "x": "7b7d78", "second": "7b7d7b7d"})),
        _family(
            "HDR-005",
            "",
            "plain",
            _one("header.raw", {"nan": b'{"a":NaN}'.hex(), "infinity": b'{"a":-Infinity}'.hex()}),
        ),
        _family(
            "HDR-006",
            "",
            "plain",
            _one(
                "header.raw",
                {
                    name: raw.hex()
                    for name, raw in {"list": b"[]", "null": b"null", "text": b'"x"', "number": b"2"}.items()
                },
            ),
        ),
        _family(
            "DIR-004",
            "",
            "plain",
            {
                "count-1-more": (("dir.count", {"plus": 3}), ("dir.pool_off", {"plus": 168})),
                "count-2^40": (("dir.count", 2**40),),
            },
        ),
        _family("DIR-005", "", "plain", _one("dir.count", {"wraps": 329406144173384852, "2^63": 2**63})),
        _family(
            "DIR-006", "", "plain", _one("dir.pool_off", {"past": {"plus": 4096}, "2^63": 2**63, "2^64-1": 2**64 - 1})
        ),
        _family(
            "DIR-007",
            "",
            "plain",
            {
                "off-2^32-1": (("dir[1].name_off", 2**32 - 1),),
                "len-65535": (("dir[1].name_len", 65535),),
                "last-1-more": (("dir[2].name_len", {"plus": 1}),),
            },
        ),
        _family("DIR-009", "", "plain", {"same-place": (("dir[1].name_off", 0), ("dir[1].name_len", 37))}),
        _family(
            "DIR-017",
            "",
            "tiny",
            {"2^128": (*tuple((f"dir[0].shape{axis}", 65536) for axis in range(6)), ("dir[0].ndim", 6))},
        ),
        _family(
            "DIR-019",
            "",
            "plain",
            {"off-plus-2": (("dir[0].off", {"plus": 2}),), "off-plus-32": (("dir[1].off", {"plus": 32}),)},
        ),
        _family(
            "DIR-020",
            "",
            "plain",
            {"one-less": (("dir[0].nbytes", {"plus": -1}),), "huge-shape": (("dir[1].shape0", 10**6),)},
        ),
        _family("MASK-002", "", "full", _one("masks@4", {"2^32-1": 2**32 - 1, "1-past": 400})),
        _family("IDX-008", "", "full", _one("index@0", {"2^32-1": 2**32 - 1, "5": 5})),
        _family(
            "IDX-007", "", "full", {"groups-2^32-1": (("index@16", 2**32 - 1),), "heads-2^31": (("index@20", 2**31),)}
        ),
    )
    for mutation in family
}


def breaking(*rules: str) -> tuple[Mutation, ...]:
    """The mutations that break one of these rules."""
    return tuple(mutation for mutation in MUTATIONS.values() if mutation.breaks in rules)
