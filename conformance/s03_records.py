"""§3, the records of the directory: shapes, places, sizes and hashes of the tensors."""

from __future__ import annotations

import dataclasses

from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, READER, VERIFIER, rule
from cmfspec.contract.subject import Subject
from cmfspec.format.blueprint import Entry
from conformance.draws import lies, sampled_from
from golden.files import File

NAME = "name_off : u32   (relative to pool_off)"
SHAPE = "shape    : u32 × 6  (zero-padded tail)"
OFF = "off      : u64   (RELATIVE to data_off; multiple of 64)"
HASH = "hash     : u64   (hash64 of the tensor bytes, §8)"
ONLY_TRUTH = "目录是 blob 内容的唯一真相来源"


@rule(
    "DIR-014",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote=SHAPE,
    draw={
        "file": sampled_from(
            File("plain", tuple((f"dir[0].shape{axis}", value) for axis in range(1, 6))) for value in (7, 2**32 - 1)
        )
    },
)
def dimensions_past_ndim_that_are_not_zero(subject: Subject, file: File) -> None:
    """The tail is padding; what else it may hold is not said."""
    subject.open(file).observe()


@rule(
    "DIR-015",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote="ndim     : u8    (≤ 6)",
    draw={"file": sampled_from(File(f"one:{dtype}:") for dtype in ("f32", "f16", "bf16", "u8", "q4_block"))},
)
def a_tensor_of_no_dimensions(subject: Subject, file: File) -> None:
    """One element: the empty product."""
    subject.open(file).observe()


@rule(
    "DIR-016",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote=SHAPE,
    draw={
        "file": sampled_from(
            File(f"one:{dtype}:{shape}")
            for dtype, shapes in (
                ("f16", ("0", "4x0", "0x4294967295")),
                ("f32", ("0x32",)),
                ("u8", ("0",)),
                ("q8_row", ("0x32", "4x0")),
                ("q8_2f", ("0x32", "4x0")),
                ("q4_block", ("0x32", "0")),
                ("q4_tiled", ("0x32", "4x0")),
                ("q4tp", ("0x32", "4x0")),
                ("vbit", ("0x32", "4x0")),
                ("vbit_ro", ("0x32", "4x0")),
                ("q1", ("0x32", "4x0")),
            )
            for shape in shapes
        )
    },
    bugs=("ggml-org/ggml#1517", "promptfoo/modelaudit#1607"),
    cases=32,
)
def a_dimension_of_nothing(subject: Subject, file: File) -> None:
    """No elements, and as many bytes as the layout then has."""
    subject.open(file).observe()


@rule(
    "DIR-017",
    section="3",
    tier=DERIVED,
    binds=READER,
    quote=SHAPE,
    draw={"file": lies("DIR-017")},
    bugs=("ggml-org/llama.cpp#18674", "huggingface/candle#3714", "zackshen/gguf#15"),
)
def the_product_of_a_shape_does_not_wrap_around(subject: Subject, file: File) -> None:
    """65536^4 elements are not zero elements."""
    subject.must_not_decode(file)


@rule(
    "DIR-018",
    section="3",
    tier=LITERAL,
    binds=READER,
    quote=OFF,
    draw={
        "file": sampled_from(
            File(name).edited("gap.data", gap) for name in ("plain", "full") for gap in (4096, 8192, 65536)
        )
    },
)
def off_counts_from_the_blobs_first_byte(subject: Subject, file: File) -> None:
    """Wherever the blob begins."""
    subject.must_say(file, file.tensors)


@rule("DIR-019", section="3", tier=DERIVED, binds=READER, quote=OFF, draw={"file": lies("DIR-019")})
def a_tensor_off_its_boundary_is_refused_or_right(subject: Subject, file: File) -> None:
    """Whoever reads it anyway reads it from there, not from the boundary below."""
    subject.open(file.base).must_be_accepted(len(file.tensors))
    ((path, value),) = file.edits
    index = int(path[len("dir[")])
    subject.needs_dtype(file.tensors[index].dtype)
    if subject.open(file).accepted:
        values = subject.tensor(file, index)
        if values.accepted:
            values.must_decode(_shifted(file, index, value["plus"]))


def _shifted(file: File, index: int, by: int) -> Entry:
    """The tensor with the bytes that lie `by` further on."""
    content, entry = file.content(), file.tensors[index]
    start = content.index(entry.payload) + by
    return dataclasses.replace(entry, payload=content[start : start + len(entry.payload)])


@rule(
    "DIR-020",
    section="3",
    tier=DERIVED,
    binds=READER,
    quote=ONLY_TRUTH,
    draw={"file": lies("DIR-020")},
    bugs=("ml-explore/mlx#3363", "run-ai/runai-model-streamer#121"),
    cases=64,
)
def the_bytes_of_a_tensor_are_as_many_as_its_shape_wants(subject: Subject, file: File) -> None:
    """One more or one less, one side is wrong, and every value may be."""
    index = next((int(path[len("dir[")]) for path, _ in file.edits if path.startswith("dir[")), 0)
    subject.must_not_decode(file, index)


@rule(
    "DIR-021",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote=ONLY_TRUTH,
    draw={
        "file": sampled_from(
            (
                File("many:2:5", (("dir[1].off", 0),)),
                File("full", (("dir[1].off", 0),)),
                File("encodings", (("dir[2].off", {"plus": -64}),)),
            )
        )
    },
    bugs=("safetensors/safetensors#586", "ohdearquant/lattice#752", "antirez/h3.c#48"),
)
def tensors_that_share_bytes(subject: Subject, file: File) -> None:
    """Two names for one range, or ranges that overlap in part."""
    subject.open(file).observe()


@rule(
    "DIR-022",
    section="3",
    tier=LITERAL,
    binds=READER,
    quote=ONLY_TRUTH,
    draw={
        "file": sampled_from(
            (
                File("plain").edited("data.order", [2, 0, 1]),
                File("plain").edited("data.order", [2, 1, 0]),
                File("full").edited("data.order", [3, 1, 0, 2]),
                File("encodings").edited("data.order", [*range(13, -1, -1)]),
            )
        )
    },
)
def records_stand_in_another_order_than_their_bytes(subject: Subject, file: File) -> None:
    """Each has its own off; none follows from the one before."""
    subject.must_say(file, file.tensors)


@rule(
    "DIR-023",
    section="3",
    tier=LITERAL,
    binds=VERIFIER,
    quote=HASH,
    draw={
        "file": sampled_from(
            File("plain").edited("dir[1].hash", value) for value in (0, 1, {"plus": 1}, {"plus": 2**32}, 2**64 - 1)
        )
    },
)
def the_hash_of_a_record_is_the_hash_of_its_bytes(subject: Subject, file: File) -> None:
    """Zero included: a record's hash is never absent."""
    subject.verify(file.base).must_be_sound()
    subject.verify(file).must_report("tensor", 1, refusing=True)


@rule(
    "DIR-026",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote="[pool_off : …]  UTF-8 name pool",
    draw={"file": sampled_from(File(name).edited("envelope.dir_len", {"plus": 1}) for name in ("plain", "full"))},
)
def bytes_behind_the_last_name(subject: Subject, file: File) -> None:
    """The pool has no length of its own: it ends with the directory."""
    subject.open(file).observe()
