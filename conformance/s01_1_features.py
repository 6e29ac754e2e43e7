"""§1.1, required_features: what a reader must know to read on."""

from __future__ import annotations

from typing import Any

from cmfspec.contract.outcome import NotApplicable
from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, READER, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.errors import UnsupportedFeature
from cmfspec.layout import BINARY_MASKS, DELTA_MASKS, HOT_PACKS, LOOP_MASKS, QUANT_2F, SKILL_FILE
from conformance.draws import edited, files, sampled_from
from golden.files import File

LOOP_ROWS = "the text names no loop count; how rows lie shows only in masks, which no published operation asks yet"

SOME_VALUE: Any = {"zzz": [1, 2.5, "three", None, True, {"four": {"five": [[[[6]]]]}}], "": "", "naïve ключ 键": "🜁"}
MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
CHAT = {"chat_template": "{{ messages }}", "eos_token_ids": [1, 2], "bos_token_id": None, "pad_token_id": 2}
SKILL = {"id": "sql", "name": "SQL assistant", "layers": [0], "input_mask_task": None}
UNKNOWN: tuple[tuple[str, Any], ...] = (
    ("zzz", SOME_VALUE),
    ("arch.zzz", SOME_VALUE),
    ("arch.moe", {**MOE, "zzz": SOME_VALUE}),
    ("arch.mtp", {"num_layers": 1, "share_lm_head": True, "share_embed": True, "zzz": SOME_VALUE}),
    ("tokenizer_config", {**CHAT, "zzz": SOME_VALUE}),
    ("skills", [{**SKILL, "zzz": SOME_VALUE}]),
    ("shard", {"no": 1, "count": 1, "zzz": SOME_VALUE}),
    ("section_hashes", {"zzz": "not a hash"}),
    ("provenance", SOME_VALUE),
    ("zzz_long", "x" * 40000),
    ("zzz_deep", [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]),
    ("zzz_number", 12345678901234567890123),
    ("__class__", "dict"),
    ("__proto__", {"polluted": True}),
    ("constructor", {"prototype": None}),
    ("arch.__dict__", {}),
    ("skills", []),
    ("provenance", {}),
    ("tokenizer_config", None),
)


@rule(
    "FEAT-001",
    section="1.1",
    tier=LITERAL,
    binds=READER,
    quote='读取器不认识的某一位 → `UnsupportedFeature` 错误（快速失败； 不做"尽力读取"）。',
    draw={
        "file": files("plain", "full"),
        "bit": sampled_from((BINARY_MASKS, QUANT_2F, LOOP_MASKS, SKILL_FILE, *range(7, 32))),
    },
    bugs=("lm-sys/FastChat#285",),
    cases=64,
)
def an_unknown_feature_bit_stops_the_reader(subject: Subject, file: File, bit: int) -> None:
    """Fail fast: there is no «read as best we can». A bit of the text that the reader does not implement is as unknown."""
    subject.beyond_if_declared(feature_bit=bit)
    needed = [1, 2] if file.recipe == "full" else []
    if set(needed) <= set(subject.hello.features):
        subject.open(file).must_be_accepted()  # the control: one lie away
    subject.open(file.with_feature_bit(bit)).must_refuse(UnsupportedFeature)


@rule(
    "FEAT-002",
    section="1.1",
    tier=DERIVED,
    binds=READER,
    quote="| 3 | `DELTA_MASKS` | 保留：来自父级的 XOR 掩码增量 |",
    draw={"bit": sampled_from((DELTA_MASKS, HOT_PACKS)), "with_masks": sampled_from((False, True))},
)
def a_reserved_feature_bit_stops_the_reader(subject: Subject, bit: int, with_masks: bool) -> None:
    """Reserved is not ignorable: what the bit will mean, this reader does not do."""
    subject.beyond_if_declared(feature_bit=bit)
    file = File("full" if with_masks else "plain")
    subject.open(file).must_be_accepted()
    subject.open(file.with_feature_bit(bit)).must_refuse(UnsupportedFeature)


@rule(
    "FEAT-004",
    section="1.1",
    tier=OBSERVATION,
    binds=READER,
    quote="二进制张量目录（v2 中始终置位）",
    draw={"file": edited("plain", "features", (0,))},
)
def a_file_without_the_bit_that_is_always_set(subject: Subject, file: File) -> None:
    """§1.2 does not list it among the errors."""
    subject.open(file).observe()


@rule(
    "FEAT-006",
    section="1.1",
    tier=OBSERVATION,
    binds=READER,
    quote="存在掩码区段（§5）",
    draw={"file": sampled_from((File("plain").edited("features", 3), File("full").edited("features", 5)))},
)
def the_masks_bit_and_the_masks_section_disagree(subject: Subject, file: File) -> None:
    """One says masks, the other has none."""
    subject.open(file).observe()


@rule(
    "FEAT-008",
    section="1.1",
    tier=OBSERVATION,
    binds=READER,
    quote="目录包含 `q8_2f`/`vbit` 张量（双场 𝒲×θ 量化）",
    draw={"file": edited("full", "features", (3,))},
)
def two_field_tensors_without_their_bit(subject: Subject, file: File) -> None:
    """The directory says what the tensors are in any case."""
    subject.open(file).observe()


@rule(
    "FEAT-009",
    section="1.1",
    tier=OBSERVATION,
    binds=READER,
    quote="目录包含 `q8_2f`/`vbit` 张量（双场 𝒲×θ 量化）",
    draw={"file": edited("plain", "features", (5,))},
)
def the_two_field_bit_without_such_tensors(subject: Subject, file: File) -> None:
    """A superset of what is needed."""
    subject.open(file).observe()


for _identity in ("FEAT-010", "FEAT-011", "FEAT-012", "FEAT-013"):
    untested(_identity, quote="掩码行按访问（VISIT）存储（物理层 × 循环数，按遍历优先）", because=LOOP_ROWS)


@rule(
    "FEAT-015",
    section="9.1",
    tier=LITERAL,
    binds=READER,
    quote="旧读取器大声拒绝，知道该位的运行时拒绝运行它（部分张量集不是模型）",
    draw={"file": files("skill")},
    bugs=("lm-sys/FastChat#890",),
)
def a_standalone_skill_opens_lists_and_verifies(subject: Subject, file: File) -> None:
    """It is a sound container, only not a model; running it is asked of engines."""
    if SKILL_FILE not in subject.hello.features:
        raise NotApplicable(f"feature bit {SKILL_FILE}", "hello does not list it")
    subject.must_say(file, file.tensors)
    if "verify" in subject.hello.operations:
        subject.verify(file).must_be_sound()


@rule(
    "FEAT-016",
    section="9.1",
    tier=OBSERVATION,
    binds=READER,
    quote="任何带 `base_dir_hash` 的记录都会升起位 6",
    draw={"file": edited("skill", "features", (1,))},
)
def a_record_with_a_base_and_no_bit(subject: Subject, file: File) -> None:
    """An inconsistent file."""
    subject.open(file).observe()


@rule(
    "FEAT-017",
    section="9.1",
    tier=OBSERVATION,
    binds=READER,
    quote="任何带 `base_dir_hash` 的记录都会升起位 6",
    draw={"file": edited("plain", "features", (1 | 1 << SKILL_FILE,))},
)
def the_skill_bit_without_a_record(subject: Subject, file: File) -> None:
    """A standalone skill of no base."""
    subject.open(file).observe()


@rule(
    "FEAT-018",
    section="1.1",
    tier=LITERAL,
    binds=READER,
    quote="未知的**头部 JSON** 字段被忽略（增量式演进）",
    draw={"file": sampled_from(File("plain").edited(f"header.{path}", value) for path, value in UNKNOWN)},
    bugs=("foundation-model-stack/fastsafetensors#89", "CVE-2026-34445"),
)
def unknown_header_fields_are_ignored_at_every_level(subject: Subject, file: File) -> None:
    """The format grows by adding fields; nothing else may change because of one."""
    subject.must_say(file, file.tensors)
    if "verify" in subject.hello.operations:
        subject.verify(file).must_be_sound()


untested(
    "FEAT-019",
    quote="破坏性变更只通过特性位或 `version` 递增来引入",
    because="a promise about future revisions of the text, not about any program",
)
