"""The files that the rules of §1 are asked about: grown, moved, padded, byte-swapped, hungry.

Law: data only; each tuple is what one rule draws from.
"""

from __future__ import annotations

from itertools import permutations

from cmfspec.format.blueprint import Blueprint, to_json
from cmfspec.layout import ENVELOPE, SECTIONS
from golden.files import File
from golden.recipes import GATE, entry

GROWN = tuple(
    File(name).edited(
        "grow",
        {
            **to_json(Blueprint({}, (entry(f"skill.sql.{GATE}", "f16", shape),))),
            "header": {"skills": [{"id": "sql", "layers": [0]}]},
        },
    )
    for name, shape in (("full", (4, 32)), ("plain", (5, 7)), ("vocab", (40, 3)))
)
MOVED = tuple(
    File(name).edited("order", order)
    for name in ("full", "plain")
    for order in (
        ["dir", "data", "masks", "vocab", "index", "header"],
        ["data", "index", "header", "dir", "vocab", "masks"],
        ["dir", "header", "data", "masks", "vocab", "index"],
    )
)
ORDERS = tuple(
    File("full")
    .edited("order", list(order))
    .edited(f"gap.{order[0]}", 1 + place % 13)
    .edited(f"gap.{order[3]}", place % 5)
    for place, order in enumerate(permutations(SECTIONS))
)
SWAPPED = tuple(
    File("plain").edited(
        f"envelope.{field.name}",
        int.from_bytes(File("plain").content()[field.offset : field.offset + field.width], "big"),
    )
    for field in ENVELOPE
    if field.name in ("version", "header_off", "header_len", "dir_off", "dir_len", "data_off", "data_len")
)
ZIP = "504b0506" + "00" * 18
DEAD = tuple(
    File(name).edited(path, value)
    for name in ("full", "plain")
    for path, value in (
        ("tail", 1),
        ("tail", 4096),
        ("gap.header", 5),
        ("gap.dir", 64),
        ("gap.data", 9000),
        ("put", [len(File(name).content()), ZIP]),
    )
)
HUNGRY = tuple(
    File("full").edited(path, value)
    for path, value in (
        ("masks@0", 2**32 - 1),
        ("masks@4", 2**31),
        ("index@0", 2**32 - 1),
        ("index@16", 2**31),
        ("dir.count", 2**24),
        ("dir.count", 2**63),
        ("dir[0].name_len", 65535),
        ("dir[0].nbytes", 2**31),
        ("dir[1].shape0", 2**31),
        ("envelope.header_len", 2**40),
        ("envelope.dir_len", 2**40),
        ("envelope.vocab_len", 2**31),
    )
)


def _first(dtype: int, *shape: int, nbytes: int, **envelope: int) -> File:
    """`tiny` with another record over the same bytes."""
    dims = (*shape, *[0] * 6)[:6]
    record = {"dtype": dtype, "ndim": len(shape), "nbytes": nbytes} | {
        f"shape{axis}": dim for axis, dim in enumerate(dims)
    }
    edits = [(f"dir[0].{field}", value) for field, value in record.items()]
    return File("tiny", (*edits, *((f"envelope.{field}", value) for field, value in envelope.items())))


# Files that readers in use have crashed on: sizes of the model that wrap when the masks are measured by them, a blob of
# nothing past the end, matrices of no rows, payloads without their tiles.
CRASHED = (
    File("full", (("header.arch.num_layers", 104), ("header.arch.intermediate_size", 2**64 - 8))),
    File("full", (("header.arch.num_layers", 9035139954469984467),)),
    File("full", (("header.arch.num_layers", 2**62),)),
    File("full", (("header.arch.intermediate_size", 2**63),)),
    File("full", (("header.arch.num_attention_heads", 2**64 - 1),)),
    File("full", (("header.arch.num_loops", 2**60),)),
    File("full", (("header.arch.num_loops", 2**40),)),
    File("full", (("index@0", 2**32 - 1),)),
    _first(8, 0, 32, nbytes=0, data_off=2**63, data_len=0),
    _first(1, 0, nbytes=0, data_off=2**20, data_len=0),
    _first(9, 0, 32, nbytes=0),
    _first(9, 0, 32, nbytes=64),
    _first(13, 32, nbytes=0),
    _first(13, 32, nbytes=5),
    _first(13, 1, 32, nbytes=5),
    _first(13, 65536, 65536, nbytes=64),
    _first(14, 1, 32, nbytes=0),
    _first(14, 65536, 65536, nbytes=64),
    _first(15, 2, 33, nbytes=0),
    _first(15, 2, 16, nbytes=0),
    _first(3, 21, nbytes=63),
)
