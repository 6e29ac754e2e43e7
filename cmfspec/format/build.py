"""Building files, right ones and wrong ones (all of §1 to §9).

Law: a `Blueprint` says what a file holds; `render` computes everything that follows from it (offsets, lengths, feature bits,
hashes) unless an edit says otherwise. A wrong file is a right one with one edit, and hashes are computed after the edit,
so that it reaches the check that it aims at. Edits, too, are JSON.

An edit is (path, value). A number may be given as `{"plus": k}`, k more than the right value, or, for an offset or a length
of the envelope, as `{"eof": k}`: the section begins, or ends, k bytes past the end of the file.

    header.<key.key>      a node of the header JSON          order                order of the sections on disk
    header.raw            hex: the header's very bytes       gap.<section>        bytes of junk before it
    features              required_features                  tail                 bytes of junk at the end
    hashes                false: none in the envelope        grow                 tensors appended as §9 has it
    masks, vocab, index   hex: the section's very bytes      dir.<field>          the directory's head
    <section>@<offset>    four bytes of masks or index       dir[i].<field>       a record's field, or its name in hex
    envelope.<field>      a field of the envelope            flip, put, cut       after hashing: damage
    payload[i]            hex: a tensor's very bytes         payload[i]@<offset>  hex: some of them
    payload[i].size       its length: cut, or filled with junk
    data.order            order of the payloads in the blob  data.gap[i]          bytes of junk before payload i
    dir.gap               bytes of junk before the pool
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from cmfspec.codecs import CODECS
from cmfspec.format.blueprint import Blueprint, Entry, from_json
from cmfspec.format.hash64 import hash64
from cmfspec.layout import (
    BINARY_MASKS,
    DATA_ALIGN,
    DIR_HEAD,
    DIR_HEAD_SIZE,
    ENVELOPE,
    ENVELOPE_SIZE,
    HASH_DIGITS,
    MAGIC,
    MAX_NDIM,
    OPTIONAL,
    RECORD,
    RECORD_SIZE,
    SECTIONS,
    SKILL_FILE,
    TENSOR_ALIGN,
    TENSOR_DIR,
    VERSION,
    Field,
    align,
)

Edit = tuple[str, Any]
JUNK = b"\xa5junk\x5a"


def render(blueprint: Blueprint, edits: Sequence[Edit] = ()) -> bytes:
    """The file. Raises KeyError, IndexError or ValueError for an edit that finds nothing to edit."""
    last = [edit for edit in edits if seals(edit[0])]
    return seal(lay(blueprint, [edit for edit in edits if not seals(edit[0])]), last)


def seals(path: str) -> bool:
    """Whether an edit is made to the finished file: a lie of the envelope, or damage."""
    return path in _DAMAGE or path.startswith("envelope.")


def lay(blueprint: Blueprint, edits: Sequence[Edit] = ()) -> bytes:
    """The file before it is sealed: with every edit but those. Raises as `render`."""
    plan = _Plan(edits)
    blueprint = replace(blueprint, tensors=_rewritten(blueprint.tensors, plan))
    sections = {name: plan.bytes_of(name, getattr(blueprint, name)) for name in OPTIONAL}
    sections = {name: plan.patched(name, raw) for name, raw in sections.items()}
    sections["header"] = _header(blueprint, plan, sections)
    offsets, sections["data"] = _blob(blueprint.tensors, plan)
    sections["dir"] = _directory(blueprint.tensors, offsets, plan)
    content = _place(sections, plan, _features(blueprint, sections))
    growth = plan.take("grow")
    if growth:
        content = _grow(content, grown(blueprint, growth), offsets, plan)
    plan.must_be_done()
    return content


def seal(content: bytes, edits: Sequence[Edit]) -> bytes:
    """The file with the edits that `seals` names. Raises as `render`."""
    if not edits:
        return content
    plan = _Plan(edits)
    content = _seal(content, plan)
    plan.must_be_done()
    return content


def grown(blueprint: Blueprint, growth: Mapping[str, Any]) -> Blueprint:
    """What the file holds after a `grow` edit: {"tensors": [entry…], "header": {key: value}}."""
    added = from_json(growth)
    return replace(blueprint, tensors=blueprint.tensors + added.tensors, header={**blueprint.header, **added.header})


def rewritten(tensors: Sequence[Entry], edits: Sequence[Edit]) -> tuple[Entry, ...]:
    """The tensors as the `payload[i]…` edits leave them; other edits are not looked at."""
    return _rewritten(tensors, _Plan([edit for edit in edits if edit[0].startswith("payload[")]))


def _rewritten(tensors: Sequence[Entry], plan: _Plan) -> tuple[Entry, ...]:
    def new(index: int, entry: Entry) -> Entry:
        raw = bytearray(plan.bytes_of(f"payload[{index}]", entry.payload))
        for at, value in plan.starting(f"payload[{index}]@"):
            where, piece = int(at), bytes.fromhex(value)
            if where + len(piece) > len(raw):
                raise IndexError(f"tensor {index} has no {len(piece)} bytes at {where}")
            raw[where : where + len(piece)] = piece
        size = plan.number(f"payload[{index}].size", len(raw))
        return replace(entry, payload=bytes(raw[:size]) + _junk(size - len(raw)))

    if not any(path.startswith("payload[") for path in plan.left):
        return tuple(tensors)
    return tuple(new(index, entry) for index, entry in enumerate(tensors))


class _Plan:
    """The edits, taken one by one by the step that they concern."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.left = {path: value for path, value in edits if path not in _DAMAGE}
        self.damage = [(path, value) for path, value in edits if path in _DAMAGE]

    def must_be_done(self) -> None:
        """Raises KeyError for an edit that no step has taken."""
        if self.left:
            raise KeyError(f"edits that found nothing to edit: {sorted(self.left)}")

    def take(self, path: str, default: Any = None) -> Any:
        return self.left.pop(path, default)

    def number(self, path: str, right: int) -> int:
        """The right value, or what the edit makes of it."""
        value = self.left.pop(path, right)
        return int(right + value["plus"] if isinstance(value, dict) else value)

    def bytes_of(self, path: str, right: bytes) -> bytes:
        value = self.left.pop(path, None)
        return right if value is None else bytes.fromhex(value)

    def starting(self, prefix: str) -> list[tuple[str, Any]]:
        """Take all edits below a prefix, without it."""
        return [(path[len(prefix) :], self.left.pop(path)) for path in [*self.left] if path.startswith(prefix)]

    def patched(self, section: str, raw: bytes) -> bytes:
        """A section with its `<section>@<offset>` edits, each a u32."""
        content = bytearray(raw)
        for at, value in self.starting(f"{section}@"):
            where = int(at)
            if where + 4 > len(content):
                raise IndexError(f"{section} has no u32 at {where}")
            right = int.from_bytes(content[where : where + 4], "little")
            new = right + value["plus"] if isinstance(value, dict) else value
            content[where : where + 4] = (new % 2**32).to_bytes(4, "little")
        return bytes(content)


def _header(blueprint: Blueprint, plan: _Plan, sections: Mapping[str, bytes]) -> bytes:
    raw = plan.take("header.raw")
    header = json.loads(json.dumps(blueprint.header))
    hashes = {name: f"{_hashed(sections[name]):0{HASH_DIGITS}x}" for name in OPTIONAL if sections[name]}
    if hashes and "section_hashes" not in header:
        header["section_hashes"] = hashes
    for path, value in plan.starting("header."):
        node = header
        *parents, last = path.split(".")
        for key in parents:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node[int(key)]
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    return bytes.fromhex(raw) if raw is not None else json.dumps(header, separators=(",", ":"), sort_keys=True).encode()


def _blob(tensors: Sequence[Entry], plan: _Plan, start: int = 0) -> tuple[list[int], bytes]:
    """The offset of each payload, and all of them in the plan's order; start: where in the blob they begin."""
    blob, offsets = bytearray(), dict.fromkeys(range(len(tensors)), 0)
    for index in plan.take("data.order", offsets):
        blob.extend(_junk(plan.take(f"data.gap[{index}]", 0)))
        blob.extend(bytes(align(start + len(blob), TENSOR_ALIGN) - start - len(blob)))
        offsets[index] = start + len(blob)
        blob.extend(tensors[index].payload)
    return [*offsets.values()], bytes(blob)


def _directory(tensors: Sequence[Entry], offsets: Sequence[int], plan: _Plan) -> bytes:
    names = [plan.bytes_of(f"dir[{i}].name", t.name.encode()) for i, t in enumerate(tensors)]
    gap = _junk(plan.take("dir.gap", 0))
    pool_off = DIR_HEAD_SIZE + RECORD_SIZE * len(tensors) + len(gap)
    right = {"count": len(tensors), "pool_off": pool_off}
    edited = any(path.startswith("dir") for path in plan.left)
    out = bytearray(_packed(_HEAD, right, partial(_numbered, plan, "dir") if edited else None))
    at = 0
    for i, (tensor, off, name) in enumerate(zip(tensors, offsets, names, strict=True)):
        shape = (*tensor.shape, *[0] * MAX_NDIM)[:MAX_NDIM]
        values = {"name_off": at, "name_len": len(name), "dtype": tensor.dtype, "ndim": len(tensor.shape), "off": off}
        values |= {"nbytes": len(tensor.payload), "hash": _hashed(tensor.payload)}
        values |= {f"shape{axis}": dim for axis, dim in enumerate(shape)}
        out += _packed(_RECORD, values, partial(_numbered, plan, f"dir[{i}]") if edited else None)
        at += len(name)
    return bytes(out) + gap + b"".join(names)


def _numbered(plan: _Plan, prefix: str, name: str, right: int) -> int:
    return plan.number(f"{prefix}.{name}", right)


class _Packing(NamedTuple):
    """A fixed layout, ready to be packed. limits: the greatest value of each field."""

    names: tuple[str, ...]
    struct: struct.Struct
    limits: tuple[int, ...]

    @staticmethod
    def of(fields: Sequence[Field]) -> _Packing:
        form = "<" + "".join({1: "B", 2: "H", 4: "I", 8: "Q"}[field.width] for field in fields)
        limits = tuple(2 ** (8 * field.width) - 1 for field in fields)
        return _Packing(tuple(field.name for field in fields), struct.Struct(form), limits)


_ENVELOPE, _HEAD, _RECORD = map(_Packing.of, (ENVELOPE, DIR_HEAD, RECORD))


def _packed(packing: _Packing, values: Mapping[str, int], edited: Callable[[str, int], int] | None = None) -> bytes:
    """edited: what the edits make of a field; None where there are none."""
    found = [values[name] if edited is None else edited(name, values[name]) for name in packing.names]
    return packing.struct.pack(*[value & limit for value, limit in zip(found, packing.limits, strict=True)])


@lru_cache(maxsize=4096)
def _hashed(payload: bytes) -> int:
    return hash64(payload)


def _features(blueprint: Blueprint, sections: Mapping[str, bytes]) -> int:
    bits = {TENSOR_DIR} | ({BINARY_MASKS} if sections["masks"] else set())
    for tensor in blueprint.tensors:
        codec = CODECS.get(tensor.dtype)
        if codec and codec.feature is not None:
            bits.add(codec.feature)
    skills = blueprint.header.get("skills")
    if isinstance(skills, list) and any(isinstance(skill, Mapping) and "base_dir_hash" in skill for skill in skills):
        bits.add(SKILL_FILE)
    return sum(1 << bit for bit in bits)


def _place(sections: Mapping[str, bytes], plan: _Plan, features: int) -> bytes:
    """Lay the sections out, and put the right envelope in front."""
    out = bytearray(ENVELOPE_SIZE)
    values = {"magic": int.from_bytes(MAGIC, "little"), "version": VERSION, "flags": 0}
    values["required_features"] = plan.take("features", features)
    values |= {f"{name}_{end}": 0 for name in SECTIONS for end in ("off", "len")}
    for name in plan.take("order", SECTIONS):
        if name in OPTIONAL and not sections[name]:
            continue
        out += _junk(plan.take(f"gap.{name}", 0))
        if name == "data":
            out += bytes(align(len(out), DATA_ALIGN) - len(out))
        values[f"{name}_off"], values[f"{name}_len"] = len(out), len(sections[name])
        out += sections[name]
    out += _junk(plan.take("tail", 0))
    hashed = plan.take("hashes", True)
    for name in ("header", "dir"):
        values[f"{name}_hash"] = hash64(sections[name]) if hashed else 0
    out[:ENVELOPE_SIZE] = _packed(_ENVELOPE, values)
    return bytes(out)


def _grow(content: bytes, whole: Blueprint, old: Sequence[int], plan: _Plan) -> bytes:
    """Append-only growth (§9): new tensors, header and directory at the tail; only the envelope changes in place. The
    data range then spans the old sections behind it, and the old header and directory become dead bytes."""
    envelope = _unpacked(content)
    data_off = envelope["data_off"]
    out = bytearray(content) + bytes(align(len(content) - data_off, TENSOR_ALIGN) - (len(content) - data_off))
    new, tail = _blob(whole.tensors[len(old) :], plan, len(out) - data_off)
    out += tail
    envelope["data_len"] = len(out) - data_off
    sections = {name: getattr(whole, name) for name in OPTIONAL}
    for name, raw in (
        ("dir", _directory(whole.tensors, [*old, *new], plan)),
        ("header", _header(whole, plan, sections)),
    ):
        envelope |= {f"{name}_off": len(out), f"{name}_len": len(raw), f"{name}_hash": hash64(raw)}
        out += raw
    envelope["required_features"] |= _features(whole, sections)
    out[:ENVELOPE_SIZE] = _packed(_ENVELOPE, envelope)
    return bytes(out)


def _seal(content: bytes, plan: _Plan) -> bytes:
    """The lies of the envelope, then the damage that no hash knows of."""
    right = _unpacked(content)
    size = len(content)

    def lie(name: str, value: int) -> int:
        given = plan.left.get(f"envelope.{name}")
        if isinstance(given, dict) and "eof" in given:
            plan.take(f"envelope.{name}")
            section, _, end = name.rpartition("_")
            return int(size + given["eof"] - (right[f"{section}_off"] if end == "len" else 0))
        return plan.number(f"envelope.{name}", value)

    out = bytearray(content)
    if plan.left:
        out[:ENVELOPE_SIZE] = _packed(_ENVELOPE, right, lie)
    for path, value in plan.damage:
        _DAMAGE[path](out, right, value)
    return bytes(out)


def _flip(out: bytearray, envelope: Mapping[str, int], value: Sequence[Any]) -> None:
    """[section or "file", offset in it, mask]."""
    section, at, mask = value
    out[(0 if section == "file" else envelope[f"{section}_off"]) + at] ^= mask


def _put(out: bytearray, _: Mapping[str, int], value: Sequence[Any]) -> None:
    """[offset, hex]."""
    at, raw = value[0], bytes.fromhex(value[1])
    out[at : at + len(raw)] = raw


def _cut(out: bytearray, _: Mapping[str, int], value: int) -> None:
    """Keep this many bytes; a negative number takes that many off the end."""
    del out[value:]


_DAMAGE: dict[str, Callable[[bytearray, Mapping[str, int], Any], None]] = {"flip": _flip, "put": _put, "cut": _cut}


def _unpacked(content: bytes) -> dict[str, int]:
    return dict(zip(_ENVELOPE.names, _ENVELOPE.struct.unpack_from(content), strict=True))


def _junk(size: int) -> bytes:
    """`size` bytes that are no zeros; none if it is negative."""
    return (JUNK * (max(size, 0) // len(JUNK) + 1))[: max(size, 0)]
