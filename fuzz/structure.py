"""Mutations of whole files and of their parts: everything here knows where the fields are, and none of it believes them.

Law: bytes in, bytes out, following the dice alone, whatever the bytes are. A part that no longer fits where it was is put at
the end of the file, where the envelope then points; hashes are repaired, so that a reader which checks them gets to its
parser, except now and then. A field named in `without` is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random

from cmfspec.codecs import CODECS
from cmfspec.format.hash64 import hash64
from cmfspec.layout import (
    DIR_HEAD,
    DIR_HEAD_SIZE,
    ENVELOPE,
    ENVELOPE_AT,
    ENVELOPE_SIZE,
    INDEX_ENTRY,
    INDEX_HEAD,
    INDEX_HEAD_SIZE,
    MASKS_HEAD,
    MASKS_HEAD_SIZE,
    MAX_NDIM,
    OPTIONAL,
    RECORD,
    RECORD_SIZE,
    SECTIONS,
    TENSOR_ALIGN,
    Field,
    align,
)
from fuzz.havoc import havoc, nasty
from fuzz.jsontext import json_bytes
from golden.recipes import entry

DIMS = (0, 1, 3, 2**16, 2**16, 2**31, 2**31, 2**32 - 1)
LONGEST = 1 << 15  # bytes of a file that is still given a part at its end
FIELD_AT = {field.name: field for field in RECORD}
NAMES = (
    b"",
    b"w",
    b"w.\xc3\xa9",
    b"\xff\xfe",
    b"a\xc0\x80b",
    b"\x00",
    b"w" * 300,
    b"model.norm.weight",
    b"\xed\xa0\x80",
)
_HEX = re.compile(rb'"(masks|vocab|index)"\s*:\s*"[0-9a-fA-F]{16}"')

Part = Callable[[Random, bytes, Sequence[bytes]], bytes]  # (dice, part, parts of that kind) -> part


def _read(raw: bytes | bytearray, at: int, width: int) -> int:
    return int.from_bytes(raw[at : at + width], "little")


def _write(raw: bytearray, at: int, width: int, value: int) -> None:
    raw[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def set_number(dice: Random, raw: bytearray, at: int, width: int) -> None:
    """The number there becomes a nasty one."""
    _write(raw, at, width, nasty(dice, width, _read(raw, at, width)))


def _set_one(dice: Random, raw: bytearray, fields: Sequence[tuple[Field, int]]) -> None:
    """One of the fields becomes nasty, or what another one is. fields: (field, base)."""
    (chosen, base), (other, there) = dice.choice(fields), dice.choice(fields)
    right = _read(raw, base + chosen.offset, chosen.width)
    copied = dice.randrange(6) == 0
    value = _read(raw, there + other.offset, other.width) if copied else nasty(dice, chosen.width, right)
    _write(raw, base + chosen.offset, chosen.width, value)


# --- parts -------------------------------------------------------------------------------------------------------


def directory(dice: Random, raw: bytes, others: Sequence[bytes] = (), without: frozenset[str] = frozenset()) -> bytes:
    """A directory: its head, its records, its names, how many there are."""
    count = (len(raw) - DIR_HEAD_SIZE) // RECORD_SIZE
    count = min(count, _read(raw, 0, 8)) if len(raw) >= DIR_HEAD_SIZE else 0
    out = bytearray(raw)
    kind = dice.randrange(12)
    if len(raw) < DIR_HEAD_SIZE or kind == 0:
        return havoc(dice, raw, others)
    records = range(DIR_HEAD_SIZE, DIR_HEAD_SIZE + RECORD_SIZE * count, RECORD_SIZE)
    heads = [(field, 0) for field in DIR_HEAD if f"dir.{field.name}" not in without]
    fields = [(field, at) for at in records for field in RECORD if field.name not in without]
    if kind < 3 or not count:
        if heads:
            _set_one(dice, out, heads if dice.randrange(2) or not fields else [*heads, *fields])
    elif kind < 6:
        for _ in range(1 + dice.randrange(2)):
            _set_one(dice, out, fields)
    elif kind == 6:  # a record twice, out, or in the place of another
        here, there = dice.choice(records), dice.choice(records)
        out[there : there + RECORD_SIZE] = raw[here : here + RECORD_SIZE]
    elif kind < 10:
        _shape(dice, out, dice.choice(records), without)
    else:
        return _renamed(dice, raw, count)
    return bytes(out)


def _shape(dice: Random, out: bytearray, at: int, without: frozenset[str]) -> None:
    """Other dimensions, often with the same number of elements."""
    if not without.isdisjoint({"shape0", "ndim"}):
        return
    dims = [_read(out, at + 8 + 4 * axis, 4) for axis in range(MAX_NDIM)]
    used = min(out[at + FIELD_AT["ndim"].offset], MAX_NDIM)
    dims = dims[:used]
    kind = dice.randrange(5)
    if kind == 0:
        dice.shuffle(dims)
    elif kind == 1:
        dims = [dice.choice(DIMS) for _ in range(dice.randrange(MAX_NDIM + 1))]
    elif kind == 2 and dims:
        dims.insert(dice.randrange(len(dims) + 1), 1)
    elif kind == 3 and dims:
        axis = dice.randrange(len(dims))
        dims[axis : axis + 1] = [dims[axis] // 2, 2]
    elif dims:
        dims[dice.randrange(len(dims))] = dice.choice((0, 16, 31, 33, 64, 96))
    dims = dims[:MAX_NDIM]
    codec = CODECS.get(out[at + FIELD_AT["dtype"].offset])
    if (
        dice.randrange(2) and codec and codec.nbytes and "nbytes" not in without
    ):  # what a reader that wraps would expect
        total = prod(dims) % 2**64
        size = int(codec.nbytes(total, *(dims if len(dims) == 2 else (1, total)))) % 2**64
        if size <= LONGEST:
            _write(out, at + FIELD_AT["nbytes"].offset, 8, size)
    out[at + FIELD_AT["ndim"].offset] = len(dims)
    for axis, dim in enumerate((*dims, *[0] * (MAX_NDIM - len(dims)))):
        _write(out, at + 8 + 4 * axis, 4, dim)


def _renamed(dice: Random, raw: bytes, count: int) -> bytes:
    """The same records with another name in the pool for one of them."""
    out = bytearray(raw)
    at = DIR_HEAD_SIZE + RECORD_SIZE * dice.randrange(count)
    pool_off = _read(raw, 8, 8)
    name = dice.choice(NAMES) if dice.randrange(2) else havoc(dice, raw[pool_off:][:40] or b"w")[:300]
    _write(out, at + FIELD_AT["name_off"].offset, 4, max(0, len(raw) - pool_off))
    _write(out, at + FIELD_AT["name_len"].offset, 2, len(name))
    return bytes(out) + name


def masks(dice: Random, raw: bytes, others: Sequence[bytes] = (), without: frozenset[str] = frozenset()) -> bytes:
    """A masks section: its head, its JSON, its bits."""
    kind = dice.randrange(8)
    if len(raw) < MASKS_HEAD_SIZE or kind == 0:
        return havoc(dice, raw, others)
    out = bytearray(raw)
    meta_len = min(_read(raw, 4, 4), len(raw) - MASKS_HEAD_SIZE)
    if kind < 3:
        heads = [(field, 0) for field in MASKS_HEAD if field.name not in without]
        if heads:
            _set_one(dice, out, heads)
    elif kind < 7:
        metas = [other[MASKS_HEAD_SIZE : MASKS_HEAD_SIZE + _read(other, 4, 4)] for other in others]
        meta = json_bytes(dice, raw[MASKS_HEAD_SIZE : MASKS_HEAD_SIZE + meta_len], metas)
        if len(meta) <= meta_len:
            meta = meta.ljust(meta_len)  # blanks behind JSON are JSON: the blobs stay where they are
        _write(out, 4, 4, len(meta))
        return bytes(out[:MASKS_HEAD_SIZE]) + meta + bytes(out[MASKS_HEAD_SIZE + meta_len :])
    elif len(raw) > MASKS_HEAD_SIZE + meta_len:
        out[dice.randrange(MASKS_HEAD_SIZE + meta_len, len(raw))] ^= 1 << dice.randrange(8)
    return bytes(out)


def index(dice: Random, raw: bytes, others: Sequence[bytes] = (), without: frozenset[str] = frozenset()) -> bytes:
    """A sparse index: its head, its entries, what lies in them."""
    if len(raw) < INDEX_HEAD_SIZE + INDEX_ENTRY[-1].offset + 4 or dice.randrange(6) == 0:
        return havoc(dice, raw, others)
    out = bytearray(raw)
    bases, at = [], INDEX_HEAD_SIZE
    for _ in range(min(_read(raw, 0, 4), 16)):
        if at + INDEX_ENTRY[-1].offset + 4 > len(raw):
            break
        bases.append(at)
        groups, heads = _read(raw, at + 8, 4), _read(raw, at + 12, 4)
        at = align(at + 16 + 2 * groups + heads, 4)
    fields = [*((field, 0) for field in INDEX_HEAD), *((field, base) for base in bases for field in INDEX_ENTRY)]
    left = [(field, base) for field, base in fields if field.name not in without]
    if left:
        _set_one(dice, out, left)
    return bytes(out)


def anything(dice: Random, raw: bytes, others: Sequence[bytes] = ()) -> bytes:
    """A part of which nothing is known."""
    return havoc(dice, raw, others)


PARTS: Mapping[str, Part] = {
    "header": json_bytes, "dir": directory, "masks": masks, "vocab": json_bytes, "index": index, "data": anything,
}  # fmt: skip
FIELDED = {"dir": directory, "masks": masks, "index": index}  # those that have fields to be left alone
FIELDS = frozenset(
    (
        *(field.name for field in (*ENVELOPE, *RECORD, *MASKS_HEAD, *INDEX_HEAD, *INDEX_ENTRY)),
        "dir.count",
        "dir.pool_off",
    )
)


# --- whole files -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutator:
    """Mutates files. without: names of fields (of the envelope, `dir.count`, of a record) that are left alone;
    repaired: of how many, one keeps its wrong hashes."""

    without: frozenset[str] = field(default_factory=frozenset)
    repaired: int = 8

    def __call__(self, dice: Random, content: bytes, others: Sequence[bytes] = ()) -> bytes:
        """`content`, changed in one or two ways."""
        out = content
        for _ in range(1 + (dice.randrange(4) == 0)):
            out = self._change(dice, out, others)
        if dice.randrange(self.repaired):
            return repaired(out)
        return out

    def _change(self, dice: Random, content: bytes, others: Sequence[bytes]) -> bytes:
        kind = dice.randrange(32)
        if len(content) < ENVELOPE_SIZE or kind == 0:
            return havoc(dice, content, others, LONGEST)
        if kind < 5:
            return self._envelope(dice, content)
        if kind < 14:
            return self._part(dice, content, others, "dir")
        if kind < 20:
            return self._part(dice, content, others, "header")
        if kind < 24:
            return self._part(dice, content, others, dice.choice(OPTIONAL))
        if kind < 27:
            return self._payload(dice, content)
        if kind < 29:
            return self._tensor(dice, content)
        if kind < 31 and others:
            return _transplanted(dice, content, dice.choice(others))
        if dice.randrange(8) == 0:
            return content[: dice.randrange(len(content))]
        return content[: -1 - dice.randrange(64)] if dice.randrange(2) else content + dice.randbytes(dice.randrange(64))

    def _envelope(self, dice: Random, content: bytes) -> bytes:
        """A field, or two that belong together: absent, at the end of the file, upon another section."""
        out = bytearray(content)
        fields = [(field, 0) for field in ENVELOPE if field.name not in self.without]
        if dice.randrange(3):
            _set_one(dice, out, fields)
            return bytes(out)
        section, other = dice.choice(SECTIONS), dice.choice(SECTIONS)
        there = _read(out, ENVELOPE_AT[f"{other}_off"], 8), _read(out, ENVELOPE_AT[f"{other}_len"], 8)
        size = len(content)
        pairs = ((0, 0), (size, 0), (size, 16), (size - 16, 17), (2**64 - 8, 16), there, (0, 16), (4096, 2**64 - 4096))
        for end, value in zip(("off", "len"), dice.choice(pairs), strict=True):
            if f"{section}_{end}" not in self.without:
                _write(out, ENVELOPE_AT[f"{section}_{end}"], 8, value)
        return bytes(out)

    def _part(self, dice: Random, content: bytes, others: Sequence[bytes], section: str) -> bytes:
        raw = part(content, section)
        same = [part(dice.choice(others), section)] if others else []
        if not raw and section in OPTIONAL:
            raw = same[0] if same else b""
        fielded = FIELDED.get(section)
        new = fielded(dice, raw, same, self.without) if fielded else PARTS[section](dice, raw, same)
        return placed(content, section, new)

    def _payload(self, dice: Random, content: bytes) -> bytes:
        """Bytes of the blob, most of them where a payload begins or ends."""
        out = bytearray(content)
        at, size, hash_at = _payload_of(dice, content)
        if size <= 0 or at >= len(out):
            return content
        size = min(size, len(out) - at)
        edge = dice.randrange(min(size, 96))
        where = at + dice.choice((edge, size - 1 - edge, dice.randrange(size)))
        width = min(dice.choice((1, 1, 2, 4)), len(out) - where)
        set_number(dice, out, where, width)
        if hash_at and dice.randrange(self.repaired):
            _write(out, hash_at, 8, hash64(bytes(out[at : at + size])))
        return bytes(out)

    def _tensor(self, dice: Random, content: bytes) -> bytes:
        """One tensor becomes another one, of any encoding and geometry, with a payload that is right for it."""
        raw = bytearray(part(content, "dir"))
        count = min(_read(raw, 0, 8), (len(raw) - DIR_HEAD_SIZE) // RECORD_SIZE) if len(raw) > DIR_HEAD_SIZE else 0
        if count <= 0 or len(content) > LONGEST:
            return content
        codec = dice.choice([*CODECS.values()])
        shape = (dice.randint(1, 6), 32 * dice.randint(1, 3))
        new = entry("w", codec.name, shape, str(dice.randrange(64)))
        data_off = _read(content, ENVELOPE_AT["data_off"], 8)
        if data_off > len(content):
            return content
        off = align(len(content) - data_off, TENSOR_ALIGN)
        out = bytearray(content) + bytes(data_off + off - len(content)) + new.payload
        at = DIR_HEAD_SIZE + RECORD_SIZE * dice.randrange(count)
        values = {"dtype": new.dtype, "ndim": 2, "shape0": shape[0], "shape1": shape[1], "off": off}
        values |= {"nbytes": len(new.payload), "hash": hash64(new.payload)}
        for name, value in values.items():
            _write(raw, at + FIELD_AT[name].offset, FIELD_AT[name].width, value)
        _write(out, ENVELOPE_AT["data_len"], 8, off + len(new.payload))
        if codec.feature is not None:
            bits = _read(out, ENVELOPE_AT["required_features"], 4) | 1 << codec.feature
            _write(out, ENVELOPE_AT["required_features"], 4, bits)
        return placed(bytes(out), "dir", bytes(raw))


def part(content: bytes, section: str) -> bytes:
    """What the envelope calls that section, as far as it is there."""
    off, size = (_read(content, ENVELOPE_AT[f"{section}_{end}"], 8) for end in ("off", "len"))
    return content[off : off + size] if off < len(content) and size else b""


def placed(content: bytes, section: str, raw: bytes) -> bytes:
    """The file with that section: where it was if it fits, else at the end, if the file is not too long already."""
    out = bytearray(content)
    off, size = (_read(out, ENVELOPE_AT[f"{section}_{end}"], 8) for end in ("off", "len"))
    if off < ENVELOPE_SIZE or off > len(out) or len(raw) > size:
        if len(out) + len(raw) > LONGEST:
            return content
        if off + size == len(out) and off >= ENVELOPE_SIZE:
            del out[off:]
        off = len(out)
        _write(out, ENVELOPE_AT[f"{section}_off"], 8, off)
    out[off : off + len(raw)] = raw
    _write(out, ENVELOPE_AT[f"{section}_len"], 8, len(raw))
    return bytes(out)


def repaired(content: bytes) -> bytes:
    """The file with each hash of a section that it has made right; those of tensors are made with the tensors."""
    if len(content) < ENVELOPE_SIZE:
        return content
    out = bytearray(content)
    spans = {name: tuple(_read(out, ENVELOPE_AT[f"{name}_{end}"], 8) for end in ("off", "len")) for name in SECTIONS}
    for name in ("dir", "header"):
        off, size = spans[name]
        if off + size > len(out):
            continue
        if name == "header" and any(spans[section][0] for section in OPTIONAL):
            out[off : off + size] = _HEX.sub(lambda found: _hash_of(content, found), bytes(out[off : off + size]))
        at = ENVELOPE_AT[f"{name}_hash"]
        if any(out[at : at + 8]):
            _write(out, at, 8, hash64(bytes(out[off : off + size])))
    return bytes(out)


def _hash_of(content: bytes, found: re.Match[bytes]) -> bytes:
    return found[0][:-17] + b"%016x" % hash64(part(content, found[1].decode())) + b'"'


def _payload_of(dice: Random, content: bytes) -> tuple[int, int, int]:
    """(where, how long, where its hash stands) of a payload by the directory; of the blob, which has no hash: 0."""
    raw = part(content, "dir")
    data_off, data_len = (_read(content, ENVELOPE_AT[f"data_{end}"], 8) for end in ("off", "len"))
    count = min(_read(raw, 0, 8), (len(raw) - DIR_HEAD_SIZE) // RECORD_SIZE) if len(raw) > DIR_HEAD_SIZE else 0
    if count <= 0:
        return data_off, data_len, 0
    at = DIR_HEAD_SIZE + RECORD_SIZE * dice.randrange(count)
    off, size = (_read(raw, at + FIELD_AT[name].offset, 8) for name in ("off", "nbytes"))
    return data_off + off, size, _read(content, ENVELOPE_AT["dir_off"], 8) + at + FIELD_AT["hash"].offset


def _transplanted(dice: Random, content: bytes, other: bytes) -> bytes:
    """A section of another file, in this one."""
    return placed(content, section := dice.choice(("header", "dir", *OPTIONAL)), part(other, section))
