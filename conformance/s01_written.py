"""§1 to §4 and §8, what a writer has to do: files that it writes, taken apart.

Law: a writer is given what a file shall hold, and the file that it writes is valid and sound before anything else is
asked of it. Where the text leaves a choice (padding, order of keys, more alignment) no bytes are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmfspec.contract.answers import Written
from cmfspec.contract.rule import LITERAL, OBSERVATION, WRITER, rule
from cmfspec.contract.subject import Subject
from cmfspec.format.blueprint import Blueprint, Entry, canonical, to_json
from cmfspec.layout import (
    BINARY_MASKS,
    DATA_ALIGN,
    DTYPE_IDS,
    ENVELOPE_SIZE,
    HASH_DIGITS,
    MAX_NDIM,
    OPTIONAL,
    QUANT_2F,
    RESERVED_FEATURES,
    SKILL_FILE,
    TENSOR_ALIGN,
    TENSOR_DIR,
)
from conformance.draws import files, sampled_from
from golden.files import File
from golden.recipes import ARCH, HEADER, entry

RECORD_NDIM = "ndim     : u8    (≤ 6)"
ARCH_KEYS = tuple(ARCH)
ORDER = ("header", "dir", "data", *OPTIONAL)
SETS_2F = ("q8_2f", "vbit")  # vbit_ro may, and need not
LONGEST = 65535
EVERY_RANK = tuple(File(f"one:{dtype}:{shape}") for dtype, shape in (
    ("f16", ""), ("f16", "7"), ("f32", "3x5"), ("bf16", "2x3x2"), ("f16", "2x1x3x2"),
    ("f32", "1x2x1x2x3"), ("f16", "1x2x3x1x2x3"),
))  # fmt: skip


def _of(header: Mapping[str, Any], *tensors: Entry) -> File:
    return File(canonical(to_json(Blueprint(header, tensors))))


def _named(length: int) -> File:
    return _of(HEADER, Entry("n" * length, DTYPE_IDS["f16"], (2,), bytes(4)))


def _with_skill(**record: str) -> File:
    return _of({**HEADER, "skills": [{"id": "sql", "layers": [0], **record}]}, entry("w", "f16", (33,)))


GDN = {**ARCH, "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
NAMES = ("w", "model.layers.0.mlp.gate_proj.weight", "模型.0", "a b", "\u00e9", "e\u0301", "W")
RENAMED = _of(HEADER, *(entry(name, "f16", (40 + place,)) for place, name in enumerate(NAMES)))
MANY = _of(HEADER, *(entry(f"w.{place}", "f16", (place % 70,)) for place in range(40)))


@rule(
    "ENV-005",
    section="1",
    tier=LITERAL,
    binds=WRITER,
    quote="flags : u32 (reserved, 0)",
    draw={"file": files("plain", "full", "empty")},
)
def flags_are_written_as_zero(subject: Subject, file: File) -> None:
    """Reserved: who writes something there takes it from a later text."""
    written = subject.write(file)
    written.must_be("envelope.flags", written.envelope["flags"], 0)


@rule(
    "ENV-007",
    section="1",
    tier=LITERAL,
    binds=WRITER,
    quote="header_off",
    draw={"file": files("plain", "full", "wide")},
)
def a_fresh_file_has_its_header_behind_the_envelope(subject: Subject, file: File) -> None:
    """Only growth moves it to the tail (§9)."""
    written = subject.write(file)
    written.must_be("envelope.header_off", written.envelope["header_off"], ENVELOPE_SIZE)


@rule(
    "ENV-010",
    section="1",
    tier=LITERAL,
    binds=WRITER,
    quote="data_off",
    draw={"file": files("plain", "full", "wide", "vocab")},
)
def a_fresh_file_has_its_sections_in_order(subject: Subject, file: File) -> None:
    """Envelope, header, directory, blob, masks, vocab, index."""
    written = subject.write(file)
    present = [name for name in ORDER if written.view.present(name)]
    found = sorted(present, key=lambda name: written.view.span(name)[0])
    written.must_be("the order of sections", found, present)


@rule(
    "FEAT-003",
    section="1.1",
    tier=LITERAL,
    binds=WRITER,
    quote="二进制张量目录（v2 中始终置位）",
    draw={"file": files("plain", "full", "empty")},
)
def the_bit_of_the_directory_is_always_set(subject: Subject, file: File) -> None:
    """Even where it lists nothing."""
    written = subject.write(file)
    written.must_be("bit 0 of required_features", written.has_bit(TENSOR_DIR), True)


@rule(
    "FEAT-005",
    section="1.1",
    tier=LITERAL,
    binds=WRITER,
    quote="存在掩码区段（§5）",
    draw={"file": files("plain", "full", "vocab")},
)
def the_bit_of_the_masks_says_whether_there_are_any(subject: Subject, file: File) -> None:
    """Set with them, and clear without."""
    written = subject.write(file)
    written.must_be("bit 1 of required_features", written.has_bit(BINARY_MASKS), bool(file.blueprint.masks))


@rule(
    "FEAT-007",
    section="1.1",
    tier=LITERAL,
    binds=WRITER,
    quote="目录包含 `q8_2f`/`vbit` 张量（双场 𝒲×θ 量化）",
    draw={
        "file": sampled_from(File(f"one:{name}:4x64") for name in ("q8_2f", "vbit", "q8_row", "q4_block", "f16", "q1t"))
    },
)
def the_bit_of_two_fields_is_set_for_q8_2f_and_vbit(subject: Subject, file: File) -> None:
    """A reader without these encodings has to learn so from the envelope."""
    written = subject.write(file)
    wanted = file.tensors[0].dtype in {DTYPE_IDS[name] for name in SETS_2F}
    written.must_be("bit 2 of required_features", written.has_bit(QUANT_2F), wanted)


@rule(
    "FEAT-014",
    section="1.1",
    tier=LITERAL,
    binds=WRITER,
    quote="任何带 `base_dir_hash` 的记录都会升起位 6",
    draw={"file": sampled_from((_with_skill(base_dir_hash="9f22593eb458bc6f", base_arch="qwen3.5"), _with_skill()))},
)
def a_skill_with_base_dir_hash_raises_bit_6(subject: Subject, file: File) -> None:
    """The file is no model by itself, and says so."""
    written = subject.write(file)
    wanted = "base_dir_hash" in file.blueprint.header["skills"][0]
    written.must_be("bit 6 of required_features", written.has_bit(SKILL_FILE), wanted)


@rule(
    "FEAT-020",
    section="1.1",
    tier=LITERAL,
    binds=WRITER,
    quote="保留：物化的稠密切片",
    draw={"file": sampled_from([*(File(name) for name in ("plain", "full", "encodings")), File("one:u8:64")])},
)
def nothing_reserved_is_written(subject: Subject, file: File) -> None:
    """Neither bits 3 and 4 nor dtypes 5 and 7: they are kept for later texts."""
    written = subject.write(file)
    found = [bit for bit in RESERVED_FEATURES if bit in (3, 4) and written.has_bit(bit)]
    written.must_be("reserved feature bits", found, [])
    written.must_be("reserved dtypes", sorted({tensor.dtype for tensor in written.opened} & {5, 7}), [])


@rule(
    "HDR-011",
    section="2",
    tier=LITERAL,
    binds=WRITER,
    quote='"arch_name": "qwen3.5"',
    draw={"file": files("plain", "full", "empty")},
)
def the_header_carries_the_whole_of_arch(subject: Subject, file: File) -> None:
    """Every key of the text's example, with the value that was given."""
    written = subject.write(file)
    arch = written.opened.header.get("arch")
    for key in ARCH_KEYS:
        found = arch.get(key) if isinstance(arch, dict) else None
        written.must_be(f"arch.{key}", found, file.blueprint.header["arch"][key])


@rule(
    "HDR-013",
    section="2",
    tier=LITERAL,
    binds=WRITER,
    quote='"layer_types": ["LinearAttention", "...", "FullAttention"]',
    draw={
        "layers": sampled_from(
            (["FullAttention"] * 3, ["LinearAttention", "FullAttention"], ["LinearAttention"] * 3 + ["FullAttention"])
        )
    },
)
def each_layer_has_its_tag(subject: Subject, layers: list[str]) -> None:
    """One for each layer, in their order."""
    arch = {**GDN, "num_layers": len(layers), "layer_types": layers}
    written = subject.write(_of({**HEADER, "arch": arch}, entry("w", "f16", (33,))))
    written.must_be("arch.layer_types", written.opened.header["arch"].get("layer_types"), layers)


@rule(
    "HDR-023",
    section="8.1",
    tier=LITERAL,
    binds=WRITER,
    quote="头部 JSON 携带 `section_hashes` —— masks/vocab/index 的十六进制 hash64",
    draw={"file": files("full", "vocab", "plain")},
)
def section_hashes_are_written_in_hex(subject: Subject, file: File) -> None:
    """Sixteen digits for each section that is there, and none for the others."""
    written = subject.write(file)
    found = written.opened.header.get("section_hashes") or {}
    present = [name for name in OPTIONAL if written.view.present(name)]
    written.must_be("the keys of section_hashes", sorted(found), sorted(present))
    for name, text in found.items():
        hexadecimal = isinstance(text, str) and len(text) == HASH_DIGITS
        written.must_be(f"section_hashes.{name} of {HASH_DIGITS} digits", hexadecimal, True)


@rule(
    "HDR-031",
    section="2",
    tier=LITERAL,
    binds=WRITER,
    quote='"linear_conv_kernel_dim": 4',
    draw={"file": sampled_from((_of({**HEADER, "arch": GDN}, entry("w", "f16", (33,))),))},
)
def a_model_with_linear_layers_carries_their_sizes(subject: Subject, file: File) -> None:
    """An engine can't guess them."""
    written = subject.write(file)
    for key in ("linear_conv_kernel_dim", "linear_num_key_heads", "linear_num_value_heads"):
        written.must_be(f"arch.{key}", written.opened.header["arch"].get(key), GDN[key])


@rule(
    "DIR-011",
    section="3",
    tier=LITERAL,
    binds=WRITER,
    quote="张量名与源模型**一一对应**",
    draw={"file": sampled_from((RENAMED, File("wide"), File("encodings")))},
)
def names_are_written_as_they_are_given(subject: Subject, file: File) -> None:
    """Byte for byte, with the payload that goes with each."""
    written = subject.write(file)
    found = {tensor.name: bytes(written.opened.raw(tensor.index)) for tensor in written.opened}
    for tensor in file.tensors:
        written.must_be(f"the payload of {ascii(tensor.name)[:60]}", found.get(tensor.name) == tensor.payload, True)
    written.must_be("tensors", len(written.opened), len(file.tensors))


@rule(
    "DIR-013",
    section="3",
    tier=LITERAL,
    binds=WRITER,
    quote="shape    : u32 × 6  (zero-padded tail)",
    draw={"file": sampled_from(EVERY_RANK)},
)
def what_a_shape_leaves_free_is_zero(subject: Subject, file: File) -> None:
    """From no dimensions to six."""
    written = subject.write(file)
    record = written.view.directory.records[0]
    wanted = [*file.tensors[0].shape, *[0] * (MAX_NDIM - len(file.tensors[0].shape))]
    written.must_be("ndim", int(record["ndim"]), len(file.tensors[0].shape))
    written.must_be("shape", [int(dim) for dim in record["shape"]], wanted)


@rule(
    "DIR-024",
    section="3",
    tier=LITERAL,
    binds=WRITER,
    quote="name_len : u16",
    draw={"length": sampled_from((LONGEST, LONGEST + 1, LONGEST + 2, 2 * LONGEST + 3))},
)
def a_name_past_its_field_is_refused(subject: Subject, length: int) -> None:
    """65536 bytes are not none."""
    if length <= LONGEST:
        written = subject.write(_named(length))
        written.must_be("the name's length", len(written.opened[0].name), length)
    else:
        subject.must_not_write(_named(length))


@rule(
    "DIR-025",
    section="3",
    tier=LITERAL,
    binds=WRITER,
    quote="shape    : u32 × 6  (zero-padded tail)",
    draw={"shape": sampled_from(([2**32], [2**32 + 1], [0, 2**32], [2**40, 0], [1, 1, 1, 1, 1, 1, 1]))},
)
def a_shape_past_its_field_is_refused(subject: Subject, shape: list[int]) -> None:
    """2^32 + 1 is not 1, and the seventh dimension has no place."""
    subject.must_not_write(_of(HEADER, Entry("w", DTYPE_IDS["f16"], tuple(shape), bytes(2))))


@rule(
    "BLOB-001",
    section="4",
    tier=LITERAL,
    binds=WRITER,
    quote="`data_off` 是 4096 的倍数",
    draw={"file": files("plain", "full", "wide", "empty")},
)
def the_blob_begins_on_a_page(subject: Subject, file: File) -> None:
    """So that it can be mapped."""
    written = subject.write(file)
    written.must_be(f"data_off % {DATA_ALIGN}", written.envelope["data_off"] % DATA_ALIGN, 0)


@rule(
    "BLOB-002",
    section="4",
    tier=LITERAL,
    binds=WRITER,
    quote="都从 64 字节边界开始",
    draw={"file": sampled_from((MANY, File("full"), File("encodings")))},
)
def each_tensor_begins_on_a_cache_line(subject: Subject, file: File) -> None:
    """In the blob, and so in the file."""
    written = subject.write(file)
    found = [tensor.off % TENSOR_ALIGN for tensor in written.opened]
    written.must_be(f"off % {TENSOR_ALIGN}", [off for off in found if off], [])


@rule(
    "BLOB-003",
    section="4",
    tier=LITERAL,
    binds=WRITER,
    quote="张量之间为零",
    draw={"file": sampled_from((MANY, File("full"), File("encodings")))},
)
def between_tensors_there_are_zeros(subject: Subject, file: File) -> None:
    """Nothing of the writer's memory goes into the file."""
    written = subject.write(file)
    blob = bytearray(written.view.part("data"))
    for tensor in written.opened:
        blob[tensor.off : tensor.off + tensor.nbytes] = bytes(tensor.nbytes)
    written.must_be("bytes between tensors that are not zero", len(blob) - blob.count(0), 0)


@rule(
    "BLOB-006",
    section="4",
    tier=OBSERVATION,
    binds=WRITER,
    quote="都从 64 字节边界开始",
    draw={"file": sampled_from((MANY, File("wide")))},
)
def how_large_tensors_are_aligned(subject: Subject, file: File) -> None:
    """More strictly is allowed."""
    subject.write(file).observe(
        lambda written: f"off % 4096 of {sorted({t.off % DATA_ALIGN for t in written.opened})[:8]}"
    )


@rule(
    "DIR-027",
    section="3",
    tier=OBSERVATION,
    binds=WRITER,
    quote="目录是 blob 内容的唯一真相来源",
    draw={"file": sampled_from((RENAMED,))},
)
def in_which_order_tensors_are_listed(subject: Subject, file: File) -> None:
    """As given, or by name; the text doesn't say."""
    given = [tensor.name for tensor in file.tensors]

    def order(written: Written) -> str:
        found = [tensor.name for tensor in written.opened]
        return "as given" if found == given else "by name" if found == sorted(given) else "otherwise"

    subject.write(file).observe(order)
