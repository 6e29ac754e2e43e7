"""§3, the tensor directory: head, records, name pool; and §4, the blob that only it explains."""

from __future__ import annotations

import dataclasses

from cmfspec.contract.rule import (
    DERIVED,
    LITERAL,
    OBSERVATION,
    READER,
    VERIFIER,
    rule,
    untested,
)
from cmfspec.contract.subject import Subject
from cmfspec.format.build import Entry
from conformance.draws import lies, sampled_from
from golden.files import File

HEAD = "[8 : 16]  pool_off : u64"
RECORDS = "[16 : 16 + count·56]  56-byte records:"
NAME = "name_off : u32   (relative to pool_off)"
SHAPE = "shape    : u32 × 6  (zero-padded tail)"
OFF = "off      : u64   (RELATIVE to data_off; multiple of 64)"
HASH = "hash     : u64   (hash64 of the tensor bytes, §8)"
ONLY_TRUTH = "目录是 blob 内容的唯一真相来源"
NO_SET = "格式不规定张量集合"
ONLY_THROUGH = "读取器只能通过目录来解释该 blob。"
NAMES = (
    "w",
    "模型.层.0",
    "model/layers/0",
    "a b",
    "\u00e9",
    "e\u0301",
    "\U0001f600",
    "W",
    "model.layers.0.mlp.gate_proj.weight ",
    "..",
    "-",
    "%s%n",
    "C:\\x",
    "x" * 3000,
)
GAPS = (
    File("plain", (("data.gap[1]", 64),)),
    File("plain", (("data.gap[0]", 4096), ("data.gap[2]", 4032))),
    File("full", (("data.gap[0]", 100), ("data.gap[3]", 640))),
)


def _named(name: str, index: int = 1) -> File:
    return File("plain").edited(f"dir[{index}].name", name.encode().hex())


@rule(
    "DIR-001",
    section="3",
    tier=LITERAL,
    binds=READER,
    quote=HEAD,
    draw={
        "file": sampled_from(
            File(name) for name in ("plain", "empty", "full", "many:255:5", "many:256:5", "many:300:9")
        )
    },
)
def a_directory_is_a_head_then_records_then_names(subject: Subject, file: File) -> None:
    """As many records as count says, in their order, each 56 bytes after the one before."""
    subject.open(file).must_be_accepted(len(file.tensors))
    if "tensors" in subject.hello.operations:
        subject.tensors(file).must_be(file.tensors)
    if file.tensors:
        subject.must_decode(file, len(file.tensors) - 1)


@rule(
    "DIR-002",
    section="3",
    tier=LITERAL,
    binds=READER,
    quote=RECORDS,
    draw={
        "file": sampled_from(
            File(name)
            for name in (
                "wide",
                "many:3:65535",
                "many:300:230",
                "one:f16:1x2x3x1x2x3",
                "one:f16:2x3x4x5",
                "one:u8:70000",
            )
        )
    },
)
def every_field_of_a_record_is_where_the_text_has_it(subject: Subject, file: File) -> None:
    """And as wide: names beyond 64 KiB in the pool, names of 65535 bytes, six dimensions."""
    subject.open(file).must_be_accepted(len(file.tensors))
    subject.needs("tensors")
    subject.tensors(file).must_be(file.tensors)


@rule(
    "DIR-003",
    section="3",
    tier=LITERAL,
    binds=READER,
    quote="pool_off : u64            (name-pool offset from section start)",
    draw={
        "file": sampled_from(
            File(name, edits)
            for name in ("plain", "full")
            for edits in (
                (("dir.gap", 1),),
                (("dir.gap", 56),),
                (("dir.gap", 4096),),
                (("dir.gap", 56), ("gap.dir", 57)),
            )
        )
    },
)
def the_pool_begins_where_pool_off_says(subject: Subject, file: File) -> None:
    """Counted from the directory's first byte, with a gap behind the records or without."""
    subject.open(file).must_be_accepted(len(file.tensors))
    subject.needs("tensors")
    subject.tensors(file).must_be(file.tensors)


@rule("DIR-004", section="3", tier=DERIVED, binds=READER, quote=RECORDS, draw={"file": lies("DIR-004")})
def the_records_fit_into_the_directory(subject: Subject, file: File) -> None:
    """A count that dir_len has no room for is a lie, not a hint."""
    subject.open(file.base).must_be_accepted(len(file.tensors))
    subject.open(file).must_refuse()


@rule(
    "DIR-005",
    section="3",
    tier=DERIVED,
    binds=READER,
    quote=RECORDS,
    draw={"file": lies("DIR-005")},
    bugs=("ggml-org/llama.cpp#18674", "huggingface/candle#3714"),
)
def count_times_56_does_not_wrap_around(subject: Subject, file: File) -> None:
    """2^61 + 1 records are not one record."""
    subject.open(file.base).must_be_accepted(len(file.tensors))
    subject.open(file).must_refuse()


@rule(
    "DIR-006",
    section="3",
    tier=DERIVED,
    binds=READER,
    quote=HEAD,
    draw={"file": lies("DIR-006")},
    bugs=("ollama/ollama#17032", "Comfy-Org/ComfyUI#14989"),
)
def a_pool_past_the_directory_is_refused(subject: Subject, file: File) -> None:
    """A slice there is empty in some languages, and every name then is as well."""
    subject.open(file.base).must_be_accepted(len(file.tensors))
    subject.open(file).must_refuse()


@rule(
    "DIR-007",
    section="3",
    tier=DERIVED,
    binds=READER,
    quote=NAME,
    draw={"file": lies("DIR-007")},
    bugs=("ollama/ollama#17032",),
)
def a_name_lies_within_the_pool(subject: Subject, file: File) -> None:
    """The pool ends with the directory; a name that goes one byte further is not a shorter name."""
    subject.open(file.base).must_be_accepted(len(file.tensors))
    subject.open(file).must_refuse()


@rule(
    "DIR-008",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote=NAME,
    draw={
        "file": sampled_from(
            (
                File("plain", (("dir[2].name_off", {"plus": -4}),)),
                File("plain", (("dir[1].name_off", 1), ("dir[1].name_len", 36))),
                File("plain", (("dir[0].name_len", 36),)),
            )
        )
    },
)
def names_that_share_bytes_of_the_pool(subject: Subject, file: File) -> None:
    """Suffixes of one another, or bytes of the pool that no name uses."""
    subject.open(file).observe()


@rule(
    "DIR-009",
    section="3",
    tier=DERIVED,
    binds=READER,
    quote=ONLY_TRUTH,
    draw={"file": lies("DIR-009")},
    bugs=("ggml-org/llama.cpp#6836", "ggml-org/llama.cpp#10756"),
)
def two_tensors_of_one_name_are_refused(subject: Subject, file: File) -> None:
    """A source of truth that says two things says nothing."""
    subject.open(file.base).must_be_accepted(len(file.tensors))
    subject.open(file).must_refuse()


@rule(
    "DIR-010",
    section="3",
    tier=OBSERVATION,
    binds=READER,
    quote="[pool_off : …]  UTF-8 name pool",
    draw={"file": sampled_from(_named(name) for name in ("", "\0", "a\0b", "\n", "\x7f", "\ufeff", "\u202e"))},
    bugs=("ml-explore/mlx#943",),
)
def names_that_no_model_has(subject: Subject, file: File) -> None:
    """Empty, or with a NUL or another control character in it."""
    subject.open(file).observe()


@rule(
    "DIR-012",
    section="3",
    tier=LITERAL,
    binds=READER,
    quote=NO_SET,
    draw={
        "file": sampled_from(
            [
                File("empty"),
                *(_named(name) for name in NAMES),
                File(
                    "plain",
                    (
                        ("dir[0].name", ("x" * 300 + "a").encode().hex()),
                        ("dir[1].name", ("x" * 300 + "b").encode().hex()),
                    ),
                ),
            ]
        )
    },
    bugs=("ml-explore/mlx#943", "ollama/ollama#7802"),
)
def no_set_of_tensors_is_prescribed(subject: Subject, file: File) -> None:
    """Any names, told apart by every byte; or no tensor at all."""
    subject.must_say(file, file.tensors)


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


@rule(
    "BLOB-004",
    section="4",
    tier=LITERAL,
    binds=READER,
    quote=ONLY_THROUGH,
    draw={"file": sampled_from((*GAPS, File("plain", (("data.gap[0]", 64), ("data.order", [1, 2, 0])))))},
)
def the_blob_is_read_through_the_directory_only(subject: Subject, file: File) -> None:
    """With junk before, between and behind the tensors."""
    subject.must_say(file, file.tensors)


@rule(
    "BLOB-005",
    section="4",
    tier=OBSERVATION,
    binds=READER,
    quote=ONLY_THROUGH,
    draw={
        "file": sampled_from(
            File(name, (("tail", 8192), ("envelope.data_len", {"plus": 4096}))) for name in ("plain", "full")
        )
    },
)
def a_blob_longer_than_its_tensors(subject: Subject, file: File) -> None:
    """Slack at the end that no record speaks of."""
    subject.open(file).observe()


untested("DIR-028", quote="逐字节采用 `.vmfc` v2 布局", because="`.vmfc` is not public")
