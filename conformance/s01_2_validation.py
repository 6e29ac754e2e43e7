"""§1.2, the validation rules and the five named errors."""

from __future__ import annotations

from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, READER, SHOULD, rule
from cmfspec.contract.subject import Subject
from cmfspec.errors import REFUSALS, Bounds, Parse, UnsupportedVersion
from conformance.draws import files, lies, sampled_from
from fuzz.mutations import MUTATIONS, breaking
from golden.files import File

NAMED = ("ENV-002", "ENV-004", "ENV-015", "ENV-017", "VAL-005", "VAL-007", "VAL-008", "VAL-009")
ONE_EACH = tuple(breaking(rule_id)[0].name for rule_id in NAMED)
UNKNOWN_BIT = File("plain").with_feature_bit(31)
FAR = 5 * 2**30  # bytes between the directory and the blob


@rule(
    "VAL-001",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="在以下情况下，读取器必须返回错误（而非默认值、也非警告）：",
    draw={"mutation": sampled_from((*ONE_EACH, "unknown bit"))},
    bugs=("tc39/test262#1621",),
)
def an_invalid_file_is_an_error_not_a_warning(subject: Subject, mutation: str) -> None:
    """One file for each line of §1.2: accepting it with a remark is accepting it."""
    file = _one_of(subject, mutation)
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule(
    "VAL-002",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="magic ≠ `CMF\\x01` → `InvalidMagic`",
    draw={"mutation": sampled_from((*ONE_EACH, "unknown bit"))},
)
def an_error_has_the_name_that_the_text_gives_it(subject: Subject, mutation: str) -> None:
    """Five names: callers branch on them."""
    file = _one_of(subject, mutation)
    kinds = MUTATIONS[mutation].kinds if mutation in MUTATIONS else ("UnsupportedFeature",)
    subject.open(file).must_refuse(*(REFUSALS[kind] for kind in kinds))


def _one_of(subject: Subject, mutation: str) -> File:
    """The wrong file. Raises Beyond where what is unknown to the text is known to the subject."""
    if mutation not in MUTATIONS:
        subject.beyond_if_declared(feature_bit=31)
        return UNKNOWN_BIT
    dtypes = [value for path, value in MUTATIONS[mutation].edits if path.endswith(".dtype")]
    if dtypes:
        subject.beyond_if_declared(dtype=dtypes[0])
    return MUTATIONS[mutation].file


@rule(
    "VAL-003",
    section="1.2",
    tier=OBSERVATION,
    binds=READER,
    quote="magic ≠ `CMF\\x01` → `InvalidMagic`",
    draw={
        "file": sampled_from(
            (
                File("plain", (("envelope.version", 1), ("put", [0, b"GGUF".hex()]))),
                File("plain", (("envelope.version", 1), ("envelope.required_features", 2**31))),
                File("plain", (("envelope.required_features", 2**31), ("envelope.data_off", {"plus": 1}))),
            )
        )
    },
)
def which_of_two_faults_is_named(subject: Subject, file: File) -> None:
    """The text does not order its checks; magic, version, features is the natural order."""
    subject.open(file).observe()


@rule(
    "VAL-004",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="`version` ≠ 2 → `UnsupportedVersion`（v1 已死：不存在真实的 v1 文件，不会启动任何支持计划）",
    draw={"file": lies("VAL-004")},
)
def version_one_is_dead(subject: Subject, file: File) -> None:
    """No reader for files that never existed."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(UnsupportedVersion)


@rule(
    "VAL-005",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="某张量的 `off + nbytes` 超过 `data_len` → `Bounds`",
    draw={"file": lies("VAL-005")},
    bugs=("ml-explore/mlx#3363", "run-ai/runai-model-streamer#121"),
)
def a_tensor_past_the_blob_is_refused(subject: Subject, file: File) -> None:
    """By one byte or by a terabyte, at open, before anybody asks for the tensor."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Bounds)


@rule(
    "VAL-006",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="某张量的 `off + nbytes` 超过 `data_len` → `Bounds`",
    draw={"file": lies("VAL-006")},
    bugs=("ggml-org/llama.cpp#24759",),
)
def the_end_of_a_tensor_does_not_wrap_around(subject: Subject, file: File) -> None:
    """2^64 − 64 plus 64 is not zero."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Bounds)


@rule(
    "VAL-007",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="张量名非 UTF-8、dtype 未知、`ndim > 6` → `Parse`。",
    draw={"file": lies("VAL-007")},
)
def a_tensor_name_is_strict_utf8(subject: Subject, file: File) -> None:
    """No overlong forms, no surrogates, nothing cut short, no silent replacement character."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Parse)


@rule(
    "VAL-008",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="张量名非 UTF-8、dtype 未知、`ndim > 6` → `Parse`。",
    draw={"file": lies("VAL-008")},
    bugs=("ggml-org/ggml#709",),
)
def an_unknown_dtype_is_refused_at_open(subject: Subject, file: File) -> None:
    """Even if nobody ever decodes that tensor."""
    subject.beyond_if_declared(dtype=next(value for path, value in file.edits if path.endswith(".dtype")))
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Parse)


@rule(
    "VAL-009",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="张量名非 UTF-8、dtype 未知、`ndim > 6` → `Parse`。",
    draw={"file": lies("VAL-009")},
    bugs=("ggml-org/ggml#709", "antirez/gguf-tools#25"),
)
def more_than_six_dimensions_are_refused(subject: Subject, file: File) -> None:
    """The record has room for six; the seventh is the next field."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Parse)


@rule(
    "VAL-010",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="张量哈希校验按需进行（`cortiq verify`、加载器标志），并非每次打开都做：mmap 页面按需惰性读取。",
    draw={"name": sampled_from(("plain", "tiny")), "at": sampled_from((0, 1, 31, 63))},
)
def tensor_hashes_are_checked_on_demand_only(subject: Subject, name: str, at: int) -> None:
    """A damaged weight does not stop open; verify finds it."""
    file = File(name).edited("flip", ["data", at, 1])
    subject.open(file).must_be_accepted(len(file.tensors))
    if "verify" in subject.hello.operations:
        subject.verify(file).must_report("tensor", 0)


@rule(
    "VAL-011",
    section="1.2",
    tier=SHOULD,
    binds=READER,
    quote="mmap 页面按需惰性读取",
    draw={"file": files("plain")},
    bugs=("ggml-org/llama.cpp#19874",),
)
def opening_reads_no_weights(subject: Subject, file: File) -> None:
    """A file with gigabytes in front of its blob opens at once and costs no more memory than a small one."""
    control = subject.resident_peak(lambda: subject.open(file).must_be_accepted())
    far = subject.resident_peak(lambda: subject.open(file.with_hole(FAR)).must_be_accepted(len(file.tensors)))
    subject.must_cost_no_more(far, control, f"a blob {FAR >> 30} GiB into the file")


@rule(
    "VAL-012",
    section="2",
    tier=DERIVED,
    binds=READER,
    quote="UTF-8 JSON，不对齐。",
    draw={"file": lies("VAL-012", "HDR-002")},
    cases=40,
)
def a_header_that_is_not_json_in_utf8_is_refused(subject: Subject, file: File) -> None:
    """Whole, and at open: a parser that skips what it does not know must still look at it."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule("VAL-013", section="1.2", tier=OBSERVATION, binds=READER, quote="文件要么有效，要么 open() 返回错误")
def a_path_at_which_there_is_nothing(subject: Subject) -> None:
    """Outside the text; an error, one hopes."""
    subject.open_nothing().observe()
