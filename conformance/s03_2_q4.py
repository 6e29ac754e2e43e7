"""§3.2, q4_block, q4_tiled and q4tp: four bits a weight in groups of 32."""

from __future__ import annotations

import numpy as np

from cmfspec.contract.rule import DERIVED, LITERAL, NEWER_TEXT, OBSERVATION, READER, WRITER_ONLY, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.layout import GROUP
from conformance.draws import files, lies, sampled_from
from conformance.s03_2_q8 import halves
from golden.files import File

GROUPS = "在展平张量上按 32 分组，零填充"
NIBBLES = "半字节：元素 `2k` 为低位，`2k+1` 为高位；`w = (q − 8)·scale`"
TILED = "交错平铺的 q4 `[f16 scale][16B nibbles]`"
LADDER = "每块 scale 为 `2^(lo[r] + code·step[r])`"
CODES = "[codes: rows × ceil(gpr·5/8)，5 位 LSB-first，按行对齐]"
HALF = GROUP // 2
RAMP = bytes(range(0x10, 0x100, 0x22)).hex()  # nibbles 0, 1, 2, … 15
ALL_BYTES = bytes((byte * 16 + (15 - byte)) & 255 for byte in range(16)).hex()
EIGHTS = (b"\x88" * HALF).hex()


def _block(groups: int, nibbles: str, *scales: float) -> File:
    """q4_block: the same nibbles in each group, and these scales."""
    edits = (("payload[0]@0", nibbles * groups), (f"payload[0]@{HALF * groups}", halves(*scales)))
    return File(f"one:q4_block:{groups * GROUP}", edits)


def _tiled(groups: int, nibbles: str, *scales: float) -> File:
    """The same as tiles."""
    return File(f"one:q4_tiled:1x{groups * GROUP}", (("payload[0]@0", "".join(halves(s) + nibbles for s in scales)),))


def _codes(codes: list[list[int]]) -> str:
    """Rows of codes, five bits each from the low end, each row padded to a byte."""
    rows = (
        sum(code << 5 * place for place, code in enumerate(row)).to_bytes(-(-5 * len(row) // 8), "little")
        for row in codes
    )
    return b"".join(rows).hex()


def _ladder(rows: list[tuple[float, float]], codes: list[list[int]], nibbles: str = RAMP) -> File:
    """q4tp with the same nibbles in every group; rows: lo and step."""
    count, per_row = len(rows), len(codes[0])
    at = count * per_row * HALF
    edits = (
        ("payload[0]@0", nibbles * (count * per_row)),
        (f"payload[0]@{at}", halves(*(value for row in rows for value in row))),
        (f"payload[0]@{at + 4 * count}", _codes(codes)),
    )
    return File(f"one:q4tp:{count}x{per_row * GROUP}", edits)


UP, DOWN = list(range(32)), list(range(31, -1, -1))
SPILLS = [[0, 31, 0, 31, 0, 31, 0, 31, 0], [31, 0, 31, 0, 31, 0, 31, 0, 31], [1, 2, 4, 8, 16, 1, 2, 4, 8]]
THREE = [(-3.0, 0.5), (-8.25, 0.125), (0.0, -0.25)]
SAME = ((1.0,), (0.5, 2.0), (0.25, 4.0, 1.0))


@rule(
    "Q-Q4B-001",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=GROUPS,
    draw={
        "file": files(
            *(
                f"one:q4_block:{shape}"
                for shape in (
                    "1",
                    "2",
                    "15",
                    "16",
                    "17",
                    "31",
                    "32",
                    "33",
                    "63",
                    "64",
                    "65",
                    "3x21",
                    "5x33",
                    "7x31",
                    "2x3x11",
                    "40x40",
                    "8300",
                    "2x2x2x2x2x3",
                )
            )
        )
    },
    bugs=("1bit-MONSTER#153",),
)
def q4_block_groups_the_flattened_tensor(subject: Subject, file: File) -> None:
    """A group may cross the end of a row; the last one is filled up."""
    subject.must_decode(file)


@rule(
    "Q-Q4B-002",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=NIBBLES,
    draw={
        "file": sampled_from(
            (
                _block(1, RAMP, 1.0),
                _block(2, RAMP, 0.25, -3.0),
                _block(1, ALL_BYTES, 1.0),
                _block(3, EIGHTS, 1.0, 2.0, 0.0),
            )
        )
    },
    bugs=("kekzl/imp#567",),
)
def the_low_nibble_comes_first_and_eight_is_zero(subject: Subject, file: File) -> None:
    """All sixteen nibbles, each in both places: −8 and 7 are the ends."""
    subject.must_decode(file)


@rule(
    "Q-Q4T-001",
    section="3.1",
    tier=DERIVED,
    binds=READER,
    quote=TILED,
    draw={
        "file": sampled_from(
            [File(f"one:q4_tiled:{shape}") for shape in ("1x32", "5x64", "3x96", "2x320", "33x32")]
            + [_tiled(len(scales), RAMP, *scales) for scales in SAME]
        )
    },
    bugs=("kekzl/imp#567", "ml-explore/mlx#3664", "1bit-MONSTER#153"),
)
def q4_tiled_is_a_scale_and_then_its_group(subject: Subject, file: File) -> None:
    """The values of q4_block in another place."""
    subject.must_decode(file)


@rule(
    "Q-Q4TP-001",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=CODES,
    draw={
        "file": sampled_from(
            [File(f"one:q4tp:{rows}x{GROUP * groups}") for groups in range(1, 10) for rows in (1, 3)]
            + [_ladder(THREE, SPILLS), _ladder(THREE, SPILLS, ALL_BYTES)]
        )
    },
    bugs=("ml-explore/mlx#3664",),
)
def q4tp_is_nibbles_then_ladders_then_codes(subject: Subject, file: File) -> None:
    """Codes of five bits run across bytes from the low end, and each row of them begins on a byte."""
    subject.must_decode(file)


@rule(
    "Q-Q4TP-002",
    section="3.2",
    tier=DERIVED,
    binds=READER,
    quote="**`q4tp`**（仅限二维，`in % 32 == 0`）",
    draw={"file": lies("Q-Q4TP-002")},
)
def q4tp_is_for_matrices_of_whole_groups(subject: Subject, file: File) -> None:
    """There is no padding inside a row of groups."""
    subject.must_not_decode(file)


@rule(
    "Q-Q4TP-003",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=LADDER,
    draw={
        "file": sampled_from(
            (
                _ladder([(-6.0, 0.125)], [UP]),
                _ladder([(-14.5, 0.4375), (2.0, -0.3)], [UP, DOWN]),
                _ladder([(-10.0, 0.0)], [UP]),
                _ladder([(-3.3, 0.0711)], [DOWN], ALL_BYTES),
                _ladder([(0.0, 1.0)], [[0, 1, 2, 3]]),
                _ladder([(-30.0, 0.5)], [[0, 31]]),
            )
        )
    },
)
def a_scale_is_a_rung_of_its_rows_ladder(subject: Subject, file: File) -> None:
    """All 32 rungs, with fractional steps and steps downwards."""
    subject.must_decode(file)


@rule(
    "Q-Q4TP-004",
    section="3.2",
    tier=OBSERVATION,
    binds=READER,
    quote=CODES,
    draw={
        "file": sampled_from(
            File(f"one:q4tp:1x{GROUP * groups}", ((f"payload[0]@{HALF * groups + 4}", raw),))
            for groups, raw in ((1, "e5"), (2, "21fc"), (3, "2184"))
        )
    },
)
def bits_behind_the_last_code_of_a_row(subject: Subject, file: File) -> None:
    """Nobody's bits: one would ignore them."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q4TP-008",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=LADDER,
    draw={
        "file": sampled_from(
            (
                _ladder([(-6.0, 0.125)], [[0, 5, 31]], EIGHTS),
                _ladder([(15.0, 0.0), (-24.0, 0.5)], [[31], [0]], EIGHTS),
                File("one:q4tp:3x96", ((f"payload[0]@{4 * HALF}", EIGHTS),)),
            )
        )
    },
    bugs=("intel/auto-round#1908",),
)
def a_group_of_zeros_is_zeros(subject: Subject, file: File) -> None:
    """Nibble 8 is zero on every rung."""
    subject.must_decode(file)


@rule(
    "Q-Q4TP-009",
    section="3.2",
    tier=OBSERVATION,
    binds=READER,
    quote=LADDER,
    draw={
        "file": sampled_from(
            _ladder([row], [[0, 1, 31]])
            for row in (
                (np.nan, 0.0),
                (np.inf, 0.0),
                (-np.inf, 1.0),
                (0.0, np.inf),
                (0.0, -np.inf),
                (200.0, 60000.0),
                (0.0, np.nan),
            )
        )
    },
)
def a_ladder_that_leaves_the_numbers(subject: Subject, file: File) -> None:
    """Infinite, not a number, or past what a float holds."""
    subject.tensor(file, 0).observe()


untested("Q-Q4B-005", quote=GROUPS, because=WRITER_ONLY)
untested(
    "Q-Q4TP-010", quote="或用 `requant` 就地转换", because="binds a tool, and no published operation asks a tool yet"
)
untested("Q-Q4T-002", quote=TILED, because=NEWER_TEXT)
