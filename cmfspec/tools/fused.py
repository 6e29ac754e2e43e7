"""Tensors that are stored fused, as the rows that each of their parts has.

Law: a part is a choice of rows and columns of what is stored: values are moved, none is computed. The stored shape is checked
first; what is fused and which way round is the family's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from cmfspec.tools.safetensors import Stored
from cmfspec.tools.unpackable import Unpackable, shown

Arch = Mapping[str, Any]
NUMBER = r"(?:0|[1-9][0-9]{0,5})"  # of a layer or an expert, written in one way only


@dataclass(frozen=True, slots=True)
class Cut:
    """A tensor to be written, as a part of a stored one: [rows, cols], all leading dimensions counted as rows.

    shape: of the result. rows: ranges of rows, in order. cols: (first, step) of the columns. turned: transposed at the end.
    """

    name: str
    stored: Stored
    shape: tuple[int, ...]
    rows: tuple[tuple[int, int], ...]
    cols: tuple[int, int] = (0, 1)
    turned: bool = False

    @property
    def count(self) -> int:
        """How many values."""
        return prod(self.shape)


def _split(stored: Stored, prefix: str, sizes: Mapping[str, int]) -> Iterator[Cut]:
    """Consecutive rows."""
    wants(stored, (sum(sizes.values()), stored.cols))
    at = 0
    for name, size in sizes.items():
        yield Cut(f"{prefix}{name}", stored, (size, stored.cols), ((at, at + size),))
        at += size


def _qkv(stored: Stored, prefix: str, arch: Arch) -> Iterator[Cut]:
    """phi3: [q; k; v]."""
    kv = arch["num_kv_heads"] * arch["head_dim"]
    sizes = {"q": arch["num_attention_heads"] * arch["head_dim"], "k": kv, "v": kv}
    return _split(stored, prefix, {f"{role}_proj.weight": size for role, size in sizes.items()})


def _gate_up(stored: Stored, prefix: str, arch: Arch) -> Iterator[Cut]:
    """phi3: [gate; up]."""
    inner: int = arch["intermediate_size"]
    return _split(stored, prefix, {"gate_proj.weight": inner, "up_proj.weight": inner})


def _by_key_head(parts: Mapping[str, str], sizes: Callable[[Arch], Mapping[str, int]]) -> Callable[..., Iterator[Cut]]:
    """qwen3_next: a block of rows for each key head, in it one of each role. parts: role to the tensor that it goes to;
    a tensor has its roles one after the other, each with all its heads."""

    def cuts(stored: Stored, prefix: str, arch: Arch) -> Iterator[Cut]:
        heads, widths = arch["linear_num_key_heads"], sizes(arch)
        block = sum(widths.values())
        wants(stored, (heads * block, stored.cols))
        ranges: dict[str, list[tuple[int, int]]] = {}
        at = 0
        for role, width in widths.items():
            ranges.setdefault(parts[role], []).extend(
                (head * block + at, head * block + at + width) for head in range(heads)
            )
            at += width
        for name, rows in ranges.items():
            yield Cut(f"{prefix}{name}", stored, (sum(b - a for a, b in rows), stored.cols), tuple(rows))

    return cuts


def _qkvz_sizes(arch: Arch) -> dict[str, int]:
    key = arch["linear_key_head_dim"]
    value = arch["linear_num_value_heads"] // arch["linear_num_key_heads"] * arch["linear_value_head_dim"]
    return {"q": key, "k": key, "v": value, "z": value}


def _ba_sizes(arch: Arch) -> dict[str, int]:
    return dict.fromkeys("ba", arch["linear_num_value_heads"] // arch["linear_num_key_heads"])


_QKVZ = _by_key_head({**dict.fromkeys("qkv", "in_proj_qkv.weight"), "z": "in_proj_z.weight"}, _qkvz_sizes)
_BA = _by_key_head({"b": "in_proj_b.weight", "a": "in_proj_a.weight"}, _ba_sizes)


def _bank(roles: tuple[str, ...]) -> Callable[..., Iterator[Cut]]:
    """A bank of experts: [experts, rows, hidden], with the roles one after the other; gpt_oss has it transposed, and
    the roles interleaved."""

    def cuts(stored: Stored, prefix: str, arch: Arch) -> Iterator[Cut]:
        experts, hidden = arch["moe"]["num_experts"], arch["hidden_size"]
        inner = arch["moe"]["moe_intermediate_size"]
        out, into = (hidden, inner) if roles == ("down",) else (inner, hidden)
        turned, many = arch["arch_name"] in TURNED, len(roles)
        wants(stored, (experts, into, many * out) if turned else (experts, many * out, into))
        for place, role in enumerate(roles):
            for expert in range(experts):
                name = f"{prefix}{expert}.{role}_proj.weight"
                if turned:
                    rows = ((expert * into, (expert + 1) * into),)
                    yield Cut(name, stored, (out, into), rows, (place, many), turned=True)
                else:
                    first = (expert * many + place) * out
                    yield Cut(name, stored, (out, into), ((first, first + out),))

    return cuts


def _bank_bias(roles: tuple[str, ...]) -> Callable[..., Iterator[Cut]]:
    """gpt_oss: [experts, roles interleaved]."""

    def cuts(stored: Stored, prefix: str, arch: Arch) -> Iterator[Cut]:
        moe, many = arch["moe"], len(roles)
        out = arch["hidden_size"] if roles == ("down",) else moe["moe_intermediate_size"]
        wants(stored, (moe["num_experts"], many * out))
        for place, role in enumerate(roles):
            for expert in range(moe["num_experts"]):
                name = f"{prefix}{expert}.{role}_proj.bias"
                yield Cut(name, stored, (out,), ((expert, expert + 1),), (place, many))

    return cuts


TURNED = ("gpt_oss",)  # families whose banks are transposed
FUSED: tuple[tuple[re.Pattern[str], Callable[..., Iterator[Cut]], str], ...] = tuple(
    (re.compile(rf"^(model\.(?:mtp\.)?layers\.{NUMBER}\.{where})\.{what}$"), cuts, needs)
    for where, what, cuts, needs in (
        (r"self_attn", r"qkv_proj\.weight", _qkv, ""),
        (r"mlp", r"gate_up_proj\.weight", _gate_up, ""),
        (r"linear_attn", r"in_proj_qkvz\.weight", _QKVZ, "linear_core"),
        (r"linear_attn", r"in_proj_ba\.weight", _BA, "linear_core"),
        (r"mlp\.experts", r"gate_up_proj", _bank(("gate", "up")), "moe"),
        (r"mlp\.experts", r"down_proj", _bank(("down",)), "moe"),
        (r"mlp\.experts", r"gate_up_proj_bias", _bank_bias(("gate", "up")), "moe"),
        (r"mlp\.experts", r"down_proj_bias", _bank_bias(("down",)), "moe"),
    )
)


def wants(stored: Stored, shape: tuple[int, ...]) -> None:
    """Raises Unpackable for a tensor of another shape."""
    if stored.shape != shape:
        raise Unpackable(stored.file, f"tensor {shown(stored.name)}", list(stored.shape), f"the shape {list(shape)}")
