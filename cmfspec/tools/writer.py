"""Writing a container, one tensor at a time (§1 to §4, §8).

Law: the sections stand in the order of §1. What stands in front of the blob has a size that is known before the blob is
written, so its place is left free and filled at the end, the envelope last: a file that was cut short begins with zeros
and is none. Everything that follows from the tensors (offsets, hashes, feature bits) is computed here, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.errors import CannotEncode, Fault
from cmfspec.format.hash64 import hash64
from cmfspec.layout import (
    BINARY_MASKS,
    DATA_ALIGN,
    DIR_HEAD_SIZE,
    DTYPE_IDS,
    ENVELOPE,
    ENVELOPE_SIZE,
    ENVELOPE_STRUCT,
    HASH_DIGITS,
    MAGIC,
    MAX_NDIM,
    OPTIONAL,
    RECORD_DTYPE,
    RECORD_SIZE,
    SKILL_FILE,
    TENSOR_ALIGN,
    TENSOR_DIR,
    VERSION,
    align,
)

MAX_NAME, MAX_POOL, MAX_DIM = 2**16 - 1, 2**32 - 1, 2**32 - 1


@dataclass(frozen=True)
class Item:
    """A tensor to be written. dtype: the name of its encoding; payload: makes its bytes, when their turn comes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    payload: Callable[[], bytes | bytearray | memoryview]


class Tally:
    """What was written so far: told of each tensor, tells a progress. counts: encoding to (tensors, bytes)."""

    def __init__(self, total: int, progress: Callable[[str, int, int], None]) -> None:
        self.counts: dict[str, tuple[int, int]] = {}
        self._total, self._so_far, self._progress = total, 0, progress

    def __call__(self, item: Item, size: int) -> None:
        tensors, nbytes = self.counts.get(item.dtype, (0, 0))
        self.counts[item.dtype] = tensors + 1, nbytes + size
        self._so_far += prod(item.shape)
        self._progress(item.name, self._so_far, self._total)


def write(
    stream: BinaryIO,
    header: Mapping[str, Any],
    items: Sequence[Item],
    sections: Mapping[str, bytes | memoryview],
    done: Callable[[Item, int], None] = lambda _, __: None,
) -> None:
    """Write a file from the stream's start. header: without section_hashes; sections: masks, vocab, index, where they are;
    done: told of each tensor that was written, and its size in bytes.

    Raises CannotEncode for a tensor that the directory or an encoding can't hold; OSError; what `payload` raises.
    """
    present = {name: sections[name] for name in OPTIONAL if len(sections.get(name, b""))}
    hashes = {name: f"{hash64(raw):0{HASH_DIGITS}x}" for name, raw in present.items()}
    told = {**header, **({"section_hashes": hashes} if hashes else {})}
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    records, pool = _directory(items)
    dir_len = DIR_HEAD_SIZE + RECORD_SIZE * len(records) + len(pool)
    values = {"magic": int.from_bytes(MAGIC, "little"), "version": VERSION, "flags": 0, "required_features": 0}
    values |= {f"{name}_{end}": 0 for name in OPTIONAL for end in ("off", "len")}
    values |= {"header_off": ENVELOPE_SIZE, "header_len": len(text), "header_hash": hash64(text)}
    values |= {"dir_off": ENVELOPE_SIZE + len(text), "dir_len": dir_len}
    values["data_off"] = align(values["dir_off"] + dir_len, DATA_ALIGN)

    stream.write(bytes(values["data_off"]))
    at = 0
    for item, record in zip(items, records, strict=True):
        stream.write(bytes(align(at, TENSOR_ALIGN) - at))
        at = align(at, TENSOR_ALIGN)
        payload = memoryview(item.payload())
        record["off"], record["nbytes"], record["hash"] = at, len(payload), hash64(payload)
        stream.write(payload)
        at += len(payload)
        done(item, len(payload))
        del payload  # before the next one is made
    values["data_len"] = at
    end = values["data_off"] + at
    for name, raw in present.items():
        values[f"{name}_off"], values[f"{name}_len"] = end, len(raw)
        stream.write(raw)
        end += len(raw)

    directory = b"".join(
        (
            len(records).to_bytes(8, "little"),
            (DIR_HEAD_SIZE + RECORD_SIZE * len(records)).to_bytes(8, "little"),
            records.tobytes(),
            pool,
        )
    )
    values["dir_hash"], values["required_features"] = hash64(directory), features(header, items, present)
    stream.seek(ENVELOPE_SIZE)
    stream.write(text + directory)
    stream.flush()
    stream.seek(0)
    stream.write(ENVELOPE_STRUCT.pack(*(values[field.name] for field in ENVELOPE)))
    stream.flush()


def features(header: Mapping[str, Any], items: Sequence[Item], sections: Mapping[str, Any]) -> int:
    """`required_features` (§1.1): what these tensors, sections and skills need."""
    bits = {TENSOR_DIR} | ({BINARY_MASKS} if "masks" in sections else set())
    by_name = {codec.name: codec.feature for codec in CODECS.values()}
    bits |= {bit for item in items if (bit := by_name.get(item.dtype)) is not None}
    skills = header.get("skills")
    if isinstance(skills, list) and any(isinstance(skill, Mapping) and "base_dir_hash" in skill for skill in skills):
        bits.add(SKILL_FILE)
    return sum(1 << bit for bit in bits)


def _directory(items: Sequence[Item]) -> tuple[Any, bytes]:
    """(records whose place, size and hash are still open, name pool)."""
    names = [item.name.encode() for item in items]
    records = np.zeros(len(items), RECORD_DTYPE)
    at = 0
    for item, name, record in zip(items, names, records, strict=True):
        if len(name) > MAX_NAME or at + len(name) > MAX_POOL:
            raise _too_large(item, "name", f"{len(name)} bytes", f"at most {MAX_NAME}, and {MAX_POOL} for all names")
        if len(item.shape) > MAX_NDIM or any(dim > MAX_DIM for dim in item.shape):
            raise _too_large(item, "shape", list(item.shape), f"at most {MAX_NDIM} dimensions of at most {MAX_DIM}")
        record["name_off"], record["name_len"] = at, len(name)
        record["dtype"], record["ndim"] = DTYPE_IDS[item.dtype], len(item.shape)
        record["shape"][: len(item.shape)] = item.shape
        at += len(name)
    return records, b"".join(names)


def _too_large(item: Item, field: str, found: object, wanted: str) -> CannotEncode:
    rule = "DIR-024" if field == "name" else "DIR-025"
    return CannotEncode(Fault("Other", rule, f"{item.name[:60]!a}.{field}", None, str(found), wanted))
