"""§3.1, the table of dtypes: plain floats bit by bit, what is reserved, what is unknown."""

from __future__ import annotations

import struct

from cmfspec.codecs import CODECS
from cmfspec.contract.rule import DERIVED, LITERAL, READER, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.errors import Parse
from conformance.draws import lies, sampled_from
from golden.files import File

F32_PATTERNS = (
    0x00000000,
    0x80000000,
    0x00000001,
    0x80000001,
    0x007FFFFF,
    0x00800000,
    0x3F800000,
    0xBF800001,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x7F800001,
    0xFFC12345,
    0x33800000,
    0x477FE000,
    0x4B7FFFFF,
    0x4B800001,
    0x0D0D0D0A,
)
EVERY_F32 = File("one:f32:20").edited("payload[0]", b"".join(struct.pack("<I", p) for p in F32_PATTERNS).hex())
RESERVED = (5, 7)
ANY_SHAPE = ("f32", "f16", "bf16", "q4_block")
SHAPES = {
    "f32": ("1", "31", "5x7", "2x3x1x2x1x3"),
    "f16": ("1", "33", "7x5", "1x1x2x1x3x2"),
    "bf16": ("1", "40", "6x6", "3x1x1x2x2"),
    "q4_block": ("32", "65", "3x21", "2x3x5x7"),
}


def _as_reserved(dtype: int) -> tuple[File, ...]:
    return tuple(File(f"one:u8:{shape}").edited("dir[0].dtype", dtype) for shape in ("64", "4x32", "40"))


@rule(
    "DT-001",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote="| 0  | `f32`     | ✅ 读/写 |",
    draw={"file": sampled_from((EVERY_F32, File("one:f32:5x7"), File("one:f32:1"), File("one:f32:2x3x5")))},
)
def f32_is_the_float_itself(subject: Subject, file: File) -> None:
    """Little-endian, subnormals, infinities and NaNs as they are."""
    subject.must_decode(file)


@rule(
    "DT-002",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote="| 1  | `f16`     | ✅ 读/写",
    draw={"file": sampled_from((File("every:f16"), File("one:f16:5x7"), File("one:f16:1"), File("one:f16:2x3x5")))},
)
def f16_is_a_half_and_widens_exactly(subject: Subject, file: File) -> None:
    """All 65536 of them, subnormals with the rest."""
    subject.must_decode(file)


@rule(
    "DT-003",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote="| 2  | `bf16`    | ✅ 读/写 |",
    draw={"file": sampled_from((File("every:bf16"), File("one:bf16:5x7"), File("one:bf16:1"), File("one:bf16:2x3x5")))},
    bugs=("ggml-org/llama.cpp#8661",),
)
def bf16_is_the_upper_half_of_a_float(subject: Subject, file: File) -> None:
    """All 65536 of them; the lower half is zeros."""
    subject.must_decode(file)


@rule(
    "DT-004",
    section="3.1",
    tier=DERIVED,
    binds=READER,
    quote="| 6  | `u8`      | 保留 |",
    draw={
        "file": sampled_from(
            (File("one:u8:64"), File("one:u8:4x32"), File("encodings"), *(f for d in RESERVED for f in _as_reserved(d)))
        )
    },
)
def a_reserved_dtype_gives_no_weights(subject: Subject, file: File) -> None:
    """A file with one may open or not; its bytes are bytes: `u8` can be read as such, and nothing makes floats of them."""
    index, dtype = next(
        (index, dtype) for index, dtype in enumerate(dict(file.edits).get("dir[0].dtype", t.dtype) for t in file.tensors)
        if dtype not in CODECS or not CODECS[dtype].weight
    )  # fmt: skip
    if dtype in RESERVED:
        subject.beyond_if_declared(dtype=dtype)
    opened = subject.open(file)
    if dtype not in RESERVED:
        opened.must_be_accepted(len(file.tensors))
    if opened.accepted:
        subject.tensor(file, index, undeclared=True).must_refuse()
    if dtype not in RESERVED and "raw" in subject.hello.forms:
        subject.tensor(file, index, "raw").must_be_bytes(file.tensors[index].payload)


@rule(
    "DT-007",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote="id 从不重用",
    draw={
        "file": sampled_from(
            File(f"one:{codec.name}:{shape}:again")
            for codec in CODECS.values()
            if codec.weight
            for shape in SHAPES.get(codec.name, ("1x32", "5x64", "3x96"))
        )
    },
    cases=64,
)
def what_is_declared_is_decoded(subject: Subject, file: File) -> None:
    """Every encoding that the table calls readable, in the shapes that it can have."""
    subject.must_decode(file)


@rule(
    "DT-016",
    section="3.1",
    tier=LITERAL,
    binds=READER,
    quote="张量名非 UTF-8、dtype 未知、`ndim > 6` → `Parse`。",
    draw={"file": lies("DT-016")},
)
def the_first_id_past_the_table_is_unknown(subject: Subject, file: File) -> None:
    """A newer text may define it; this one does not."""
    subject.beyond_if_declared(dtype=16)
    subject.open(file.base).must_be_accepted(len(file.tensors))
    subject.open(file).must_refuse(Parse)


untested("DT-005", quote="id 从不重用", because="binds the text itself; the stored files of each id would show it")
