"""The hash chain (§8.1): envelope → header and directory → sections, and each tensor.

Law: verify says what does not match and where; it never repairs and never stops at the first. A hash of zero in the
envelope, and a section without an entry, are «absent» and pass; a tensor's hash is never absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.errors import Refusal
from cmfspec.format.container import Container, Tensor
from cmfspec.format.hash64 import hash64, hash64_ranges
from cmfspec.layout import HASH_DIGITS, OPTIONAL

_HEX = re.compile(rf"[0-9a-fA-F]{{{HASH_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not match. where: header, dir, masks, vocab, index, section_hashes or tensor; index: the
    tensor's place; kind: `hash` or `malformed`, and of `unfit`: `payload` or `values`; offset: of what is damaged, in bytes
    from the start of the file."""

    where: str
    index: int | None
    kind: str
    offset: int
    found: str
    wanted: str

    def __str__(self) -> str:
        place = self.where if self.index is None else f"{self.where} {self.index}"
        return f"{place} at 0x{self.offset:x}: {self.kind}: found {self.found}, wanted {self.wanted}"


def verify(container: Container) -> Iterator[Problem]:
    """Every problem of a file that opens (§8.1); none means sound."""
    yield from _envelope(container)
    yield from _sections(container)
    records, base = container.view.directory.records, container.view.span("data")[0]
    data = container.view.part("data")
    starts = np.minimum(records["off"], len(data))  # one of no bytes may lie past the end
    sizes = np.minimum(records["nbytes"], len(data) - starts)
    found = hash64_ranges(data, starts.astype(np.int64), sizes.astype(np.int64))
    for index, (got, wanted) in enumerate(zip(found, records["hash"].tolist(), strict=True)):
        if got != wanted:
            tensor: Tensor = container[index]
            yield Problem("tensor", index, "hash", base + tensor.off, _hex(got), f"{_hex(wanted)} ({tensor.name})")


def unfit(container: Container) -> Iterator[Problem]:
    """Every tensor that no model can use though its hash may be right: a payload that lies, weights that are not finite.

    Decodes all, one at a time. Encodings that hold no weights (u8 and the reserved ones, §3.1) are passed over.
    """
    base = container.view.span("data")[0]
    for tensor in container:
        if tensor.dtype not in CODECS or tensor.dtype_name == "u8":
            continue
        try:
            values = container.values(tensor.index)
        except Refusal as error:
            fault = error.fault
            wanted = f"{fault.wanted} ({tensor.name}) [{fault.rule}]"
            yield Problem("tensor", tensor.index, "payload", fault.offset or base + tensor.off, fault.found, wanted)
            continue
        wrong = ~np.isfinite(values)
        if wrong.any():
            first = np.unravel_index(int(wrong.argmax()), values.shape)
            place = [int(at) for at in first]
            found = f"{int(wrong.sum())} of {values.size} weights not finite, the first {values[first]} at {place}"
            yield Problem("tensor", tensor.index, "values", base + tensor.off, found, f"finite weights ({tensor.name})")


def unprotected(container: Container) -> list[str]:
    """The parts that are present and that no hash covers: legal in old files, worth saying."""
    hashes = container.header.get("section_hashes")
    listed = hashes if isinstance(hashes, dict) else {}
    parts = [part for part in ("header", "dir") if not container.view.envelope[f"{part}_hash"]]
    return parts + [section for section in container.sections if listed.get(section) is None]


def _envelope(container: Container) -> Iterator[Problem]:
    for part in ("header", "dir"):
        wanted = container.view.envelope[f"{part}_hash"]
        got = hash64(container.view.part(part))
        if wanted and got != wanted:
            yield Problem(part, None, "hash", container.view.span(part)[0], _hex(got), _hex(wanted))


def _sections(container: Container) -> Iterator[Problem]:
    hashes = container.header.get("section_hashes")
    if hashes is None:
        return
    base = container.view.span("header")[0]
    if not isinstance(hashes, dict):
        yield Problem("section_hashes", None, "malformed", base, f"a JSON {type(hashes).__name__}", "an object")
        return
    for section in OPTIONAL:
        entry = hashes.get(section)
        if entry is None:
            continue
        if not isinstance(entry, str) or not _HEX.fullmatch(entry):
            found = f"{section}: {ascii(entry)[:40]}"
            yield Problem("section_hashes", None, "malformed", base, found, f"{HASH_DIGITS} hex digits in a string")
        elif container.view.present(section):
            got = hash64(container.view.part(section))
            if got != int(entry, 16):
                yield Problem(section, None, "hash", container.view.span(section)[0], _hex(got), entry)


def _hex(value: int) -> str:
    return f"{value:0{HASH_DIGITS}x}"
