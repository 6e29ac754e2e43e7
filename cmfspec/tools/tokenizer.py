"""The tokenizer of a Hugging Face folder: the vocab section (§6) and `header.tokenizer_config` (§6.1).

Law: tokenizer.json goes in byte for byte, once it is known to be whole JSON. The template is chat_template.jinja's, else
tokenizer_config.json's. The ids that stop are those of generation_config.json, else of config.json, in their order, and
the id of the tokenizer's own eos_token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmfspec.tools.unpackable import JsonFile, Unpackable, content, json_file, shown

TOKENIZER, SETTINGS, GENERATION, TEMPLATE = (
    "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
)  # fmt: skip
OTHER_FORMS = ("tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "tekken.json")
DEFAULT = "default"  # of several named templates


@dataclass(frozen=True)
class Tokenizer:
    """vocab: the bytes of tokenizer.json, empty where there is none; config: the header's block, None if it would say
    nothing; remarks: what whoever packs should know."""

    vocab: bytes
    config: dict[str, Any] | None
    remarks: tuple[str, ...]


def tokenizer_of(folder: Path, config: JsonFile, vocab_size: int) -> Tokenizer:
    """The tokenizer of a folder. config: its config.json. Raises Unpackable."""
    there = {
        name for name in (TOKENIZER, SETTINGS, GENERATION, TEMPLATE, *OTHER_FORMS) if os.path.lexists(folder / name)
    }
    if TOKENIZER not in there and (found := sorted(there & set(OTHER_FORMS))):
        raise Unpackable(folder, "tokenizer", ", ".join(found), f"{TOKENIZER}: the format holds no other form")
    vocab = content(folder / TOKENIZER) if TOKENIZER in there else b""
    remarks = () if vocab else (f"no {TOKENIZER} in the source: the file has no vocab section",)
    parsed = _parsed(folder / TOKENIZER, vocab) if vocab else {}
    settings = json_file(folder / SETTINGS) if SETTINGS in there else None
    sources = [json_file(folder / GENERATION)] if GENERATION in there else []
    sources.append(config)
    block: dict[str, Any] = {
        "chat_template": _template(folder, settings, TEMPLATE in there),
        "eos_token_ids": _stops(sources, settings, parsed, vocab_size),
        "bos_token_id": _single("bos_token_id", sources, vocab_size),
        "pad_token_id": _single("pad_token_id", sources, vocab_size),
    }
    says = any(value not in (None, []) for value in block.values())
    return Tokenizer(vocab, block if says else None, remarks)


def _parsed(path: Path, raw: bytes) -> dict[str, Any]:
    """tokenizer.json, read as leniently as its own library reads it: it is carried, not judged."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Unpackable(path, f"line {getattr(error, 'lineno', '?')}", getattr(error, "msg", error), "JSON") from None
    if not isinstance(value, dict):
        raise Unpackable(path, "line 1", f"a JSON {type(value).__name__}", "an object")
    return value


def _template(folder: Path, settings: JsonFile | None, own_file: bool) -> str | None:
    if own_file:
        try:
            return content(folder / TEMPLATE).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unpackable(folder / TEMPLATE, f"byte {error.start}", "no UTF-8", "UTF-8") from None
    template = settings.value.get("chat_template") if settings else None
    if isinstance(template, list):
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get(DEFAULT, named)
    if template is not None and not isinstance(template, str):
        raise (
            settings.bad("chat_template", shown(template), "a template, or one named default")
            if settings
            else ValueError
        )
    return template


def _ids(file: JsonFile, key: str, vocab_size: int) -> list[int]:
    """The id or ids under a key, or under the same key of text_config; none if there are none."""
    nested = file.value.get("text_config")
    found = file.value.get(key, nested.get(key) if isinstance(nested, dict) else None)
    listed = [] if found is None else found if isinstance(found, list) else [found]
    for one in listed:
        if type(one) is not int or not 0 <= one < vocab_size:
            raise file.bad(key, shown(one), f"an id below vocab_size, {vocab_size}")
    return listed


def _single(key: str, sources: list[JsonFile], vocab_size: int) -> int | None:
    return next((ids[0] for file in sources if (ids := _ids(file, key, vocab_size))), None)


def _stops(
    sources: list[JsonFile], settings: JsonFile | None, tokenizer: Mapping[str, Any], vocab_size: int
) -> list[int]:
    stops = next((ids for file in sources if (ids := _ids(file, "eos_token_id", vocab_size))), [])
    token = settings.value.get("eos_token") if settings else None
    text = token.get("content") if isinstance(token, dict) else token
    if text is not None and settings is not None and not isinstance(text, str):
        raise settings.bad("eos_token", shown(token), "a token")
    own = _id_of(text, tokenizer) if text and tokenizer else None
    if own is not None and not 0 <= own < vocab_size and settings is not None:
        raise settings.bad("eos_token", f"{shown(text)}, {own}", f"an id below vocab_size, {vocab_size}")
    return list(dict.fromkeys([*stops, *([] if own is None else [own])]))


def _id_of(text: str, tokenizer: Mapping[str, Any]) -> int | None:
    """The id of a token, as tokenizer.json has it: added, or in the vocabulary, which is a mapping or a list."""
    added = tokenizer.get("added_tokens")
    for one in added if isinstance(added, list) else ():
        if isinstance(one, dict) and one.get("content") == text and type(one.get("id")) is int:
            return int(one["id"])
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        found = vocab.get(text)
        return found if type(found) is int else None
    pairs = vocab if isinstance(vocab, list) else []
    return next((place for place, pair in enumerate(pairs) if isinstance(pair, list) and pair[:1] == [text]), None)
