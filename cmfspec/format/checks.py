"""Every check of a file, as one table (§1.2 and what follows from «there is no third state»).

Law: a row is a name, the rule that it guards, the rows that must have passed before it means anything, and a generator of
faults. `open` raises the first fault by this order, `faults` yields them all, and a wrong reader is this table with one
row removed or replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cmfspec.errors import Fault, Refusal
from cmfspec.format.directory import RECORD_CHECKS, RecordCheck
from cmfspec.format.names import duplicate_names, shared_names
from cmfspec.format.view import ADDRESSED, View
from cmfspec.layout import (
    DATA_ALIGN,
    DIR_HEAD_SIZE,
    ENVELOPE_AT,
    ENVELOPE_SIZE,
    IMPLEMENTED_FEATURES,
    INDEX_ENTRY_SIZE,
    INDEX_HEAD_SIZE,
    MAGIC,
    MASKS_HEAD_SIZE,
    RECORD_SIZE,
    RESERVED_FEATURES,
    U64,
    VERSION,
    align,
)

Find = Callable[[View], Iterator[Fault]]


@dataclass(frozen=True)
class Check:
    """One row. needs: names of rows without which this one means nothing."""

    name: str
    rule: str
    find: Find
    needs: tuple[str, ...] = ()


def _envelope(kind: str, rule: str, field: str, found: object, wanted: object) -> Fault:
    return Fault(kind, rule, f"envelope.{field}", ENVELOPE_AT[field], str(found), str(wanted))


def _length(view: View) -> Iterator[Fault]:
    if view.size < ENVELOPE_SIZE:
        yield Fault("Bounds", "ENV-001", "file", 0, f"{view.size} bytes", f"at least {ENVELOPE_SIZE}")


def _magic(view: View) -> Iterator[Fault]:
    found = bytes(view.buffer[: len(MAGIC)])
    if found != MAGIC:
        yield _envelope("InvalidMagic", "ENV-002", "magic", found.hex(" "), MAGIC.hex(" "))


def _version(view: View) -> Iterator[Fault]:
    version = view.envelope["version"]
    if version != VERSION:
        yield _envelope("UnsupportedVersion", "VAL-004" if version == 1 else "ENV-004", "version", version, VERSION)


def features_outside(implemented: tuple[int, ...]) -> Find:
    """The check of `required_features` for a reader that implements these bits."""

    def find(view: View) -> Iterator[Fault]:
        features = view.envelope["required_features"]
        unknown = [bit for bit in range(32) if features >> bit & 1 and bit not in implemented]
        if unknown:
            rule = "FEAT-002" if set(unknown) <= set(RESERVED_FEATURES) else "FEAT-001"
            known = ", ".join(map(str, implemented))
            yield _envelope(
                "UnsupportedFeature",
                rule,
                "required_features",
                f"bit {', '.join(map(str, unknown))}",
                f"only bits {known}",
            )

    return find


def section_bounds(view: View) -> Iterator[Fault]:
    """Every section lies within the file, without wrapping around (ENV-015, ENV-016)."""
    for section in ADDRESSED:
        off, length = view.span(section)
        if length and view.present(section) and off + length > view.size:
            rule = "ENV-016" if off + length > U64 else "ENV-015"
            yield _envelope("Bounds", rule, f"{section}_off", f"{off} + {length} bytes", f"within {view.size} bytes")


def _header_present(view: View) -> Iterator[Fault]:
    if view.span("header")[1] == 0:
        yield _envelope("Bounds", "ENV-013", "header_len", 0, "a header")


def _dir_present(view: View) -> Iterator[Fault]:
    if view.span("dir")[1] < DIR_HEAD_SIZE:
        yield _envelope("Bounds", "ENV-014", "dir_len", view.span("dir")[1], f"at least {DIR_HEAD_SIZE}")


def _data_aligned(view: View) -> Iterator[Fault]:
    off = view.span("data")[0]
    if off % DATA_ALIGN:
        yield _envelope("Bounds", "ENV-017", "data_off", off, f"a multiple of {DATA_ALIGN}")


def json_of(part: str) -> Find:
    """The check that `header` or `masks_meta` is strict JSON."""

    def find(view: View) -> Iterator[Fault]:
        try:
            getattr(view, part)
        except Refusal as error:
            yield error.fault

    return find


def _dir_count(view: View) -> Iterator[Fault]:
    count = view.dir_head()[0]
    room = (view.span("dir")[1] - DIR_HEAD_SIZE) // RECORD_SIZE
    if count > room:
        rule = "DIR-005" if count * RECORD_SIZE > U64 else "DIR-004"
        yield Fault("Bounds", rule, "dir.count", view.span("dir")[0], f"{count} records", f"at most {room} in dir_len")


def _dir_pool(view: View) -> Iterator[Fault]:
    count, pool_off = view.dir_head()
    low, high = DIR_HEAD_SIZE + count * RECORD_SIZE, view.span("dir")[1]
    if not low <= pool_off <= high:
        yield Fault(
            "Bounds", "DIR-006", "dir.pool_off", view.span("dir")[0] + 8, str(pool_off), f"from {low} to {high}"
        )


def record_check(row: RecordCheck) -> Find:
    """A check of the records, on a view."""
    return lambda view: row.find(view.directory)


def _shared_names(view: View) -> Iterator[Fault]:
    return shared_names(view.directory)


def _duplicates(view: View) -> Iterator[Fault]:
    return duplicate_names(view.directory)


def _masks_head(view: View) -> Iterator[Fault]:
    length = len(view.part("masks"))
    if not view.present("masks"):
        return
    base = view.span("masks")[0]
    if length < MASKS_HEAD_SIZE:
        yield Fault("Bounds", "MASK-001", "masks", base, f"{length} bytes", f"at least {MASKS_HEAD_SIZE}")
    elif MASKS_HEAD_SIZE + view.masks_head()[1] > length:
        found = f"{MASKS_HEAD_SIZE} + {view.masks_head()[1]} bytes"
        yield Fault("Bounds", "MASK-002", "masks.meta_len", base + 4, found, f"within {length} bytes")


def _masks_meta(view: View) -> Iterator[Fault]:
    return json_of("masks_meta")(view) if view.present("masks") else iter(())


def _masks_blobs(view: View) -> Iterator[Fault]:
    if not view.present("masks"):
        return
    base, length = view.span("masks")
    masks = view.masks_meta.get("masks")
    if not isinstance(masks, list):
        yield Fault("Parse", "MASK-001", "masks.meta.masks", base, _json_name(masks), "a list")
        return
    for number, mask in enumerate(masks):
        field = f"masks.meta.masks[{number}]"
        span: list[Any] = [mask.get(key) if isinstance(mask, dict) else None for key in ("blob_off", "blob_len")]
        if not all(type(value) is int and value >= 0 for value in span):
            yield Fault(
                "Parse", "MASK-005", f"{field}.blob_off", base, f"{_json_name(mask)}", "whole blob_off and blob_len"
            )
        elif sum(span) > length:
            yield Fault(
                "Bounds", "MASK-005", f"{field}.blob_off", base, f"{span[0]} + {span[1]} bytes", f"within {length}"
            )


def _json_name(value: Any) -> str:
    return "nothing" if value is None else f"a JSON {type(value).__name__}"


def _index_entries(view: View) -> Iterator[Fault]:
    if not view.present("index"):
        return
    raw, base = view.part("index"), view.span("index")[0]
    if len(raw) < INDEX_HEAD_SIZE:
        yield Fault("Bounds", "IDX-001", "index", base, f"{len(raw)} bytes", f"at least {INDEX_HEAD_SIZE}")
        return
    count, room = int.from_bytes(raw[:4], "little"), (len(raw) - INDEX_HEAD_SIZE) // INDEX_ENTRY_SIZE
    if count > room:
        yield Fault("Bounds", "IDX-008", "index.n_entries", base, str(count), f"at most {room} in {len(raw)} bytes")
        return
    at = INDEX_HEAD_SIZE
    for entry in range(count):
        n_groups, n_heads = (int.from_bytes(raw[at + k : at + k + 4], "little") for k in (8, 12))
        end = at + INDEX_ENTRY_SIZE + 2 * n_groups + n_heads
        if end > len(raw):
            found = f"{n_groups} groups and {n_heads} heads, to byte {end}"
            yield Fault("Bounds", "IDX-007", f"index[{entry}]", base + at, found, f"within {len(raw)} bytes")
            return
        at = min(align(end, 4), len(raw))


_SOUND_DIR = ("file.length", "section.bounds", "dir.present", "dir.count", "dir.pool")
_SOUND_NAMES = (*_SOUND_DIR, "record.name_bounds", "dir.names")

CHECKS: tuple[Check, ...] = (
    Check("file.length", "ENV-001", _length),
    Check("envelope.magic", "ENV-002", _magic, ("file.length",)),
    Check("envelope.version", "ENV-004", _version, ("file.length",)),
    Check("envelope.features", "FEAT-001", features_outside(IMPLEMENTED_FEATURES), ("file.length",)),
    Check("section.bounds", "ENV-015", section_bounds, ("file.length",)),
    Check("header.present", "ENV-013", _header_present, ("file.length",)),
    Check("dir.present", "ENV-014", _dir_present, ("file.length",)),
    Check("data.aligned", "ENV-017", _data_aligned, ("file.length",)),
    Check("header.json", "VAL-012", json_of("header"), ("file.length", "section.bounds", "header.present")),
    Check("dir.count", "DIR-004", _dir_count, ("file.length", "section.bounds", "dir.present")),
    Check("dir.pool", "DIR-006", _dir_pool, ("file.length", "section.bounds", "dir.present", "dir.count")),
    Check("dir.names", "ENV-023", _shared_names, _SOUND_DIR),
    *(
        Check(row.name, row.rule, record_check(row), _SOUND_NAMES if row.name == "record.name_utf8" else _SOUND_DIR)
        for row in RECORD_CHECKS
    ),
    Check("dir.duplicates", "DIR-009", _duplicates, _SOUND_NAMES),
    Check("masks.head", "MASK-002", _masks_head, ("file.length", "section.bounds")),
    Check("masks.meta", "MASK-001", _masks_meta, ("file.length", "section.bounds", "masks.head")),
    Check("masks.blobs", "MASK-005", _masks_blobs, ("file.length", "section.bounds", "masks.head", "masks.meta")),
    Check("index.entries", "IDX-007", _index_entries, ("file.length", "section.bounds")),
)


def run_checks(view: View, checks: tuple[Check, ...] = CHECKS) -> Iterator[Fault]:
    """Every fault of the file, in the order of the table; a row whose needs failed is passed over."""
    failed: set[str] = set()
    for check in checks:
        if failed.isdisjoint(check.needs):
            for fault in check.find(view):
                failed.add(check.name)
                yield fault
