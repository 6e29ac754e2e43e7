"""§2, the header JSON: one JSON object in UTF-8, and fields that a reader may not trip over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cmfspec.contract.rule import (
    DERIVED,
    LITERAL,
    NEWER_TEXT,
    OBSERVATION,
    READER,
    SHOULD,
    VERIFIER,
    rule,
    untested,
)
from cmfspec.contract.subject import Subject
from conformance.draws import lies, sampled_from
from golden.files import File
from golden.recipes import ARCH, HEADER

UTF8_JSON = "UTF-8 JSON，不对齐。"
BY_THE_DIRECTORY = "truth = per-tensor dtype in the directory"
FREE_FORM = "optional, free-form"
KEYS = (
    "format",
    "version",
    "arch.arch_name",
    "arch.hidden_size",
    "arch.num_layers",
    "arch.rms_norm_eps",
    "arch.layer_types.0",
    "arch.layer_types.1",
    "arch.tie_word_embeddings",
    "quant_type",
)


def _written(header: Mapping[str, Any], **how: Any) -> File:
    """`plain` with this header, written otherwise than we would."""
    return File("plain").edited("header.raw", json.dumps(dict(header), **how).encode().hex())


def _named(name: str, **how: Any) -> File:
    return _written({**HEADER, "arch": {**ARCH, "arch_name": name}}, **how)


RIGHT = json.dumps(HEADER, separators=(",", ":"))
WRITTEN = (
    _written(HEADER, indent=2),
    _written(HEADER, indent="\t"),
    _written(HEADER, separators=(" ,\r\n", " : ")),
    *(
        File("plain").edited("header.raw", (" " * before + RIGHT + " " * after).encode().hex())
        for before, after in ((0, 1), (0, 7), (1, 0), (3, 2), (0, 4096))
    ),
    File("plain").edited("header.raw", f"\n\t\r {RIGHT}\r\n".encode().hex()),
    _named("模型", ensure_ascii=False),
    _named("模型", ensure_ascii=True),
    _named("é\u0301 \U0001f600 \u2028", ensure_ascii=False),
    _named('\U0001f600\u0000\u001f"\\/\u007f', ensure_ascii=True),
    _written(dict(reversed([*HEADER.items()]))),
)


def _digits(number: str) -> File:
    return File("plain").edited(
        "header.raw", RIGHT.replace('"hidden_size":32', f'"hidden_size":{number}').encode().hex()
    )


def _repeated(key: str, first: str, header: str = RIGHT) -> File:
    return File("plain").edited(
        "header.raw", header.replace(f'"{key}":', f'"{key}":{first},"{key}":', 1).encode().hex()
    )


@rule(
    "HDR-001",
    section="2",
    tier=LITERAL,
    binds=READER,
    quote=UTF8_JSON,
    draw={"file": sampled_from(WRITTEN)},
    bugs=("promptfoo/modelaudit#1612",),
)
def a_header_is_json_however_it_is_written(subject: Subject, file: File) -> None:
    """White space, escapes, raw UTF-8, any order of keys, any length: all the same header."""
    subject.open(file).must_be_accepted(len(file.tensors))
    if "header" in subject.hello.operations:
        wanted = json.loads(bytes.fromhex(dict(file.edits)["header.raw"]))
        subject.header(file).must_have(wanted, KEYS)


@rule("HDR-002", section="2", tier=DERIVED, binds=READER, quote=UTF8_JSON, draw={"file": lies("HDR-002")})
def a_header_with_bytes_that_are_no_utf8_is_refused(subject: Subject, file: File) -> None:
    """Wherever they stand, in a field that is read or in one that is not."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule("HDR-003", section="2", tier=DERIVED, binds=READER, quote=UTF8_JSON, draw={"file": lies("HDR-003")})
def a_header_in_utf16_or_utf32_is_refused(subject: Subject, file: File) -> None:
    """Decoders that guess the encoding take it; the text names one encoding."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule("HDR-004", section="2", tier=DERIVED, binds=READER, quote=UTF8_JSON, draw={"file": lies("HDR-004")})
def nothing_stands_behind_the_json(subject: Subject, file: File) -> None:
    """header_len is the length of the JSON: what follows it there belongs to nobody."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule("HDR-005", section="2", tier=DERIVED, binds=READER, quote=UTF8_JSON, draw={"file": lies("HDR-005")})
def json_is_strict(subject: Subject, file: File) -> None:
    """No comments, no trailing commas, no NaN: the comments in the text's own example are for its reader."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule("HDR-006", section="2", tier=DERIVED, binds=READER, quote='"format": "cmf"', draw={"file": lies("HDR-006")})
def the_header_is_an_object(subject: Subject, file: File) -> None:
    """A list of its fields in the right order is not one, though some decoders think so."""
    subject.open(file.base).must_be_accepted()
    subject.open(file).must_refuse()


@rule(
    "HDR-007",
    section="2",
    tier=OBSERVATION,
    binds=READER,
    quote=UTF8_JSON,
    draw={
        "file": sampled_from(
            (
                _repeated("version", "1"),
                _repeated("hidden_size", "64"),
                _repeated("arch", "{}"),
                _repeated("zzz", "1", '{"zzz":2,' + RIGHT[1:]),
            )
        )
    },
    bugs=("safetensors/safetensors#401",),
)
def a_key_that_stands_twice(subject: Subject, file: File) -> None:
    """Two readers may read two models from one file; JSON itself only discourages it."""
    subject.open(file).observe()


@rule(
    "HDR-008",
    section="2",
    tier=OBSERVATION,
    binds=READER,
    quote=UTF8_JSON,
    draw={
        "file": sampled_from(
            File("plain").edited("header.raw", RIGHT.replace("qwen3.5", name).encode().hex())
            for name in ("\\ud800", "\\udc00\\ud800", "q\\uDFFFw")
        )
    },
)
def half_of_a_surrogate_pair(subject: Subject, file: File) -> None:
    """Such a string can't be written in UTF-8 at all."""
    subject.open(file).observe()


@rule(
    "HDR-009",
    section="2",
    tier=SHOULD,
    binds=VERIFIER,
    quote='"format": "cmf"',
    draw={"file": sampled_from(File("plain").edited("header.format", value) for value in ("gguf", "", None, 2))},
)
def a_header_that_names_another_format(subject: Subject, file: File) -> None:
    """The magic has said what the file is; a verifier may still wonder."""
    subject.verify(file).observe()


@rule(
    "HDR-010",
    section="2",
    tier=SHOULD,
    binds=VERIFIER,
    quote='"version": 2',
    draw={"file": sampled_from(File("plain").edited("header.version", value) for value in (1, 3, "2", None))},
)
def a_header_that_names_another_version(subject: Subject, file: File) -> None:
    """The envelope's version is what counts."""
    subject.verify(file).observe()


@rule(
    "HDR-012",
    section="2",
    tier=OBSERVATION,
    binds=READER,
    quote='"hidden_size": 5120',
    draw={
        "file": sampled_from(
            _digits(number)
            for number in (
                "32.0",
                '"32"',
                "-1",
                "3.2e1",
                "18446744073709551616",
                "1" * 400,
                "1e999",
                "null",
                "true",
                "0",
            )
        )
    },
)
def a_size_that_is_no_whole_number(subject: Subject, file: File) -> None:
    """What is made of 32.0 or 2^64 is nobody's rule; a crash would be."""
    subject.open(file).observe()


@rule(
    "HDR-016",
    section="2",
    tier=LITERAL,
    binds=READER,
    quote=BY_THE_DIRECTORY,
    draw={
        "file": sampled_from(
            File(name).edited("header.quant_type", value)
            for name in ("plain", "one:q8_row:3x40")
            for value in ("Q8_ROW", "Q4_BLOCK", "F16", "Q4_TILED", "q17_new", "")
        )
    },
    bugs=("amd/Quark#30",),
)
def the_directory_says_how_a_tensor_is_encoded(subject: Subject, file: File) -> None:
    """quant_type is for people: wrong or unknown, the values are the same."""
    subject.must_say(file, file.tensors)


@rule(
    "HDR-017",
    section="2",
    tier=LITERAL,
    binds=READER,
    quote=FREE_FORM,
    draw={
        "file": sampled_from(
            [
                File("plain").edited("header.provenance", value)
                for value in ({}, "a sentence", None, ["a", 1], 7, True, {"tool": 1, "deep": {"er": [None]}})
            ]
            + [_written({key: value for key, value in HEADER.items() if key != "provenance"})]
        )
    },
    bugs=("foundation-model-stack/fastsafetensors#89",),
)
def provenance_is_whatever_it_is(subject: Subject, file: File) -> None:
    """Optional, and of no prescribed form."""
    subject.open(file).must_be_accepted(len(file.tensors))


@rule(
    "HDR-024",
    section="10",
    tier=SHOULD,
    binds=READER,
    quote="tokenizer_config",
    draw={
        "key": sampled_from(
            ("tokenizer_config", "shard", "provenance", "section_hashes", "arch.moe", "arch.mtp", "skills", "zzz")
        )
    },
    bugs=("foundation-model-stack/fastsafetensors#89",),
)
def null_is_as_good_as_absent(subject: Subject, key: str) -> None:
    """Every shard but the first has `tokenizer_config: null` (§10); what holds for one block holds for others."""
    subject.open(File("plain").edited(f"header.{key}", None)).must_be_accepted()


@rule(
    "HDR-028",
    section="2",
    tier=OBSERVATION,
    binds=READER,
    quote=UTF8_JSON,
    draw={
        "file": sampled_from(
            File("plain").edited("header.raw", f'{{"zzz":{"[" * depth}{"]" * depth},{RIGHT[1:]}'.encode().hex())
            for depth in (60, 120, 130, 1000, 5000)
        )
    },
)
def a_header_of_many_levels(subject: Subject, file: File) -> None:
    """How deep is too deep is for each reader to say; a stack that overflows is no answer."""
    subject.open(file).observe()


for _identity in ("HDR-025", "HDR-026", "HDR-027"):
    untested(_identity, quote="已知家族的新模型可以在", because=NEWER_TEXT)
