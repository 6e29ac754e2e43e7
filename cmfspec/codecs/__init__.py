"""The encodings of §3.1, one file per family; `CODECS` by id. A reserved id (5, 7) has a name and no codec.

`encode(name, weights, **options)` makes a payload, `plan` says which encoding a tensor gets; reading loads neither."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cmfspec.codecs import plain, q1, q4, q8, vbit
from cmfspec.codecs.codec import Codec

if TYPE_CHECKING:
    from cmfspec.codecs.encode_vbit import family_widths
    from cmfspec.codecs.encoders import ENCODERS, encode, plan

CODECS: dict[int, Codec] = {
    codec.id: codec for family in (plain, q8, q4, vbit, q1) for codec in family.CODECS
}  # fmt: skip

__all__ = ["CODECS", "ENCODERS", "Codec", "encode", "family_widths", "plan"]

_HOME = {
    "ENCODERS": "cmfspec.codecs.encoders",
    "encode": "cmfspec.codecs.encoders",
    "family_widths": "cmfspec.codecs.encode_vbit",
    "plan": "cmfspec.codecs.encoders",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cmfspec.codecs' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
