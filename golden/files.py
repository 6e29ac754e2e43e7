"""A file as the argument of a case: a recipe or a blueprint, and edits; canonical JSON both ways.

Law: what a file *should* say (`tensors`) comes from the blueprint, never from a reader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from cmfspec.format.blueprint import Blueprint, Entry, canonical, from_json, to_json
from cmfspec.format.build import Edit, grown, lay, rewritten, seal, seals
from cmfspec.layout import ENVELOPE_AT, SECTIONS
from golden.recipes import recipe


@dataclass(frozen=True)
class File:
    """recipe: a name of golden.recipes, or the canonical JSON of a blueprint. edits: as in cmfspec.format.build."""

    recipe: str
    edits: tuple[Edit, ...] = ()

    @property
    def blueprint(self) -> Blueprint:
        """What the file holds before its edits."""
        return recipe(self.recipe) if not self.recipe.startswith("{") else _parsed(self.recipe)

    @property
    def base(self) -> File:
        """The same file without its edits: the control, one lie away."""
        return replace(self, edits=())

    def edited(self, path: str, value: Any) -> File:
        """The file with one more edit; an earlier one at the same path gives way."""
        return replace(
            self, edits=(*((p, v) for p, v in self.edits if p != path or p in ("flip", "put")), (path, value))
        )

    def with_feature_bit(self, bit: int) -> File:
        """The file with one more bit of required_features set."""
        present = int.from_bytes(self.base.content()[0x0C:0x10], "little")
        return self.edited("envelope.required_features", present | 1 << bit)

    def content(self) -> bytes:
        """The bytes of the file."""
        return self._content

    @cached_property
    def _content(self) -> bytes:
        """Most edits are made to the finished file: what they are made to is laid out once."""
        early = [edit for edit in self.edits if not seals(edit[0])]
        late = [edit for edit in self.edits if seals(edit[0])]
        return seal(_laid(self.recipe, canonical(early) if early else "[]"), late)

    @cached_property
    def tensors(self) -> tuple[Entry, ...]:
        """The tensors that a right reader finds: payloads and names as edited, growth included, other edits not."""
        edits = dict(self.edits)
        tensors = rewritten(self.blueprint.tensors, self.edits)
        names = [edits.get(f"dir[{index}].name") for index in range(len(tensors))]
        tensors = tuple(
            replace(entry, name=bytes.fromhex(name).decode("utf-8", "replace")) if name is not None else entry
            for entry, name in zip(tensors, names, strict=True)
        )
        growth = edits.get("grow")
        return grown(replace(self.blueprint, tensors=tensors), growth).tensors if growth else tensors

    def with_hole(self, size: int) -> Far:
        """The file with `size` bytes that take no space on disk between the directory and the blob."""
        return Far(self, size)

    def to_json(self) -> dict[str, Any]:
        """Canonical JSON node."""
        edits = {"edits": [list(edit) for edit in self.edits]} if self.edits else {}
        return {"recipe": self.recipe, **edits}

    @staticmethod
    def from_json(node: Mapping[str, Any]) -> File:
        """The file that `to_json` wrote."""
        return File(node["recipe"], tuple((path, value) for path, value in node.get("edits", ())))

    def inlined(self) -> File:
        """The same file with its blueprint spelt out, ready to be made smaller."""
        return replace(self, recipe=canonical(to_json(self.blueprint)))


@dataclass(frozen=True)
class Far:
    """A file whose blob and all behind it lie `size` bytes further on; size: a multiple of 4096."""

    file: File
    size: int

    def content(self) -> bytes:
        """The bytes without the hole; the envelope speaks of the whole."""
        content = bytearray(self.file.content())
        start = self.hole[0]
        for section in SECTIONS:
            at = ENVELOPE_AT[f"{section}_off"]
            off = int.from_bytes(content[at : at + 8], "little")
            if off >= start:
                content[at : at + 8] = (off + self.size).to_bytes(8, "little")
        return bytes(content)

    @property
    def hole(self) -> tuple[int, int]:
        """(where, how long): zeros to be put into the content, sparsely."""
        at = ENVELOPE_AT["data_off"]
        return int.from_bytes(self.file.content()[at : at + 8], "little"), self.size


@dataclass(frozen=True)
class Raw:
    """Bytes that are no container at all."""

    hex: str

    def content(self) -> bytes:
        """The bytes."""
        return bytes.fromhex(self.hex)


@lru_cache(maxsize=512)
def _parsed(text: str) -> Blueprint:
    return from_json(json.loads(text))


@lru_cache(maxsize=4096)  # a whole `certify`, for a run is often the second of two
def _laid(recipe: str, edits: str) -> bytes:
    return lay(File(recipe).blueprint, json.loads(edits))
