"""Lies in the tensor directory (§3, §3.1)."""

from __future__ import annotations

from cmfspec.format.build import Edit
from fuzz.mutations.mutation import Mutation, family, one

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
WRAPS = 2**61  # times 56 is 0 modulo 2^64
FIXED = {
    "f32": "5x7", "f16": "33", "bf16": "2x3x4", "q8_row": "4x33", "q4_block": "3x21", "q4_tiled": "4x64", "q1": "4x64",
    "q8_2f": "4x33", "q4tp": "4x96",
}  # fmt: skip


def _as(*shape: int) -> tuple[Edit, ...]:
    """The record of the first tensor with another shape."""
    dims = (*shape, *[0] * 6)[:6]
    return (("dir[0].ndim", len(shape)), *((f"dir[0].shape{axis}", dim) for axis, dim in enumerate(dims)))


# The same bytes under a shape that the encoding can't have; the count of elements, and so nbytes, stays plausible.
NOT_A_MATRIX = {"1-d": ("1x128", _as(128)), "3-d": ("4x32", _as(2, 2, 32)), "6-d": ("4x32", _as(1, 1, 2, 2, 1, 32))}
NO_GROUPS = {"cols-16": ("4x32", _as(4, 16)), "cols-40": ("4x64", _as(4, 40)), "cols-33": ("4x64", _as(4, 33))}


def _shapes(rule: str, dtype: str, table: dict[str, tuple[str, tuple[Edit, ...]]]) -> tuple[Mutation, ...]:
    return tuple(
        mutation
        for name, (shape, edits) in table.items()
        for mutation in family(rule, "", f"one:{dtype}:{shape}", {f"{dtype}-{name}": edits})
    )


MUTATIONS: tuple[Mutation, ...] = (
    *family(
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
    *family(
        "VAL-005",
        "Bounds",
        "full",
        {
            "vbit-nbytes-1-more": (("dir[3].nbytes", {"plus": 1}),),
            "vbit-nbytes-2^63": (("dir[3].nbytes", 2**63 - 4096),),
        },
    ),
    *family(
        "VAL-006",
        "Bounds",
        "plain",
        {"wraps-to-0": (("dir[0].off", 2**64 - 64),), "wraps-to-76": (("dir[1].off", 2**64 - 64),)},
    ),
    *family("VAL-006", "Bounds", "full", {"nbytes-wraps": (("dir[3].nbytes", 2**64 - 64), ("dir[3].off", 64))}),
    *family("VAL-007", "Parse", "plain", {name: (("dir[1].name", raw.hex()),) for name, raw in NOT_UTF8.items()}),
    *family("VAL-008", "Parse", "plain", one("dir[1].dtype", {str(n): n for n in (17, 18, 32, 100, 128, 200, 255)})),
    *family("DT-016", "Parse", "plain", one("dir[1].dtype", {"16": 16})),
    *family("DT-016", "Parse", "tiny", one("dir[0].dtype", {"16-of-tiny": 16})),
    *family("VAL-009", "Parse", "plain", one("dir[1].ndim", {str(n): n for n in (7, 8, 127, 255)})),
    *family("DIR-004", "", "plain", {"count-1-more": (("dir.count", {"plus": 3}), ("dir.pool_off", {"plus": 168}))}),
    *family("DIR-004", "", "tiny", one("dir.count", {"2-of-1": 2, "2^16": 2**16, "2^32+1": 2**32 + 1, "2^40": 2**40})),
    *family(
        "DIR-005",
        "",
        "tiny",
        one(
            "dir.count",
            {"wraps-to-1": WRAPS + 1, "wraps-to-1-again": 4 * WRAPS + 1, "2^63": 2**63, "2^64-1": 2**64 - 1},
        ),
    ),
    *family("DIR-005", "", "plain", one("dir.count", {"wraps-to-3": WRAPS + 3, "wraps-to-40": 329406144173384852})),
    *family("DIR-006", "", "tiny", one("dir.pool_off", {"1-past": {"plus": 38}, "2^63": 2**63, "2^64-1": 2**64 - 1})),
    *family("DIR-006", "", "plain", one("dir.pool_off", {"past": {"plus": 4096}, "2^32": 2**32})),
    *family(
        "DIR-007",
        "",
        "plain",
        {
            "off-2^32-1": (("dir[1].name_off", 2**32 - 1),),
            "len-65535": (("dir[1].name_len", 65535),),
            "last-1-more": (("dir[2].name_len", {"plus": 1}),),
            "last-begins-1-on": (("dir[2].name_off", {"plus": 1}),),
        },
    ),
    *family(
        "DIR-009",
        "",
        "plain",
        {
            "same-place": (("dir[1].name_off", 0), ("dir[1].name_len", 37)),
            "same-bytes": (("dir[1].name", b"w".hex()), ("dir[0].name", b"w".hex())),
            "last-is-first": (("dir[2].name", b"w".hex()), ("dir[0].name", b"w".hex())),
            "both-empty": (("dir[2].name", ""), ("dir[0].name", "")),
        },
    ),
    *family(
        "DIR-017",
        "",
        "one:f32:0",
        {
            "2^128": _as(2**16, 2**16, 2**16, 2**16, 2**32 - 1, 2**32 - 1),
            "2^64-is-0": _as(2**16, 2**16, 2**16, 2**16),
            "2^64-by-two": _as(2**31, 2**31, 4),
            "6-times-2^32-1": _as(*[2**32 - 1] * 6),
        },
    ),
    *family("DIR-017", "", "one:f16:3", {"2^64+3-has-a-factor": _as(2**31, 2**31, 2**2)}),
    *(
        mutation
        for off in (2, 32, 63)
        for mutation in family("DIR-019", "", "plain", {f"off-plus-{off}": (("dir[0].off", {"plus": off}),)})
    ),
    *family("DIR-019", "", "plain", {"second-off-plus-32": (("dir[1].off", {"plus": 32}),)}),
    *(
        mutation
        for dtype, shape in FIXED.items()
        for mutation in family(
            "DIR-020",
            "",
            f"one:{dtype}:{shape}",
            {
                f"{dtype}-1-more": (("payload[0].size", {"plus": 1}),),
                f"{dtype}-1-less": (("payload[0].size", {"plus": -1}),),
                f"{dtype}-none": (("payload[0].size", 0),),
                f"{dtype}-2-rows-more": _as(*(int(d) + 2 * (not axis) for axis, d in enumerate(shape.split("x")))),
            },
        )
    ),
    *family("DIR-020", "", "plain", {"huge-shape": (("dir[1].shape0", 10**6),), "huge-len": (("dir[2].nbytes", 2),)}),
    *_shapes("Q-Q8ROW-002", "q8_row", NOT_A_MATRIX),
    *_shapes("Q-Q82F-002", "q8_2f", NOT_A_MATRIX),
    *_shapes("Q-Q4TP-002", "q4tp", NOT_A_MATRIX | NO_GROUPS),
    *_shapes("Q-Q4T-002", "q4_tiled", NOT_A_MATRIX | NO_GROUPS),
    *_shapes("Q-VBIT-003", "vbit", NOT_A_MATRIX | NO_GROUPS),
    *_shapes("Q-VBIT-003", "vbit_ro", NOT_A_MATRIX | NO_GROUPS),
    *(m for dtype in ("q1", "q1s", "q1t") for m in _shapes("Q-Q1-002", dtype, NOT_A_MATRIX | NO_GROUPS)),
)
