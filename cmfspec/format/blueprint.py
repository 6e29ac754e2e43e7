"""What a file holds, before anything is said of where: its header, tensors and sections (§2, §3, §5, §7).

Law: a `Blueprint` is right or wrong only by what it holds; as JSON it reads back equal. Both are canonical.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cmfspec.layout import MASK_ALIGN, MASKS_HEAD_SIZE, OPTIONAL, align


@dataclass(frozen=True)
class Entry:
    """A tensor to be written: its name, dtype id, shape and payload."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    payload: bytes


@dataclass(frozen=True)
class Blueprint:
    """What a file holds. masks, vocab, index: the sections' bytes, empty if absent."""

    header: Mapping[str, Any] = field(default_factory=dict)
    tensors: tuple[Entry, ...] = ()
    masks: bytes = b""
    vocab: bytes = b""
    index: bytes = b""


def to_json(blueprint: Blueprint) -> dict[str, Any]:
    """The blueprint as JSON; bytes become hex."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, dict):
            return {key: plain(node) for key, node in value.items()}
        return [plain(node) for node in value] if isinstance(value, tuple | list) else value

    return {key: plain(value) for key, value in asdict(blueprint).items() if value}


def from_json(node: Mapping[str, Any]) -> Blueprint:
    """The blueprint that `to_json` wrote."""
    tensors = (
        Entry(t["name"], t["dtype"], tuple(t["shape"]), bytes.fromhex(t["payload"])) for t in node.get("tensors", ())
    )
    sections = {name: bytes.fromhex(node.get(name, "")) for name in OPTIONAL}
    return Blueprint(node.get("header", {}), tuple(tensors), **sections)


def canonical(node: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, ASCII."""
    return json.dumps(node, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def masks_section(meta: Mapping[str, Any], blobs: Sequence[bytes]) -> bytes:
    """A masks section (§5): head, meta with blob_off and blob_len filled in, blobs aligned to 8."""
    meta = json.loads(json.dumps(meta))
    for mask, blob in zip(meta["masks"], blobs, strict=True):
        mask |= {"blob_off": 0, "blob_len": len(blob)}
    raw = b""
    while True:  # the offsets' own digits move them: iterate to a fixed point
        at = align(MASKS_HEAD_SIZE + len(raw), MASK_ALIGN)
        for mask, blob in zip(meta["masks"], blobs, strict=True):
            mask["blob_off"], at = at, align(at + len(blob), MASK_ALIGN)
        again = json.dumps(meta, separators=(",", ":")).encode()
        if again == raw:
            break
        raw = again
    out = bytearray(len(blobs).to_bytes(4, "little") + len(raw).to_bytes(4, "little") + raw)
    for blob in blobs:
        out += bytes(align(len(out), MASK_ALIGN) - len(out)) + blob
    return bytes(out)


def index_section(entries: Sequence[tuple[int, int, Sequence[int], Sequence[int]]]) -> bytes:
    """A sparse index (§7) of (task_id, layer_idx, groups, heads)."""
    out = bytearray(len(entries).to_bytes(4, "little") + bytes(4))
    for task, layer, groups, heads in entries:
        out += b"".join(value.to_bytes(4, "little") for value in (task, layer, len(groups), len(heads)))
        out += b"".join(group.to_bytes(2, "little") for group in groups) + bytes(heads)
        out += bytes(align(len(out), 4) - len(out))
    return bytes(out)
