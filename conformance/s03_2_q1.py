"""§3.1, q1, q1s and q1t: one bit, one bit with outliers, three states with outliers; and what holds for every encoding."""

from __future__ import annotations

from cmfspec.contract.rule import DERIVED, LITERAL, NEWER_TEXT, OBSERVATION, READER, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.layout import GROUP
from conformance.draws import lies, sampled_from
from conformance.s03_2_q8 import halves
from golden.files import File
from golden.numbers import noise

Q1 = "每 32 组一个 `[f16 scale][4B 符号位]` 平铺，`w = s·(2·bit−1)`"
Q1S = "基底之后是 `[u32 count]` 与 `count × { [u32 扁平索引][f16 值] }`"
TRUSTED = "变长，读取器信任目录中记录的字节数"
Q1T = "每 32 组 `[f16 scale][7B base-3 码]`（每字节 5 个三值，3⁵=243≤256；码 0→0、1→+s、2→−s，约 2.25 bpw）"
BY_ROWS = "随后按行的离群值覆盖层 `[u32 row_ptr[rows+1]]` + `{ [u16 col][f16 值] }`"
SHAPES = ("1x32", "5x64", "3x96", "2x320", "33x32")


def _u(value: int, width: int) -> str:
    return value.to_bytes(width, "little").hex()


def _q1s(groups: int, outliers: list[tuple[int, float]], tail: str = "", scale: float = 0.5) -> File:
    """One row of tiles with these outliers."""
    base = "".join(halves(scale) + noise(f"q1s/{group}", 4).hex() for group in range(groups))
    overlay = _u(len(outliers), 4) + "".join(_u(at, 4) + halves(value) for at, value in outliers)
    return File(f"one:q1s:1x{GROUP * groups}", (("payload[0]", base + overlay + tail),))


def _q1t(digits: str, rows: list[list[tuple[int, float]]], scale: float = 0.5, tail: str = "") -> File:
    """Rows of one tile each, all with the same seven bytes of digits."""
    ends = [sum(map(len, rows[:count])) for count in range(len(rows) + 1)]
    overlay = "".join(_u(end, 4) for end in ends)
    overlay += "".join(_u(col, 2) + halves(value) for row in rows for col, value in row)
    return File(
        f"one:q1t:{len(rows)}x{GROUP}", (("payload[0]", (halves(scale) + digits) * len(rows) + overlay + tail),)
    )


CODES = tuple(bytes([*range(start, min(start + 6, 243)), 4] + [0] * 6)[:6].hex() + "04" for start in range(0, 243, 6))
EVERY_CODE = File(
    f"one:q1t:{len(CODES)}x{GROUP}",
    (("payload[0]", "".join(halves(1.0) + code for code in CODES) + bytes(4 * (len(CODES) + 1)).hex()),),
)
SOME = "79f20079f20000"  # the same from both ends: the order of digits is another rule's business


@rule(
    "Q-Q1-001",
    section="3.1",
    tier=DERIVED,
    binds=READER,
    quote=Q1,
    draw={
        "file": sampled_from(
            [File(f"one:q1:{shape}") for shape in SHAPES]
            + [
                File("one:q1:1x32", (("payload[0]", halves(1.0) + bits),))
                for bits in ("01000000", "80000000", "00010000", "efbeadde")
            ]
        )
    },
    bugs=("numpy/numpy#9398", "ska-sa/katdal#55"),
)
def q1_is_a_sign_for_each_weight(subject: Subject, file: File) -> None:
    """Bit k of byte j is weight 8j + k, from the low end, unlike vbit."""
    subject.must_decode(file)


@rule(
    "Q-Q1-005",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=Q1,
    draw={
        "file": sampled_from(
            File("one:q1:1x32").edited("payload[0]@0", halves(s)) for s in (-1.0, -0.0, 0.0, float("inf"), float("nan"))
        )
    },
)
def a_q1_scale_that_is_not_positive(subject: Subject, file: File) -> None:
    """Negative, zero, or no number: one multiplies and that is that."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q1S-001",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote=Q1S,
    draw={
        "file": sampled_from(
            [File(f"one:q1s:{shape}") for shape in SHAPES]
            + [
                _q1s(1, []),
                _q1s(2, [(0, 7.5)]),
                _q1s(
                    2,
                    [
                        (63, -600.0),
                    ],
                ),
                _q1s(9, [(at, at / 4) for at in range(0, 288, 7)]),
                _q1s(1, [(at, 3.0) for at in range(32)]),
            ]
        )
    },
)
def an_outlier_replaces_the_weight_below_it(subject: Subject, file: File) -> None:
    """Not added to it, and counted through the whole tensor."""
    subject.must_decode(file)


@rule(
    "Q-Q1S-002",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote=TRUSTED,
    draw={
        "file": sampled_from(
            _q1s(40, [(at, -1.0 - at / 64) for at in range(count)]) for count in (0, 1, 100, 255, 256, 300, 1280)
        )
    },
)
def the_directory_says_how_long_an_overlay_is(subject: Subject, file: File) -> None:
    """From none to an outlier for every weight."""
    subject.must_decode(file)


@rule("Q-Q1S-003", section="3.1", tier=DERIVED, binds=READER, quote=Q1S, draw={"file": lies("Q-Q1S-003")})
def a_q1s_payload_holds_what_it_counts(subject: Subject, file: File) -> None:
    """Cut in the tiles, in the count or in the entries: no value, not even of the weights that are whole."""
    subject.must_not_decode(file)


@rule(
    "Q-Q1S-004",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=TRUSTED,
    draw={"file": sampled_from(_q1s(2, [(3, 1.0)], tail) for tail in ("00", "a5a5a5a5a5a5", "00" * 58))},
)
def bytes_behind_the_last_outlier_of_q1s(subject: Subject, file: File) -> None:
    """The count doesn't reach them; the directory does."""
    subject.tensor(file, 0).observe()


@rule("Q-Q1S-005", section="3.1", tier=DERIVED, binds=READER, quote=Q1S, draw={"file": lies("Q-Q1S-005")})
def an_outlier_lies_within_the_tensor(subject: Subject, file: File) -> None:
    """An index past the end is a write past the end."""
    subject.must_not_decode(file)


@rule(
    "Q-Q1S-006",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=Q1S,
    draw={"file": sampled_from((_q1s(2, [(3, 1.0), (3, 2.0)]), _q1s(2, [(40, 1.0), (3, 2.0)])))},
)
def outliers_twice_or_out_of_order(subject: Subject, file: File) -> None:
    """The last wins, probably."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q1T-001",
    section="3.1",
    tier=DERIVED,
    binds=READER,
    quote=Q1T,
    draw={"file": sampled_from([EVERY_CODE, *(File(f"one:q1t:{shape}") for shape in SHAPES)])},
)
def q1t_is_five_ternary_digits_in_a_byte(subject: Subject, file: File) -> None:
    """All 243 bytes; the least significant digit is the first weight, and the seventh byte has two."""
    subject.must_decode(file)


@rule(
    "Q-Q1T-002",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote=BY_ROWS,
    draw={
        "file": sampled_from(
            (
                _q1t(SOME, [[(0, 7.5)], [], [(5, -2.0), (31, 600.0)]]),
                _q1t(SOME, [[], [], []]),
                _q1t("00" * 7, [[(col, col / 8 - 1) for col in range(32)]]),
                _q1t(SOME, [[(row % 32, row / 16)] * (row % 3 == 0) for row in range(300)]),
                File("one:q1t:4x640"),
                File("one:q1t:9x96"),
            )
        )
    },
)
def the_outliers_of_q1t_are_listed_row_by_row(subject: Subject, file: File) -> None:
    """From row_ptr[r] to row_ptr[r + 1], each by its column."""
    subject.must_decode(file)


@rule("Q-Q1T-004", section="3.1", tier=DERIVED, binds=READER, quote=BY_ROWS, draw={"file": lies("Q-Q1T-004")})
def row_pointers_rise_from_zero_to_what_is_there(subject: Subject, file: File) -> None:
    """A pointer past the entries is a read past the payload."""
    subject.must_not_decode(file)


@rule("Q-Q1T-005", section="3.1", tier=DERIVED, binds=READER, quote=BY_ROWS, draw={"file": lies("Q-Q1T-005")})
def an_outlier_lies_within_its_row(subject: Subject, file: File) -> None:
    """A column past the end would be the next row's weight."""
    subject.must_not_decode(file)


@rule(
    "Q-Q1T-006",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=Q1T,
    draw={"file": sampled_from(_q1t(code + SOME[2:], [[], []]) for code in ("f3", "f8", "ff"))},
)
def a_byte_that_is_no_five_digits(subject: Subject, file: File) -> None:
    """243 to 255: 3^5 and what is left of the byte."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q1T-007",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=Q1T,
    draw={"file": sampled_from(_q1t(SOME[:12] + code, [[], []]) for code in ("09", "11", "f2"))},
)
def digits_of_weights_that_do_not_exist(subject: Subject, file: File) -> None:
    """The seventh byte has room for five digits, and two weights."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q1T-008",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=BY_ROWS,
    draw={"file": sampled_from((_q1t("6d" * 6 + "04", [[(0, 3.0), (1, -3.0)]]), _q1t("d5" * 6 + "08", [[(7, 0.0)]])))},
)
def an_outlier_over_a_digit_that_is_not_zero(subject: Subject, file: File) -> None:
    """It overwrites, or it is added."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q1T-009",
    section="3.1",
    tier=OBSERVATION,
    binds=READER,
    quote=BY_ROWS,
    draw={
        "file": sampled_from((_q1t(SOME, [[(3, 1.0), (3, 2.0)]]), _q1t(SOME, [[(9, 1.0), (3, 2.0)]], tail="0300003c")))
    },
)
def outliers_of_a_row_twice_or_with_more_behind(subject: Subject, file: File) -> None:
    """The last wins, probably; what no pointer reaches is nobody's."""
    subject.tensor(file, 0).observe()


@rule("Q-Q1T-010", section="3.1", tier=DERIVED, binds=READER, quote=BY_ROWS, draw={"file": lies("Q-Q1T-010")})
def a_q1t_payload_holds_its_tiles_and_pointers(subject: Subject, file: File) -> None:
    """Short of either, there is no value."""
    subject.must_not_decode(file)


@rule(
    "Q-GEN-002",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote='量化布局（正典 = `.vmfc`："先量化值，后 scale"）',
    draw={
        "file": sampled_from(
            [
                File("one:q8_row:3x40").edited("payload[0]@120", halves(*triple))
                for triple in ((0.0, -1.0, 2**-24), (65504.0, 2**-14, 0.1))
            ]
            + [
                File("one:q8_2f:3x40").edited("payload[0]@120", halves(*triple))
                for triple in ((0.0, -1.0, 2**-24), (65504.0, -0.0, 0.1))
            ]
            + [
                File("one:q4_block:96").edited("payload[0]@48", halves(*triple))
                for triple in ((0.0, -1.0, 2**-24), (65504.0, -0.0, 0.1))
            ]
            + [File("one:q1:1x32").edited("payload[0]@0", halves(0.0)), _q1s(1, [(1, -0.0), (2, 2**-24)], scale=0.0)]
            + [_q1t(SOME, [[(0, -0.0)]], scale=2**-24), _q1t(SOME, [[]], scale=-0.5)]
            + [File("one:q4_tiled:1x32").edited("payload[0]@0", halves(s)) for s in (0.0, 2**-24, -65504.0)]
            + [File("one:vbit:1x32").edited("payload[0]@1", halves(s)) for s in (0.0, 2**-24, -65504.0)]
        )
    },
    bugs=("unslothai/unsloth#2860", "ggml-org/llama.cpp#8939"),
    cases=32,
)
def decoding_is_float32_arithmetic(subject: Subject, file: File) -> None:
    """Scales of zero, below zero, subnormal and at the top of their range, to two units in the last place."""
    subject.must_decode(file)


untested(
    "Q-GEN-001",
    quote='"先量化值，后 scale"',
    because="binds nobody: the title over-claims, and the layouts below it are what counts",
)
untested(
    "Q-Q1-004",
    quote="仅用于按 1 位训练的模型（`--quant q1`）",
    because="binds a tool, and no published operation asks a tool yet",
)
for _identity in ("Q-Q1-002", "Q-Q1-003", "Q-Q1S-007", "Q-Q1T-003"):
    untested(_identity, quote=TRUSTED, because=NEWER_TEXT)
