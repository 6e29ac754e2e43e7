"""§3.2, q8_row and q8_2f: eight bits a weight."""

from __future__ import annotations

import numpy as np

from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, READER, rule
from cmfspec.contract.subject import Subject
from conformance.draws import files, lies, sampled_from
from golden.files import File

ROW = "`[int8 : out·in][f16 : out]` —— 每行一个 scale"
TWO_FIELDS = "`[int8][f16 row-scale][f16 col-field]`"
EVERY_BYTE = bytes(range(256))


def halves(*values: float) -> str:
    """Hex of these halves."""
    return np.array(values, "<f2").tobytes().hex()


def _row_scales(*values: float) -> File:
    """Every int8 in each row, and a scale of its own for it."""
    rows = len(values)
    return File(
        f"one:q8_row:{rows}x256",
        (("payload[0]@0", (EVERY_BYTE * rows).hex()), (f"payload[0]@{256 * rows}", halves(*values))),
    )


@rule(
    "Q-Q8ROW-001",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote=ROW,
    draw={
        "file": files(*(f"one:q8_row:{shape}" for shape in ("1x1", "1x33", "7x5", "3x64", "300x3", "2x1000", "64x64")))
    },
    bugs=("1bit-MONSTER#153",),
)
def q8_row_has_one_scale_for_each_row(subject: Subject, file: File) -> None:
    """All quants first, row by row, then all scales."""
    subject.must_decode(file)


@rule(
    "Q-Q8ROW-002",
    section="3.2",
    tier=DERIVED,
    binds=READER,
    quote="（仅限二维 `[out, in]`）",
    draw={"file": lies("Q-Q8ROW-002")},
)
def q8_row_is_for_matrices(subject: Subject, file: File) -> None:
    """In any other shape there are no rows to have scales."""
    subject.must_not_decode(file)


@rule(
    "Q-Q8ROW-004",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote="`w = q[o,i]·scale[o]`",
    draw={"file": sampled_from((_row_scales(1.0), _row_scales(0.0078125, 600.0), _row_scales(65504.0, 2**-14, 0.3)))},
    bugs=("ikawrakow/ik_llama.cpp#1659",),
)
def every_int8_is_a_quant_and_so_is_minus_128(subject: Subject, file: File) -> None:
    """Encoders avoid it, decoders can't."""
    subject.must_decode(file)


@rule(
    "Q-Q8ROW-005",
    section="3.2",
    tier=OBSERVATION,
    binds=READER,
    quote="`w = q[o,i]·scale[o]`",
    draw={
        "file": sampled_from(
            _row_scales(value) for value in (float("inf"), -float("inf"), float("nan"), -0.0, 2**-24, -(2**-24), -1.5)
        )
    },
    bugs=("NVIDIA/Model-Optimizer#1633", "flashinfer-ai/flashinfer#2440"),
)
def a_scale_that_is_no_normal_number(subject: Subject, file: File) -> None:
    """As IEEE has it, one would think; 0 times infinity included."""
    subject.tensor(file, 0).observe()


@rule(
    "Q-Q8ROW-006",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote="`w = q[o,i]·scale[o]`",
    draw={
        "file": sampled_from(
            File(
                f"one:q8_row:{rows}x40", (("payload[0]@0", bytes(40).hex()), (f"payload[0]@{40 * rows}", halves(scale)))
            )
            for rows in (1, 4)
            for scale in (1.0, 65504.0, 2**-24, 0.0, -3.0)
        )
    },
    bugs=("intel/auto-round#1908",),
)
def a_row_of_zeros_is_zeros(subject: Subject, file: File) -> None:
    """Whatever finite scale its writer gave it."""
    subject.must_decode(file)


@rule(
    "Q-Q82F-001",
    section="3.2",
    tier=LITERAL,
    binds=READER,
    quote="`w = q·scale[o]·col[i]`",
    draw={
        "file": files(*(f"one:q8_2f:{shape}" for shape in ("1x1", "1x33", "7x5", "33x33", "64x64", "3x300", "300x3")))
    },
)
def q8_2f_has_a_scale_for_each_row_and_each_column(subject: Subject, file: File) -> None:
    """Quants, then the row scales, then the column field."""
    subject.must_decode(file)


@rule("Q-Q82F-002", section="3.2", tier=DERIVED, binds=READER, quote=TWO_FIELDS, draw={"file": lies("Q-Q82F-002")})
def q8_2f_is_for_matrices(subject: Subject, file: File) -> None:
    """Rows and columns are what its fields are for."""
    subject.must_not_decode(file)
