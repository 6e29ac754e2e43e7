"""A `.cmf` to one of another encoding: decode, encode, and keep everything else (§3, §9).

Law: names, their order, shapes, sections and every field of the header stay; new are the encodings (chosen as `pack` chooses
them), `quant_type` and a note in the provenance. A payload that has the wanted encoding already is copied as it lies, and so
are raw bytes (u8). A damaged file is refused: what its hashes don't vouch for must not get new ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cmfspec
from cmfspec.codecs import CODECS, plan
from cmfspec.errors import CannotEncode
from cmfspec.format.container import Container, Tensor
from cmfspec.layout import OPTIONAL
from cmfspec.tools.blocks import family, loudest, payload
from cmfspec.tools.output import appearing, target_of
from cmfspec.tools.pack import EXPERT, LABELS, QUANTS, Progress, Report, silent
from cmfspec.tools.unpackable import Unpackable, shown
from cmfspec.tools.writer import Item, Tally, write

if TYPE_CHECKING:
    from numpy.typing import NDArray

RAW = "u8"


def requant(source: str | os.PathLike[str], out: str, quant: str, progress: Progress = silent) -> Report:
    """Write the file `source` to the file `out` in the encoding `quant`, a key of QUANTS.

    Raises Refusal for a source that isn't valid, Unpackable for one that is damaged or has tensors without values,
    Unwritable for an output that can't be, OSError. Then nothing has appeared.
    """
    path, encoding = Path(source), QUANTS[quant]
    opened = cmfspec.open(path)
    target = target_of(out, [path])
    if problem := next(cmfspec.verify(opened), None):
        raise Unpackable(path, problem.where, str(problem), "a sound file")
    header = _header(path, opened.header, encoding)
    tally = Tally(sum(prod(tensor.shape) for tensor in opened), progress)
    widths = _widths(path, opened, encoding)
    items = [_item(path, opened, tensor, encoding, widths) for tensor in opened]

    with appearing(target, [target.name]) as (opener,), opener() as stream:
        write(stream, header, items, {name: opened.view.part(name) for name in OPTIONAL}, tally)
    return Report((target,), tally.counts, ())


def _header(path: Path, old: Mapping[str, Any], encoding: str) -> dict[str, Any]:
    note = {"tool": f"cmfspec {cmfspec.__version__}", "quant": encoding, "from": old.get("quant_type")}
    told = old.get("provenance")
    header = {key: value for key, value in old.items() if key != "section_hashes"} | {"quant_type": LABELS[encoding]}
    if told is None or isinstance(told, dict):
        header["provenance"] = {**(told or {}), "requant": note}
    try:
        json.dumps(header, allow_nan=False)
    except ValueError:
        raise Unpackable(path, "header", "a number past the largest double", "numbers that can be kept") from None
    return header


def _encoding(path: Path, tensor: Tensor, encoding: str) -> str:
    """The encoding that a tensor gets. Raises Unpackable for one that has no values."""
    if tensor.dtype not in CODECS:
        where = f"tensor {tensor.index}, {shown(tensor.name)}"
        raise Unpackable(path, where, f"{tensor.dtype_name}, reserved", "an encoding of weights")
    return RAW if tensor.dtype_name == RAW else plan(tensor.name, tensor.shape, encoding)


def _item(
    path: Path, opened: Container, tensor: Tensor, encoding: str, widths: Mapping[str, NDArray[np.uint8]]
) -> Item:
    dtype = _encoding(path, tensor, encoding)

    def made() -> bytes | bytearray | memoryview:
        if dtype == tensor.dtype_name:
            return opened.raw(tensor.index)
        try:
            return payload(dtype, opened.values(tensor.index), tensor.name, widths.get(tensor.name))
        except ValueError as error:
            raise Unpackable(path, f"tensor {tensor.index}", error, f"what {dtype} holds") from None
        except CannotEncode as error:
            fault = error.fault
            raise Unpackable(path, ascii(fault.field)[1:-1], fault.found, f"{fault.wanted}, in {dtype}") from None

    return Item(tensor.name, dtype, tensor.shape, made)


def _widths(path: Path, opened: Container, encoding: str) -> dict[str, NDArray[np.uint8]]:
    """For vbit: the widths of the rows of experts, as for `pack`."""
    families: dict[str, list[Tensor]] = {}
    for tensor in opened:
        dtype = _encoding(path, tensor, encoding)
        if dtype in ("vbit", "vbit_ro") and dtype != tensor.dtype_name and EXPERT.search(tensor.name):
            families.setdefault(EXPERT.sub(".experts.*.", tensor.name), []).append(tensor)
    found: dict[str, NDArray[np.uint8]] = {}
    for members in families.values():
        loudness = [loudest(opened.values(tensor.index)) for tensor in members]
        for tensor, rows in zip(members, loudness, strict=True):
            if not np.isfinite(rows).all():
                raise Unpackable(path, f"tensor {tensor.index}", "values that aren't finite", "finite weights")
        found |= zip((tensor.name for tensor in members), family(loudness), strict=True)
    return found
