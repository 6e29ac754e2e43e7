"""§1, the envelope: 128 bytes that say where everything is."""

from __future__ import annotations

from typing import Any

from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, READER, SHOULD, VERIFIER, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.errors import Bounds, InvalidMagic, UnsupportedVersion
from cmfspec.layout import OPTIONAL
from conformance.draws import any_of, edited, files, gridded, havoc, lies, sampled_from
from conformance.s01_files import CRASHED, DEAD, GROWN, HUNGRY, MOVED, ORDERS, SWAPPED
from golden.files import File

SEEN = ("arch.arch_name", "arch.hidden_size", "arch.num_layers")


@rule(
    "ENV-001",
    section="1",
    tier=DERIVED,
    binds=READER,
    quote="信封（固定 128 字节）",
    draw={"file": lies("ENV-001")},
    bugs=("golang/vulndb#3245",),
)
def a_file_shorter_than_its_envelope_is_refused(subject: Subject, file: File) -> None:
    """A short read must not become an envelope of zeros."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule(
    "ENV-002",
    section="1",
    tier=LITERAL,
    binds=READER,
    quote='magic = b"CMF\\x01" (4 bytes)',
    draw={"file": lies("ENV-002")},
    bugs=("promptfoo/modelaudit#1612", "ggml-org/llama.cpp#8264"),
)
def every_byte_of_the_magic_counts(subject: Subject, file: File) -> None:
    """A reader that compares three bytes, or case-blind, takes other formats for ours."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(InvalidMagic)


@rule(
    "ENV-003",
    section="1",
    tier=LITERAL,
    binds=READER,
    quote="所有整数均为小端序。",
    draw={"file": sampled_from((*SWAPPED, File("wide"), File("wide").edited("gap.data", 70000)))},
    bugs=("ggml-org/llama.cpp#19856",),
)
def integers_are_little_endian_and_as_wide_as_they_say(subject: Subject, file: File) -> None:
    """A swapped field points nowhere; values past one byte are read whole."""
    if any(path.startswith("envelope.") for path, _ in file.edits):
        subject.open(file.base).must_be_accepted()
        subject.open(file).must_refuse()
    else:
        subject.must_say(file, file.tensors)


@rule(
    "ENV-004",
    section="1",
    tier=LITERAL,
    binds=READER,
    quote="version : u32 = 2",
    draw={"file": lies("ENV-004")},
)
def only_version_two_is_read(subject: Subject, file: File) -> None:
    """All four bytes count, and a newer file is not an older one."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(UnsupportedVersion)


@rule(
    "ENV-006",
    section="1",
    tier=OBSERVATION,
    binds=READER,
    quote="flags : u32 (reserved, 0)",
    draw={"file": edited("plain", "envelope.flags", (1, 2**31, 2**32 - 1))},
)
def flags_that_are_set(subject: Subject, file: File) -> None:
    """Reserved: a breaking change would use required_features."""
    subject.open(file).observe()


@rule(
    "ENV-008",
    section="1",
    tier=LITERAL,
    binds=READER,
    quote="读取器必须仅通过信封来寻址区段，绝不假设其顺序。",
    draw={"file": sampled_from(MOVED)},
)
def the_header_is_where_the_envelope_says(subject: Subject, file: File) -> None:
    """Growth moves the header to the tail (§9): 128 binds fresh writers only."""
    subject.must_say(file, file.tensors)
    if "header" in subject.hello.operations:
        subject.header(file).must_have(dict(file.blueprint.header), SEEN)


@rule(
    "ENV-009",
    section="1",
    tier=LITERAL,
    binds=READER,
    quote="读取器必须仅通过信封来寻址区段，绝不假设其顺序。",
    draw={"file": sampled_from(ORDERS)},
    bugs=("safetensors/safetensors#231", "ggml-org/llama.cpp#18291", "huggingface/candle#3815"),
    cases=48,
)
def sections_may_stand_in_any_order(subject: Subject, file: File) -> None:
    """At odd offsets too: nothing but the blob is aligned."""
    subject.must_say(file, file.tensors)
    if "verify" in subject.hello.operations:
        subject.verify(file).must_be_sound()


@rule(
    "ENV-011",
    section="1",
    tier=LITERAL,
    binds=READER,
    quote="masks section (§5); 0 = absent",
    draw={"section": sampled_from(OPTIONAL), "length": sampled_from((0, 16, 128))},
)
def an_optional_section_at_offset_zero_is_absent(subject: Subject, section: str, length: int) -> None:
    """Never the envelope's own bytes, whatever the length says."""
    whole = File("full")
    subject.open(whole).must_be_accepted(len(whole.tensors))
    file = File("plain").edited(f"envelope.{section}_len", length)
    opened = subject.open(file)
    if length == 0:
        opened.must_be_accepted(len(file.tensors))
    opened.must_lack(section)


@rule(
    "ENV-012",
    section="1",
    tier=OBSERVATION,
    binds=READER,
    quote="tokenizer (§6); 0 = absent",
    draw={"section": sampled_from(OPTIONAL), "off": sampled_from((1, 128, 2**40))},
)
def an_optional_section_of_no_length(subject: Subject, section: str, off: int) -> None:
    """Empty or absent, wherever it is said to be."""
    subject.open(File("plain").edited(f"envelope.{section}_off", off)).observe()


@rule(
    "ENV-013",
    section="1",
    tier=DERIVED,
    binds=READER,
    quote="header_len : u64 — JSON header (§2)",
    draw={"file": lies("ENV-013")},
)
def a_file_has_a_header(subject: Subject, file: File) -> None:
    """No header is not an empty one."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule(
    "ENV-014",
    section="1",
    tier=DERIVED,
    binds=READER,
    quote="[0 : 8 ] count : u64 [8 : 16] pool_off : u64",
    draw={"file": lies("ENV-014")},
)
def a_file_has_a_directory(subject: Subject, file: File) -> None:
    """Its head alone is sixteen bytes."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule(
    "ENV-015",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="任何区段越过 EOF",
    draw={"file": lies("ENV-015")},
    bugs=("Comfy-Org/ComfyUI#14989", "golang/vulndb#3245"),
    cases=40,
)
def a_section_past_the_end_is_refused(subject: Subject, file: File) -> None:
    """A slice that comes back short is the third state."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Bounds)


@rule(
    "ENV-016",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="任何区段越过 EOF",
    draw={"file": lies("ENV-016")},
    bugs=("ggml-org/llama.cpp#24759", "ggml-org/llama.cpp#26978"),
)
def the_end_of_a_section_does_not_wrap_around(subject: Subject, file: File) -> None:
    """Nor does it when it is rounded up to an alignment."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Bounds)


@rule(
    "ENV-017",
    section="1.2",
    tier=LITERAL,
    binds=READER,
    quote="`data_off` 不是 4096 的倍数",
    draw={"file": lies("ENV-017")},
    bugs=("huggingface/candle#3876", "antirez/gguf-tools#27"),
)
def the_blob_begins_on_a_page(subject: Subject, file: File) -> None:
    """The mmap that the format is made for needs it."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse(Bounds)


@rule(
    "ENV-018",
    section="3",
    tier=SHOULD,
    binds=READER,
    quote="格式不规定张量集合",
    draw={"file": files("empty")},
    bugs=("ollama/ollama#7802",),
)
def a_file_without_tensors_is_a_file(subject: Subject, file: File) -> None:
    """A shard may hold any subset, and a container is not yet a model."""
    subject.must_say(file, file.tensors)


@rule(
    "ENV-019",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote="信封保留区 `[0x70:0x78]` = hash64(header JSON)，`[0x78:0x80]` = hash64(directory)。",
    draw={
        "name": sampled_from(("plain", "full")),
        "part": sampled_from(("header", "dir")),
        "value": sampled_from((1, 2**64 - 1, "other")),
    },
)
def the_envelope_holds_the_hashes_of_header_and_directory(
    subject: Subject, name: str, part: str, value: int | str
) -> None:
    """Each in its own place: the other's hash is as wrong as any."""
    file = File(name)
    subject.verify(file).must_be_sound()
    at = {"header": 0x78, "dir": 0x70}[part]
    wrong = int.from_bytes(file.content()[at : at + 8], "little") if value == "other" else value
    subject.verify(file.edited(f"envelope.{part}_hash", wrong)).must_report(part)


@rule(
    "ENV-020",
    section="9",
    tier=LITERAL,
    binds=READER,
    quote="已写入张量的字节与偏移量永不改变；旧的 dir/header 字节成为死区段尾",
    draw={"file": sampled_from(GROWN)},
)
def the_data_range_may_span_what_growth_left_behind(subject: Subject, file: File) -> None:
    """Appending tensors puts old masks, vocab, directory and header inside the data range."""
    subject.must_say(file, file.tensors)
    if "verify" in subject.hello.operations:
        subject.verify(file).must_be_sound()


@rule(
    "ENV-021",
    section="9",
    tier=LITERAL,
    binds=READER,
    quote="旧的 dir/header 字节成为死区段尾（兼容：读取器只通过信封导航）",
    draw={"file": sampled_from(DEAD)},
    bugs=("promptfoo/modelaudit#1623",),
)
def dead_bytes_between_and_behind_the_sections_are_legal(subject: Subject, file: File) -> None:
    """Nothing points at them; even an archive at the end is only bytes."""
    subject.must_say(file, file.tensors)
    if "verify" in subject.hello.operations:
        subject.verify(file).must_be_sound()


@rule(
    "ENV-022",
    section="0",
    tier=LITERAL,
    binds=READER,
    quote="文件要么有效，要么 open() 返回错误 —— 不存在第三种状态。",
    draw={
        "file": any_of(
            gridded("full", "plain"),
            havoc("full", "encodings"),
            lies("DIR-005", "DIR-007", "DIR-017", "DIR-020", "HDR-006"),
        )
    },
    always=({"file": file} for file in CRASHED),
    bugs=(
        "ggml-org/llama.cpp#18674",
        "huggingface/candle#3714",
        "ggml-org/ggml#1517",
        "llama.cpp#18586",
        "ollama/ollama#17032",
        "safetensors/safetensors#401",
        "ml-explore/mlx#3363",
        "ggml-org/llama.cpp#6836",
    ),
    cases=1500,
)
def a_file_is_accepted_or_refused_and_nothing_else(subject: Subject, file: File) -> None:
    """No crash, no hang, no caught panic, whatever the bytes; and the same for all that is then asked of the file."""
    opened = subject.open(file)
    if not opened.accepted:
        return
    for op in ("verify", "header", "tensors"):
        if op in subject.hello.operations:
            members: dict[str, Any] = {} if op == "verify" else {"out": subject.link.new_out()}
            subject.ask(op, file, **members)
    for index in range(min(len(file.tensors), opened.reply.value.tensors or 0)):
        subject.tensor(file, index, undeclared=True)


@rule(
    "ENV-023",
    section="0",
    tier=DERIVED,
    binds=READER,
    quote="每个区段的边界检查",
    draw={"file": sampled_from(HUNGRY)},
    bugs=("ollama/ollama#17042", "huggingface/candle#3533", "QuintinShaw/openasr#73"),
)
def what_a_file_declares_does_not_cost_memory(subject: Subject, file: File) -> None:
    """A file of a few kilobytes that asks for gigabytes gets none."""
    ops = [op for op in ("open", "tensors") if op in subject.hello.operations]

    def ask(about: File) -> None:
        for op in ops:
            members: dict[str, Any] = {} if op == "open" else {"out": subject.link.new_out()}
            subject.ask(op, about, **members)

    control = subject.resident_peak(lambda: ask(file.base))
    subject.must_cost_no_more(subject.resident_peak(lambda: ask(file)), control, file.edits[0][0])


@rule(
    "ENV-024",
    section="8.1",
    tier=OBSERVATION,
    binds=VERIFIER,
    quote="信封自身（前 0x70 字节）不被哈希：哈希无法保护自己",
    draw={"file": edited("plain", "envelope.flags", (1, 2**16))},
)
def damage_to_the_envelope_alone(subject: Subject, file: File) -> None:
    """No hash covers it; a verifier may find it sound."""
    subject.verify(file).observe()


@rule(
    "ENV-025",
    section="9",
    tier=LITERAL,
    binds=READER,
    quote="在文件尾部追加新张量 + 在尾部重新发出 目录/头部/索引 + 就地更新信封偏移量（偏移 0 固定）。",
    draw={"file": sampled_from(GROWN)},
)
def a_stale_directory_in_the_dead_tail_is_ignored(subject: Subject, file: File) -> None:
    """It is still there, whole and hashed, right behind the old header; only the envelope says that it is dead."""
    subject.open(file).must_be_accepted(len(file.tensors))
    subject.needs("tensors")
    subject.tensors(file).must_be(file.tensors)
    if "header" in subject.hello.operations:
        subject.header(file).must_have({"skills": [{"id": "sql"}]}, ["skills.0.id"])


untested(
    "ENV-026",
    quote="冷（被掩掉的）权重不占用 RSS。",
    because="a performance claim; VAL-011 measures the part of it that can be seen from outside",
)
