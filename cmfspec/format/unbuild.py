"""From a file back to a blueprint and the edits that tell its lies: the inverse of `build`, as far as there is one.

Law: nothing is trusted and nothing is refused; what can't be told by an edit is left out, so that whoever renders the result
must look whether it still is what he wanted. Dead bytes between sections and the order within the name pool are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cmfspec.errors import Refusal
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import Edit, render
from cmfspec.format.hash64 import hash64
from cmfspec.format.view import ADDRESSED, View
from cmfspec.layout import (
    DATA_ALIGN,
    DIR_HEAD_SIZE,
    ENVELOPE_SIZE,
    HASH_DIGITS,
    MAX_NDIM,
    OPTIONAL,
    RECORD_SIZE,
    SECTIONS,
    TENSOR_ALIGN,
    U64,
)

PLAIN_FIELDS = ("magic", "version", "flags", "required_features")


def blueprint_of(content: bytes) -> tuple[Blueprint, tuple[Edit, ...]]:
    """What `render` makes this file of, or one much like it. Raises ValueError for what is too short to have sections,
    or whose tensors lie upon each other so often that they would not fit into memory."""
    if len(content) < ENVELOPE_SIZE:
        raise ValueError(f"{len(content)} bytes are no envelope")
    view = View(content)
    sections = {name: bytes(view.part(name)) for name in OPTIONAL}
    edits: list[Edit] = []
    header: dict[str, Any] = {}
    try:
        header = _writable(view.header)
        _forget_right_hashes(header, sections)
    except (Refusal, ValueError):
        if sum(view.span("header")) <= view.size:
            edits.append(("header.raw", bytes(view.part("header")).hex()))
    tensors: tuple[Entry, ...] = ()
    if view.span("dir")[1] < DIR_HEAD_SIZE:
        edits.append(("envelope.dir_len", view.span("dir")[1]))
    else:
        tensors = _tensors(view, edits)
        edits += _directory_edits(view)
    edits += _placement(view)
    blueprint = Blueprint(header, tensors, **sections)
    return blueprint, (*edits, *_envelope_edits(view, blueprint, edits))


def _writable(header: dict[str, Any]) -> dict[str, Any]:
    """A copy. Raises ValueError for a number too large for a float: `1e999` is JSON, what it becomes when written is not."""
    json.dumps(header, allow_nan=False)
    return dict(header)


def _forget_right_hashes(header: dict[str, Any], sections: dict[str, bytes]) -> None:
    """`render` computes them anew; wrong ones stay."""
    right = {name: f"{hash64(raw):0{HASH_DIGITS}x}" for name, raw in sections.items() if raw}
    if header.get("section_hashes") == right:
        del header["section_hashes"]


def _tensors(view: View, edits: list[Edit]) -> tuple[Entry, ...]:
    found, total = [], 0
    directory, blob = view.directory, view.part("data")
    for index, record in enumerate(directory.records):
        off, nbytes, ndim = int(record["off"]), int(record["nbytes"]), int(record["ndim"])
        payload = bytes(blob[off : off + nbytes])
        total += len(payload)
        if total > 2 * view.size:
            raise ValueError(f"the first {index + 1} tensors have {total} bytes in a file of {view.size}")
        name = directory.name_bytes(index)
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            text = f"t{index}"
            edits.append((f"dir[{index}].name", name.hex()))
        start, length = int(record["name_off"]), int(record["name_len"])
        if start + length > len(directory.pool):
            edits += [(f"dir[{index}].name_off", start), (f"dir[{index}].name_len", length)]
        if ndim > MAX_NDIM:
            edits.append((f"dir[{index}].ndim", ndim))
        if len(payload) != nbytes:
            edits += [(f"dir[{index}].nbytes", nbytes), (f"dir[{index}].off", off)]
        elif off % TENSOR_ALIGN:
            edits.append((f"dir[{index}].off", {"plus": off % TENSOR_ALIGN}))
        if int(record["hash"]) != hash64(payload):
            edits.append((f"dir[{index}].hash", int(record["hash"])))
        found.append(Entry(text, int(record["dtype"]), directory.shape(index), payload))
    return tuple(found)


def _directory_edits(view: View) -> Iterator[Edit]:
    count, pool_off = view.dir_head()
    if count != len(view.directory.records):
        yield "dir.count", count
    if not DIR_HEAD_SIZE + RECORD_SIZE * count <= pool_off <= len(view.part("dir")):
        yield "dir.pool_off", pool_off


def _placement(view: View) -> Iterator[Edit]:
    """The order of the sections, what lies behind them, and those that end past the file or begin beside their page."""
    spans = {name: view.span(name) for name in ADDRESSED}
    present = [name for name in SECTIONS if view.present(name) and (name not in OPTIONAL or view.part(name))]
    order = sorted(present, key=lambda name: spans[name][0])
    if order != present:
        yield "order", order
    behind = view.size - max((off + length for off, length in spans.values() if off + length <= view.size), default=0)
    if behind > 0:
        yield "tail", behind
    for name in SECTIONS:
        off, length = spans[name]
        if length and view.present(name) and off + length > view.size:
            if off >= view.size:
                yield f"envelope.{name}_off", off if off > view.size else {"eof": 0}
                yield f"envelope.{name}_len", length
            else:
                wraps = off + length > U64
                yield f"envelope.{name}_len", length if wraps else {"eof": off + length - view.size}
    if spans["data"][0] % DATA_ALIGN:
        yield "envelope.data_off", {"plus": spans["data"][0] % DATA_ALIGN}


def _envelope_edits(view: View, blueprint: Blueprint, edits: list[Edit]) -> Iterator[Edit]:
    """What stands in the envelope beside offsets and lengths, where it is not what `render` would put there."""
    stored, computed = view.envelope, View(render(blueprint, edits)).envelope
    for name in PLAIN_FIELDS:
        if stored[name] != computed[name]:
            yield f"envelope.{name}", stored[name]
    hashes = {part: stored[f"{part}_hash"] for part in ("header", "dir")}
    if not any(hashes.values()):
        yield "hashes", False
        return
    for part, value in hashes.items():
        if value != hash64(view.part(part)):
            yield f"envelope.{part}_hash", value
