"""Lies inside payloads that tell their own length (§3.1, §3.2): vbit, vbit_ro, q1s, q1t.

Law: the file opens, since nobody may decode that tensor ever; decoding it is refused. Where a field is wrong the rest is
made to fit, so that a reader which believes the field gets a value, and is caught.
"""

from __future__ import annotations

from collections.abc import Mapping

from cmfspec.format.build import Edit
from fuzz.mutations.mutation import Mutation, Table, family

NASTY = (2**16, 2**31 - 1, 2**31, 2**32 - 1)

# [5, 64]: five widths, 10 scales, for vbit_ro six offsets, then rows of 24, 32, 40, 48 and 64 bytes.
VBIT, VBIT_RO = "one:vbit:5x64", "one:vbit_ro:5x64"
WIDTHS = (0, 1, 2, 7, 9, 16, 32, 128, 255)
OFFSETS_AT, OFFSETS = 25, (0, 24, 56, 96, 144, 208)
# [3, 64]: six tiles of 6 bytes, the count, 15 entries of 6 bytes.
Q1S, Q1S_COUNT, Q1S_ENTRIES, Q1S_SIZE, Q1S_WEIGHTS = "one:q1s:3x64", 36, 15, 130, 192
# [4, 64]: eight tiles of 9 bytes, five pointers, entries of 4 bytes.
Q1T, Q1T_POINTERS, Q1T_OVERLAY, Q1T_COLS = "one:q1t:4x64", 72, 92, 64


def _at(offset: int, value: int, width: int) -> Edit:
    return (f"payload[0]@{offset}", value.to_bytes(width, "little").hex())


def _u32(offset: int, values: Mapping[str, int]) -> Table:
    return {name: (_at(offset, value, 4),) for name, value in values.items()}


def _sizes(*sizes: int | dict[str, int]) -> Table:
    names = (str(size) if isinstance(size, int) else f"{size['plus']:+}" for size in sizes)
    return {f"size-{name}": (("payload[0].size", size),) for name, size in zip(names, sizes, strict=True)}


def _one_row(width: int) -> tuple[Edit, ...]:
    """A row of 64 whose length is right for the wrong width."""
    return _at(0, width, 1), ("payload[0].size", 1 + 4 + 64 * width // 8)


def _offsets(*values: int) -> tuple[Edit, ...]:
    return tuple(_at(OFFSETS_AT + 4 * place, value, 4) for place, value in enumerate(values))


WRONG_WIDTHS = {f"{width}-bits": _one_row(width) for width in WIDTHS}
WRONG_WIDTH_OF_A_ROW = {f"row-{row}-of-{width}": (_at(row, width, 1),) for row in (0, 2, 4) for width in (0, 7, 255)}
WRONG_OFFSETS = {
    "first-1": _offsets(1),
    "all-0": _offsets(0, 0, 0, 0, 0, 0),
    "all-plus-8": _offsets(*(value + 8 for value in OFFSETS)),
    "falling": _offsets(*OFFSETS[::-1]),
    "two-swapped": _offsets(0, 56, 24),
    "second-1-early": _offsets(0, 23),
    "last-1-more": _offsets(*OFFSETS[:5], 209),
    "last-1-less": _offsets(*OFFSETS[:5], 207),
    "last-0": _offsets(*OFFSETS[:5], 0),
    "from-the-payload": _offsets(*(value + OFFSETS_AT + 24 for value in OFFSETS)),
    "sizes": _offsets(24, 32, 40, 48, 64, 208),
    **{f"third-{value}": _offsets(0, 24, value) for value in NASTY},
    **{f"last-{value}": _offsets(*OFFSETS[:5], value) for value in NASTY},
}
WRONG_COUNTS = {"1-more": Q1S_ENTRIES + 1, "times-6-is-2^32+2": 715827883, **{str(value): value for value in NASTY}}
WRONG_INDICES = {"first-past": Q1S_WEIGHTS, **{str(value): value for value in NASTY}}
WRONG_POINTERS = {
    "first-1": _u32(Q1T_POINTERS, {"": 1})[""],
    "second-past-third": _u32(Q1T_POINTERS + 4, {"": 5})[""],
    "falling": tuple(_at(Q1T_POINTERS + 4 * row, 6 - row, 4) for row in range(1, 5)),
    "last-0": _u32(Q1T_POINTERS + 16, {"": 0})[""],
    "last-1-more": _u32(Q1T_POINTERS + 16, {"": 7})[""],
    **{f"last-{value}": _u32(Q1T_POINTERS + 16, {"": value})[""] for value in NASTY},
    **{f"all-{value}": tuple(_at(Q1T_POINTERS + 4 * row, value, 4) for row in range(5)) for value in NASTY},
    "bytes-not-entries": tuple(_at(Q1T_POINTERS + 4 * row, 4 * count, 4) for row, count in enumerate((0, 0, 1, 3, 6))),
}
WRONG_COLUMNS = {
    f"{entry}-is-{value}": (_at(Q1T_OVERLAY + 4 * entry, value, 2),)
    for entry in (0, 5)
    for value in (Q1T_COLS, 2**15, 2**16 - 1)
}

MUTATIONS: tuple[Mutation, ...] = (
    *family("Q-VBIT-002", "", "one:vbit:1x64", WRONG_WIDTHS, 0),
    *family("Q-VBIT-002", "", VBIT, WRONG_WIDTH_OF_A_ROW, 0),
    *family("Q-VBIT-002", "", VBIT_RO, {f"ro-{name}": edits for name, edits in WRONG_WIDTH_OF_A_ROW.items()}, 0),
    *family("Q-VBIT-004", "", VBIT, _sizes({"plus": 1}, {"plus": -1}, {"plus": 32}, {"plus": -64}, 0, 4, 5, 24, 25), 0),
    *family("Q-VBIT-004", "", VBIT, {"width-8-of-3": (_at(0, 8, 1),), "width-3-of-8": (_at(4, 3, 1),)}, 0),
    *family(
        "Q-VBIT-004", "", VBIT_RO, {f"ro-{n}": e for n, e in _sizes({"plus": 1}, {"plus": -1}, 0, 5, 25, 48).items()}, 0
    ),
    *family("Q-VBITRO-002", "", VBIT_RO, WRONG_OFFSETS, 0),
    *family("Q-Q1S-003", "", Q1S, _u32(Q1S_COUNT, WRONG_COUNTS), 0),
    *family("Q-Q1S-003", "", Q1S, _sizes({"plus": -1}, {"plus": -6}, 0, 1, 6, 35, 36, 37, 39, 40), 0),
    *family("Q-Q1S-005", "", Q1S, _u32(Q1S_COUNT + 4, WRONG_INDICES), 0),
    *family("Q-Q1S-005", "", Q1S, {f"last-{n}": e for n, e in _u32(Q1S_SIZE - 6, WRONG_INDICES).items()}, 0),
    *family("Q-Q1T-004", "", Q1T, {**WRONG_POINTERS, **_sizes({"plus": -1}, {"plus": -4})}, 0),
    *family("Q-Q1T-005", "", Q1T, WRONG_COLUMNS, 0),
    *family("Q-Q1T-010", "", Q1T, _sizes(0, 1, 9, 71, 72, 76, 91), 0),
)
