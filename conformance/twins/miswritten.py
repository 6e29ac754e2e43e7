"""Twins that write files wrongly (§1 to §4): a right file with one habit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cmfspec.contract.reference import Parts
from cmfspec.format.blueprint import Blueprint
from cmfspec.format.build import Edit, render
from cmfspec.layout import BINARY_MASKS, DTYPE_IDS, MAX_NDIM, QUANT_2F, SKILL_FILE, TENSOR_DIR
from conformance.twins.twin import Twin

RIGHT = Parts()


def _edited(edits: Sequence[Edit] | Callable[[Blueprint], Sequence[Edit]]) -> Parts:
    """It writes what these edits make of a right file, and refuses what a right writer refuses."""

    def write(blueprint: Blueprint) -> bytes:
        RIGHT.write(blueprint)
        return render(blueprint, edits(blueprint) if callable(edits) else edits)

    return Parts(write=write)


def _told(change: Callable[[Blueprint], Blueprint]) -> Parts:
    """It writes something else than it was told."""
    return Parts(write=lambda blueprint: RIGHT.write(change(blueprint)))


def _bits(change: Callable[[int, Blueprint], int]) -> Parts:
    def edits(blueprint: Blueprint) -> Sequence[Edit]:
        right = int.from_bytes(render(blueprint)[12:16], "little")
        return (("features", change(right, blueprint)),)

    return _edited(edits)


def _arch(change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Parts:
    def changed(blueprint: Blueprint) -> Blueprint:
        return replace(blueprint, header={**blueprint.header, "arch": dict(change(blueprint.header["arch"]))})

    return _told(changed)


def each_tag_once(arch: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**arch, "layer_types": list(dict.fromkeys(arch["layer_types"]))}


def without_falsehoods(arch: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in arch.items() if value is not False}


def without_linear(arch: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in arch.items() if not key.startswith("linear_")}


def _renamed(blueprint: Blueprint) -> Blueprint:
    return replace(blueprint, tensors=tuple(replace(t, name=t.name.replace(" ", "_")) for t in blueprint.tensors))


def _short_names(blueprint: Blueprint) -> Blueprint:
    return replace(
        blueprint,
        tensors=tuple(
            replace(t, name=t.name.encode()[: len(t.name.encode()) % 2**16].decode("utf-8", "ignore"))
            for t in blueprint.tensors
        ),
    )


def _short_dims(blueprint: Blueprint) -> Blueprint:
    return replace(
        blueprint,
        tensors=tuple(replace(t, shape=tuple(dim % 2**32 for dim in t.shape[:MAX_NDIM])) for t in blueprint.tensors),
    )


def _bytes_as_mixed(blueprint: Blueprint) -> Sequence[Edit]:
    return [(f"dir[{i}].dtype", 5) for i, t in enumerate(blueprint.tensors) if t.dtype == DTYPE_IDS["u8"]]


def _ones_behind(blueprint: Blueprint) -> Sequence[Edit]:
    return [
        (f"dir[{i}].shape{axis}", 1) for i, t in enumerate(blueprint.tensors) for axis in range(len(t.shape), MAX_NDIM)
    ]


def _unaligned_at_twenty(blueprint: Blueprint) -> Sequence[Edit]:
    return [("dir[20].off", {"plus": 2})] if len(blueprint.tensors) > 20 else []


def _junk_between(blueprint: Blueprint) -> Sequence[Edit]:
    return [("data.gap[1]", 3)] if len(blueprint.tensors) > 1 else []


def _empty_blob_anywhere(blueprint: Blueprint) -> Sequence[Edit]:
    return [] if blueprint.tensors else [("envelope.data_off", {"plus": -64})]


TWINS: tuple[Twin, ...] = (
    Twin("flags-one", "ENV-005", "sets a flag", _edited((("envelope.flags", 1),))),
    Twin("padded-envelope", "ENV-007", "leaves eight bytes behind the envelope", _edited((("gap.header", 8),))),
    Twin(
        "blob-last",
        "ENV-010",
        "writes the blob last",
        _edited((("order", ["header", "dir", "masks", "vocab", "index", "data"]),)),
    ),
    Twin("no-directory-bit", "FEAT-003", "leaves bit 0 clear", _bits(lambda bits, _: bits & ~(1 << TENSOR_DIR))),
    Twin("always-masks", "FEAT-005", "sets bit 1 always", _bits(lambda bits, _: bits | 1 << BINARY_MASKS)),
    Twin("no-two-fields", "FEAT-007", "leaves bit 2 clear", _bits(lambda bits, _: bits & ~(1 << QUANT_2F))),
    Twin("no-skill-file", "FEAT-014", "leaves bit 6 clear", _bits(lambda bits, _: bits & ~(1 << SKILL_FILE))),
    Twin("bytes-as-mixed", "FEAT-020", "writes bytes with the reserved id 5", _edited(_bytes_as_mixed)),
    Twin("no-falsehoods", "HDR-011", "leaves out of arch what is false", _arch(without_falsehoods)),
    Twin("each-tag-once", "HDR-013", "writes each tag of layer_types once", _arch(each_tag_once)),
    Twin("no-section-hashes", "HDR-023", "writes no section_hashes", _edited((("header.section_hashes", None),))),
    Twin("no-linear-sizes", "HDR-031", "knows no linear layers", _arch(without_linear)),
    Twin("no-spaces", "DIR-011", "writes an underscore for a space", _told(_renamed)),
    Twin("ones-behind-the-shape", "DIR-013", "fills the shape up with ones", _edited(_ones_behind)),
    Twin("short-names", "DIR-024", "keeps a name's length in 16 bits", _told(_short_names)),
    Twin("short-dims", "DIR-025", "keeps a dimension in 32 bits, and six of them", _told(_short_dims)),
    Twin("empty-blob-anywhere", "BLOB-001", "does not align an empty blob", _edited(_empty_blob_anywhere)),
    Twin("off-at-twenty", "BLOB-002", "loses the boundary at the twentieth tensor", _edited(_unaligned_at_twenty)),
    Twin("junk-between", "BLOB-003", "leaves what was in memory between two tensors", _edited(_junk_between)),
)
