"""A file as the checks see it: its bytes, and what has been understood of them so far.

Law: nothing here judges, and nothing here can fail on bytes that the checks before it let pass. Slices clip, as Python's
do; the checks are what makes that never happen.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from cmfspec.format.directory import Directory, parse_directory
from cmfspec.format.header import HEADER_RULES, strict_object
from cmfspec.layout import (
    DIR_HEAD_SIZE,
    ENVELOPE,
    ENVELOPE_SIZE,
    ENVELOPE_STRUCT,
    MANDATORY,
    MASKS_HEAD_SIZE,
    OPTIONAL,
)

# What can be wrong with the JSON of the masks section, and the rule that it breaks; where the text leaves it open for the
# header, it leaves it open here.
_OPEN = ("duplicate", "surrogate", "digits", "depth")
META_RULES = {what: rule if what in _OPEN else "MASK-001" for what, rule in HEADER_RULES.items()}


class View:
    """The bytes of one file with the envelope taken apart. Everything further is computed when asked for."""

    def __init__(self, buffer: bytes | memoryview) -> None:
        self.buffer = memoryview(buffer)
        self.size = len(self.buffer)

    @cached_property
    def envelope(self) -> dict[str, int]:
        """Field name to value (§1); `magic` as a little-endian integer. Short files read as if zero-filled."""
        head = bytes(self.buffer[:ENVELOPE_SIZE]).ljust(ENVELOPE_SIZE, b"\0")
        return dict(zip((field.name for field in ENVELOPE), ENVELOPE_STRUCT.unpack(head), strict=True))

    def span(self, section: str) -> tuple[int, int]:
        """(off, len) of a section as the envelope has them."""
        return self.envelope[f"{section}_off"], self.envelope[f"{section}_len"]

    def present(self, section: str) -> bool:
        """An optional section is absent iff its offset is 0 (§1); an empty one is no different."""
        off, length = self.span(section)
        return section not in OPTIONAL or (off != 0 and length != 0)

    def part(self, section: str) -> memoryview:
        """The bytes of a section; none if it is absent."""
        off, length = self.span(section)
        return self.buffer[off : off + length] if self.present(section) else self.buffer[:0]

    @cached_property
    def header(self) -> dict[str, Any]:
        """The header JSON (§2). Raises Parse."""
        return strict_object(self.part("header"), "header", self.span("header")[0])

    @cached_property
    def directory(self) -> Directory:
        """The tensor directory (§3)."""
        return parse_directory(self.part("dir"), self.span("dir")[0], self.span("data")[1])

    def dir_head(self) -> tuple[int, int]:
        """(count, pool_off) of the directory."""
        raw = bytes(self.part("dir")[:DIR_HEAD_SIZE])
        return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    def masks_head(self) -> tuple[int, int]:
        """(n_masks, meta_len) of the masks section (§5)."""
        raw = bytes(self.part("masks")[:MASKS_HEAD_SIZE])
        return int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:], "little")

    @cached_property
    def masks_meta(self) -> dict[str, Any]:
        """The JSON meta of the masks section (§5.1). Raises Parse."""
        meta_len = self.masks_head()[1]
        raw = self.part("masks")[MASKS_HEAD_SIZE : MASKS_HEAD_SIZE + meta_len]
        return strict_object(raw, "masks.meta", self.span("masks")[0] + MASKS_HEAD_SIZE, META_RULES)


ADDRESSED = (*MANDATORY, "data", *OPTIONAL)
