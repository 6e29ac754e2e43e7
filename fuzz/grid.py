"""The grid: every field of the fixed layouts × nasty values; and havoc, noise at random places.

Law: derived from `layout`, so a field added there is attacked from then on. The oracle is weaker than for a named mutation:
accept or refuse, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from cmfspec.format.build import Edit
from cmfspec.layout import DIR_HEAD, ENVELOPE, INDEX_ENTRY, INDEX_HEAD, MASKS_HEAD, RECORD
from golden.files import File
from golden.recipes import recipe

NASTY = (0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1)
OFF_BY = ({"plus": -1}, {"plus": 1}, {"plus": 64}, {"plus": 4096})
SECTION_FIELDS = {
    "masks": [field.offset for field in MASKS_HEAD],
    "index": [field.offset for field in INDEX_HEAD]
    + [INDEX_HEAD[-1].offset + 4 + field.offset for field in INDEX_ENTRY],
}


def fields(name: str) -> Iterator[tuple[str, int]]:
    """(edit path, width in bytes) of every field of a recipe's envelope, directory and section heads."""
    blueprint = recipe(name)
    yield from ((f"envelope.{field.name}", field.width) for field in ENVELOPE)
    yield from ((f"dir.{field.name}", field.width) for field in DIR_HEAD)
    for index in range(len(blueprint.tensors)):
        yield from ((f"dir[{index}].{field.name}", field.width) for field in RECORD)
    for section, offsets in SECTION_FIELDS.items():
        if getattr(blueprint, section):
            yield from ((f"{section}@{offset}", 4) for offset in offsets)


def grid(name: str) -> tuple[File, ...]:
    """The recipe with each field set to each nasty value that fits it, and to a little off the right one."""
    found: list[Edit] = []
    for path, width in fields(name):
        found += [(path, value) for value in NASTY if value < 2 ** (8 * width)]
        found += [(path, value) for value in OFF_BY if width > 1 and path != "envelope.magic"]
    return tuple(File(name, (edit,)) for edit in found)
