"""§8, hash64; §8.1, the chain of hashes over header, directory, sections and tensors."""

from __future__ import annotations

from cmfspec.contract.answers import Verdict
from cmfspec.contract.outcome import NotApplicable, WrongValue
from cmfspec.contract.rule import DERIVED, LITERAL, OBSERVATION, VERIFIER, rule, untested
from cmfspec.contract.subject import Subject
from cmfspec.format.blueprint import Blueprint, canonical, to_json
from cmfspec.format.view import View
from cmfspec.layout import HASH_DIGITS, OPTIONAL
from conformance.draws import edited, sampled_from
from golden.files import File, Raw
from golden.recipes import HEADER, entry
from golden.vectors import HASH64, SALT_INSIDE

VECTORS = tuple(data.hex() for data in HASH64)
SHIFTS = tuple(
    File("full", (("tail", 8192), ("gap.dir", 64), ("gap.vocab", 64), (f"envelope.{name}", {"plus": by})))
    for name, steps in {
        "header_off": (1, -1, 8),
        "header_len": (-1, 1),
        "dir_off": (1, -1, 56),
        "dir_len": (-1, -56),
        "masks_off": (8, -8, 1),
        "masks_len": (-1,),
        "vocab_off": (1, -1, 8),
        "vocab_len": (-1, 1, 64),
        "index_off": (4, -4),
        "index_len": (-4, 4),
        "data_off": (4096, -4096),
    }.items()
    for by in steps
)
# What is made of the right digits; many of these are worth the right number to a lenient parser.
MALFORMED = (
    *("xyz", "", "{}0", "{}g", "{} {}", "0x{}", "0X{}", " {}", "{} ", "\t{}", "{}\n", "+{}", "0{}", "000{}", "{}h"),
)


@rule(
    "HASH-001",
    section="8",
    tier=LITERAL,
    binds=VERIFIER,
    quote="在 64 位 LE 字上做 murmur3 `fmix64`，带位置盐 `i·0x9E3779B97F4A7C15`，XOR 折叠、`xor len`、最终 `fmix64`。",
    draw={"data": sampled_from(VECTORS)},
    cases=32,
)
def hash64_is_what_the_vectors_say(subject: Subject, data: str) -> None:
    """The salt is outside fmix64, the last word is extended by zeros, and positions do not run out."""
    raw, want = bytes.fromhex(data), HASH64[bytes.fromhex(data)]
    asked = False
    if "hash64" in subject.hello.operations:
        asked = True
        got = subject.hash64(Raw(data))
        if got != want:
            raise WrongValue(f"{want:016x}", "no 16 hex digits" if got is None else f"{got:016x}")
    if "verify" in subject.hello.operations and raw and len(raw) % 2 == 0:
        asked = True
        tensor = {"name": "w", "dtype": 1, "shape": [len(raw) // 2], "payload": data}
        file = File(canonical({**to_json(Blueprint(HEADER)), "tensors": [tensor]}))
        subject.verify(file.edited("dir[0].hash", want)).must_be_sound()
        if raw in SALT_INSIDE:
            subject.verify(file.edited("dir[0].hash", SALT_INSIDE[raw])).must_report("tensor", 0)
    if not asked:
        raise NotApplicable("`hash64`, or a whole number of halves for `verify`", "neither")


@rule(
    "HASH-002",
    section="8",
    tier=LITERAL,
    binds=VERIFIER,
    quote="张量字节的非加密 64 位哈希",
    draw={"form": sampled_from(("file", "tensor"))},
)
def nothing_hashes_to_zero(subject: Subject, form: str) -> None:
    """No words and no length: fmix64(0) = 0, which is also the sentinel for «absent»."""
    if form == "file":
        subject.needs("hash64")
        got = subject.hash64(Raw(""))
        if got != 0:
            raise WrongValue("0000000000000000", "no 16 hex digits" if got is None else f"{got:016x}")
        return
    _hollow(subject).must_be_sound()


@rule(
    "HASH-003",
    section="8",
    tier=LITERAL,
    binds=VERIFIER,
    quote="用途：`cortiq verify`（损坏检测）、去重、缓存键。",
    draw={
        "index": sampled_from((0, 1, 2, 3)),
        "at": sampled_from((5, 6, 7, 8, 40, 61)),  # not a width of vbit: a reader may look at those when it opens
        "bit": sampled_from((0, 3, 7)),
    },
    cases=32,
)
def a_flipped_bit_in_a_tensor_is_found(subject: Subject, index: int, at: int, bit: int) -> None:
    """Named by its place in the directory, so that the damage can be repaired."""
    file = File("full")
    record = View(file.content()).directory.records[index]
    subject.verify(file).must_be_sound()
    subject.verify(
        file.edited("flip", ["data", int(record["off"]) + at % int(record["nbytes"]), 1 << bit])
    ).must_report("tensor", index)


@rule(
    "HASH-004",
    section="8",
    tier=OBSERVATION,
    binds=VERIFIER,
    quote="带位置盐 `i·0x9E3779B97F4A7C15`，XOR 折叠",
    draw={"length": sampled_from((16, 64))},
)
def swapped_words_keep_their_hash(subject: Subject, length: int) -> None:
    """A weakness of the format, not of a verifier: the salt is added after the mixing, so order is lost."""
    tensor = entry("w", "f16", (length // 2,))
    swapped = tensor.payload[8:16] + tensor.payload[:8] + tensor.payload[16:]
    file = File(canonical(to_json(Blueprint(HEADER, (tensor,)))))
    at = View(file.content()).span("data")[0]
    subject.verify(file.edited("put", [at, swapped.hex()])).observe()


@rule(
    "HASH-005",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote="信封保留区 `[0x70:0x78]` = hash64(header JSON)，`[0x78:0x80]` = hash64(directory)。",
    draw={
        "part": sampled_from(("header", "dir")),
        "place": sampled_from(tuple(range(16))),
        "mask": sampled_from((1, 0x20, 0x80)),
    },
    cases=64,
)
def damage_to_header_or_directory_is_found(subject: Subject, part: str, place: int, mask: int) -> None:
    """Or stops the file from opening: both count."""
    file = File("full")
    subject.verify(file).must_be_sound()
    length = View(file.content()).span(part)[1]
    subject.verify(file.edited("flip", [part, place * (length - 1) // 15, mask])).must_report(part, refusing=True)


@rule(
    "HASH-006",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote='零 = "缺失"（旧文件可通过）。',
    draw={"name": sampled_from(("plain", "full", "unprotected"))},
)
def a_hash_of_zero_in_the_envelope_means_absent(subject: Subject, name: str) -> None:
    """Old files have none and are sound."""
    subject.verify(File(name).edited("hashes", False)).must_be_sound()


@rule(
    "HASH-007",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote="头部 JSON 携带 `section_hashes` —— masks/vocab/index 的十六进制 hash64",
    draw={"section": sampled_from(OPTIONAL), "place": sampled_from((0, 1, 2, 3)), "mask": sampled_from((1, 0x10))},
)
def damage_to_a_section_is_found(subject: Subject, section: str, place: int, mask: int) -> None:
    """The header holds their hashes, and the envelope holds the header's."""
    file = File("full")
    subject.verify(file).must_be_sound()
    length = View(file.content()).span(section)[1]
    subject.verify(file.edited("flip", [section, place * (length - 1) // 3, mask])).must_report(section, refusing=True)


@rule(
    "HASH-008",
    section="8.1",
    tier=DERIVED,
    binds=VERIFIER,
    quote="masks/vocab/index 的十六进制 hash64（u64 若作为 JSON 数字，超过 2^53 会损失精度）",
    draw={"section": sampled_from(OPTIONAL), "text": sampled_from((*MALFORMED, "upper case"))},
    cases=48,
)
def a_section_hash_is_sixteen_hex_digits(subject: Subject, section: str, text: str) -> None:
    """What isn't hex protects nothing; capital digits are digits."""
    file = File("full")
    right = View(file.content()).header["section_hashes"]
    if text == "upper case":
        subject.verify(file.edited("header.section_hashes", {k: v.upper() for k, v in right.items()})).must_be_sound()
    else:
        wrong = {**right, section: text.replace("{}", right[section])}
        subject.verify(file.edited("header.section_hashes", wrong)).must_find_something()


@rule(
    "HASH-009",
    section="8.1",
    tier=OBSERVATION,
    binds=VERIFIER,
    quote="头部 JSON 携带 `section_hashes`",
    draw={"name": sampled_from(("unprotected",))},
)
def a_section_without_a_hash(subject: Subject, name: str) -> None:
    """Legal in old files."""
    subject.verify(File(name)).observe()


@rule(
    "HASH-010",
    section="8.1",
    tier=OBSERVATION,
    binds=VERIFIER,
    quote="头部 JSON 携带 `section_hashes`",
    draw={
        "file": edited("plain", "header.section_hashes", ({"vocab": "46abcca593a3c687"}, {"vocab": "0" * HASH_DIGITS}))
    },
)
def a_hash_of_a_section_that_is_absent(subject: Subject, file: File) -> None:
    """The public tools write such files."""
    subject.verify(file).observe()


@rule(
    "HASH-011",
    section="8.1",
    tier=OBSERVATION,
    binds=VERIFIER,
    quote='零 = "缺失"（旧文件可通过）。',
    draw={"file": edited("vocab", "header.section_hashes", ({"vocab": "0" * HASH_DIGITS},))},
)
def a_section_hash_of_zero(subject: Subject, file: File) -> None:
    """«Zero is absent» is said of the envelope only."""
    subject.verify(file).observe()


@rule(
    "HASH-012",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote="u64 若作为 JSON 数字，超过 2^53 会损失精度",
    draw={"section": sampled_from(OPTIONAL), "as_float": sampled_from((False, True))},
)
def a_section_hash_is_never_a_number(subject: Subject, section: str, as_float: bool) -> None:
    """Not even the right one: half of all JSON readers would have rounded it."""
    file = File("full")
    right = View(file.content()).header["section_hashes"]
    number: int | float = int(right[section], 16)
    wrong = file.edited("header.section_hashes", {**right, section: float(number) if as_float else number})
    subject.verify(wrong).must_find_something()


@rule(
    "HASH-013",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote="`cortiq verify` 检查整条链；单个被翻转的头部字节就是一个错误。",
    draw={"residue": sampled_from(range(16)), "mask": sampled_from((1, 0x80))},
    cases=32,
)
def any_flipped_header_byte_is_found(subject: Subject, residue: int, mask: int) -> None:
    """Each byte of the header, not a sample of them."""
    file = File("tiny")
    subject.verify(file).must_be_sound()
    for at in range(residue, View(file.content()).span("header")[1], 16):
        subject.verify(file.edited("flip", ["header", at, mask])).must_find_something()


@rule(
    "HASH-014",
    section="8",
    tier=LITERAL,
    binds=VERIFIER,
    quote="张量字节的非加密 64 位哈希",
    draw={"value": sampled_from((0, 1, 2**63))},
    bugs=("promptfoo/modelaudit#1607",),
)
def a_tensor_of_no_bytes_has_the_hash_zero(subject: Subject, value: int) -> None:
    """And any other is a mismatch. For verifiers whose reader takes such tensors."""
    if value == 0:
        _hollow(subject).must_be_sound()
        return
    _hollow(subject)
    subject.verify(File("hollow").edited("dir[1].hash", value)).must_report("tensor", 1)


untested(
    "HASH-015",
    quote="`cortiq verify` 检查整条链",
    because="binds command-line tools; HASH-003, HASH-005 and HASH-007 ask the same of any verifier",
)


@rule(
    "HASH-016",
    section="8.1",
    tier=LITERAL,
    binds=VERIFIER,
    quote="损坏的偏移量会被链条下游的边界/哈希捕获。",
    draw={"file": sampled_from(SHIFTS)},
    cases=40,
)
def a_shifted_offset_is_caught_down_the_chain(subject: Subject, file: File) -> None:
    """The envelope has no hash of its own: what it points at must not fit."""
    right = File(file.recipe, file.edits[:-1])
    subject.verify(right).must_be_sound()
    subject.verify(file).must_find_something()


def _hollow(subject: Subject) -> Verdict:
    """verify of a file with a tensor of no bytes. Raises NotApplicable for a reader that takes none (DIR-016)."""
    file = File("hollow")
    if not subject.open(file).accepted:
        raise NotApplicable("a reader of tensors without elements", "it refuses them, as it may")
    return subject.verify(file)
