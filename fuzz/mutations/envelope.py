"""Lies in the envelope (§1, §1.2), and in the tables that only other sections' rules speak of so far."""

from __future__ import annotations

from typing import Any

from cmfspec.format.build import Edit
from fuzz.mutations.mutation import PAGE, Mutation, family, one


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
VERSIONS = (0, 3, 20, 0x0102, 0x20000, 2**25, 2**31, 2**31 + 2, 2**32 - 1)

MUTATIONS: tuple[Mutation, ...] = (
    *family("ENV-001", "", "plain", one("cut", {f"{n}-bytes": n for n in (0, 1, 3, 4, 64, 127)})),
    *family("ENV-002", "InvalidMagic", "plain", MAGIC),
    *family("ENV-004", "UnsupportedVersion", "plain", one("envelope.version", {str(v): v for v in VERSIONS})),
    *family("VAL-004", "UnsupportedVersion", "plain", one("envelope.version", {"1": 1})),
    *family("VAL-004", "UnsupportedVersion", "full", one("envelope.version", {"1-of-full": 1})),
    *family("ENV-013", "", "plain", one("envelope.header_len", {"0": 0})),
    *family("ENV-014", "", "plain", one("envelope.dir_len", {str(n): n for n in (0, 1, 15)})),
    *family("ENV-015", "Bounds", "full", PAST_THE_END),
    *family("ENV-016", "Bounds", "full", WRAPPED),
    *family(
        "ENV-017",
        "Bounds",
        "full",
        {f"plus-{k}": (("tail", 2 * PAGE), ("envelope.data_off", {"plus": k})) for k in (1, 8, 64, 512, 2048, 4095)},
    ),
)
