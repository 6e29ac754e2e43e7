"""Twins that encode wrongly: the wrong encoders whose law a graded rule asks, behind a reader that is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmfspec.codecs import encode
from cmfspec.contract.reference import Parts
from cmfspec.contract.rule import GRADED, WRITER, norms
from conformance.twins.encoders import WRONG, WrongEncoder
from conformance.twins.twin import Twin


def _encoding(wrong: WrongEncoder) -> Parts:
    """It encodes one encoding wrongly, or plans wrongly; the others as they should be."""

    def answer(wanted: str, weights: Any, options: Mapping[str, Any]) -> tuple[str, bytes]:
        used = wrong.plan("", weights.shape, wanted)
        told = options if used == wanted else {}
        if used != wrong.encoding:
            return used, encode(used, weights, **told)
        return used, wrong.answer(weights, **told)

    return Parts(encode=answer)


TWINS: tuple[Twin, ...] = tuple(
    Twin(wrong.name, wrong.breaks, wrong.fault, _encoding(wrong), wrong.also)
    for wrong in WRONG
    if norms()[wrong.breaks].tier in GRADED and norms()[wrong.breaks].binds == (WRITER,)
)
