"""§3, the tensor directory: its head, the name pool, and the names."""

from __future__ import annotations

from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, READER, rule, untested
from cmfspec.contract.subject import Subject
from conformance.draws import lies, sampled_from
from golden.files import File

HEAD = "[8 : 16]  pool_off : u64"
RECORDS = "[16 : 16 + count·56]  56-byte records:"
NAME = "name_off : u32   (relative to pool_off)"
ONLY_TRUTH = "目录是 blob 内容的唯一真相来源"
NO_SET = "格式不规定张量集合"
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


untested("DIR-028", quote="逐字节采用 `.vmfc` v2 布局", because="`.vmfc` is not public")
