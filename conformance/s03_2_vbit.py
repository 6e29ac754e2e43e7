"""§3.2, vbit and vbit_ro: three to eight bits a weight, chosen row by row."""

from __future__ import annotations

from cmfspec.contract.rule import DERIVED, LITERAL, READER, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.layout import GROUP
from conformance.draws import lies, sampled_from
from conformance.s03_2_q8 import halves
from golden.files import File

LAYOUT = "`[u8 bits: rows][f16 scales: rows·in/32][bit-packed rows, MSB-first,"
WEIGHT = "`w = (u − L)·scale[r,g]`"
WIDTHS = "位宽 b ∈ {3,4,5,6,8}，下限 3（claim 13）"
OFFSETS = "`vbit` + 文件内行偏移表（O(1) 行访问）"
ALLOWED = (3, 4, 5, 6, 8)
SHAPES = ("1x32", "5x64", "10x96", "3x320", "2x1056", "7x32")


def _packed(codes: list[int], width: int) -> str:
    """The codes of a row, most significant bit first."""
    total = sum(code << width * (len(codes) - 1 - place) for place, code in enumerate(codes))
    return total.to_bytes(-(-len(codes) * width // 8), "big").hex()


def _row(width: int, codes: list[int], scale: float, dtype: str = "vbit") -> File:
    """One row of that width."""
    groups = len(codes) // GROUP
    body = _packed(codes, width)
    table = "" if dtype == "vbit" else (bytes(4) + (len(body) // 2).to_bytes(4, "little")).hex()
    payload = bytes([width]).hex() + halves(*[scale] * groups) + table + body
    return File(f"one:{dtype}:1x{len(codes)}", (("payload[0]", payload),))


def _ramp(width: int, count: int = 64) -> list[int]:
    """Every code of that width, from the first up, again and again."""
    return [place % 2**width for place in range(count)]


@rule(
    "Q-VBIT-001",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=LAYOUT,
    draw={
        "file": sampled_from(
            [File(f"one:vbit:{shape}") for shape in SHAPES]
            + [_row(width, _ramp(width, 256), scale) for width in ALLOWED for scale in (1.0, 0.0375)]
        )
    },
    bugs=("numpy/numpy#9398", "ModelCloud/GPTQModel#3058"),
)
def a_row_has_its_own_width_and_its_bits_run_from_the_high_end(subject: Subject, file: File) -> None:
    """Widths, then scales, then the rows: unlike the other encodings, the quants come last."""
    subject.must_decode(file)


@rule(
    "Q-VBIT-002", section="3.2", tier=DERIVED, binds=READER, quote=WIDTHS, draw={"file": lies("Q-VBIT-002")}, cases=40
)
def a_width_is_one_of_five(subject: Subject, file: File) -> None:
    """0, 1, 2, 7 and 9 have a length that fits, too; they are still none."""
    subject.must_not_decode(file)


@rule(
    "Q-VBIT-003",
    section="3.2",
    tier=DERIVED,
    binds=READER,
    quote="**`vbit`**（仅限二维，`in % 32 == 0`",
    draw={"file": lies("Q-VBIT-003")},
)
def vbit_is_for_matrices_of_whole_groups(subject: Subject, file: File) -> None:
    """Its scales are per row and per group."""
    subject.must_not_decode(file)


@rule("Q-VBIT-004", section="3.2", tier=DERIVED, binds=READER, quote=LAYOUT, draw={"file": lies("Q-VBIT-004")})
def a_vbit_payload_is_as_long_as_its_widths_say(subject: Subject, file: File) -> None:
    """One byte more or less, and one of the two is not what it says."""
    subject.must_not_decode(file)


@rule(
    "Q-VBIT-006",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote="`L = 2^{b−1}−1`",
    draw={
        "file": sampled_from(
            _row(width, [2**width - 1, 0, 2 ** (width - 1) - 1, 2 ** (width - 1)] * 8, 1.0, dtype)
            for width in ALLOWED
            for dtype in ("vbit", "vbit_ro")
        )
    },
    bugs=("ModelCloud/GPTQModel#3058",),
)
def the_top_code_is_one_above_l(subject: Subject, file: File) -> None:
    """From −L to L + 1: all ones are a weight like any other."""
    subject.must_decode(file)


@rule(
    "Q-VBITRO-001",
    section="3.1",
    tier=DERIVED,
    binds=READER,
    quote=OFFSETS,
    draw={
        "file": sampled_from(
            [*(File(f"one:vbit_ro:{shape}") for shape in SHAPES), *(_row(w, _ramp(w), 0.5, "vbit_ro") for w in ALLOWED)]
        )
    },
)
def vbit_ro_is_vbit_with_a_table_of_rows(subject: Subject, file: File) -> None:
    """A u32 for each row and one more, between the scales and the first packed row, counted from that row."""
    subject.must_decode(file)


@rule("Q-VBITRO-002", section="3.1", tier=DERIVED, binds=READER, quote=OFFSETS, draw={"file": lies("Q-VBITRO-002")})
def the_table_of_rows_says_what_the_widths_say(subject: Subject, file: File) -> None:
    """From 0, each row as long as its width wants, to the end: no kernel on offsets that were not looked at."""
    subject.must_not_decode(file)


untested(
    "Q-VBIT-005",
    quote="each row padded to a byte]",
    because="32·b bits are whole bytes: there is never a bit of padding",
)
