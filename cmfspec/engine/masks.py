"""Task masks (§5, §5.1): which neurons, heads, layers and experts count.

Law: bit i of a row is bit i % 8 of byte i // 8; set means active; bits past the dimension are never counted. A blob's size
follows from `arch` and the mask's own `has_expert_fields`; a shorter one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.engine.arch import Arch, decline, few, refuse
from cmfspec.format.container import Container

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]

DENSE = "dense"  # the name of no mask


@dataclass(frozen=True)
class Mask:
    """ffn [layers, intermediate_size], heads [layers, num_attention_heads], gates [layers], experts [layers, num_experts]
    or None where the mask narrows no routing; measured: whether the file says what the mask costs or gains (MASK-021)."""

    ffn: Bits
    heads: Bits
    gates: Bits
    experts: Bits | None
    measured: bool


def mask_named(container: Container, arch: Arch, task: str | None) -> Mask | None:
    """The mask of a task; None for the dense model. Raises Unanswerable for another task, Unrunnable for a bad blob."""
    if task is None or task == DENSE:
        return None
    listed: list[dict[str, Any]] = container.view.masks_meta["masks"] if container.view.present("masks") else []
    names = [record.get("name") for record in listed]
    if task not in names:
        known = few(str(name) for name in names) or "no other: the file has no masks"
        decline("MASK-034", "task", repr(task), f"{DENSE}, {known}")
    place = names.index(task)
    record = listed[place]
    experts = record.get("has_expert_fields", False)
    if not isinstance(experts, bool):
        refuse("MASK-011", f"masks.meta.masks[{place}].has_expert_fields", repr(experts)[:80], "true or false")
    if experts and arch.moe is None:
        refuse("MASK-012", f"masks.meta.masks[{place}].has_expert_fields", "true", "false: header.arch has no moe")
    return _unpacked(container, arch, record, place, arch.moe.num_experts if experts and arch.moe else 0)


def _unpacked(container: Container, arch: Arch, record: dict[str, Any], place: int, experts: int) -> Mask:
    """The rows of a blob: all of ffn, all of heads, gates, all of experts."""
    layers = arch.num_layers
    areas = ((layers, arch.intermediate_size), (layers, arch.num_attention_heads), (1, layers), (layers, experts))
    size = sum(rows * -(-bits // 8) for rows, bits in areas)
    start, length = record["blob_off"], record["blob_len"]  # whole, and inside the section: checked at open
    if length < size:
        refuse("MASK-007", f"masks.meta.masks[{place}].blob_len", length, f"{size}, by the sizes in header.arch")
    raw = np.frombuffer(container.view.part("masks"), np.uint8, size, start)
    found: list[Bits] = []
    for rows, bits in areas:
        width = -(-bits // 8)
        area, raw = raw[: rows * width].reshape(rows, width), raw[rows * width :]
        found.append(np.unpackbits(area, axis=1, bitorder="little")[:, :bits].astype(np.bool_))
    quality = record.get("quality")
    measured = isinstance(quality, dict) and {"metric", "value"} <= quality.keys()
    return Mask(found[0], found[1], found[2][0], found[3] if experts else None, measured)
