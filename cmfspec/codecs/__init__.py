"""The encodings of §3.1, one file per family; `CODECS` by id. A reserved id (5, 7) has a name and no codec.

`encode(name, weights, **options)` makes a payload, `plan` says which encoding a tensor gets."""

from __future__ import annotations

from cmfspec.codecs import plain, q1, q4, q8, vbit
from cmfspec.codecs.codec import Codec
from cmfspec.codecs.encode_vbit import family_widths
from cmfspec.codecs.encoders import ENCODERS, encode, plan

CODECS: dict[int, Codec] = {
    codec.id: codec for family in (plain, q8, q4, vbit, q1) for codec in family.CODECS
}  # fmt: skip

__all__ = ["CODECS", "ENCODERS", "Codec", "encode", "family_widths", "plan"]
