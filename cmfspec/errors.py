"""The named refusals of §1.2, and the one fault record behind them.

Law: the reader accepts, or raises a `Refusal`; nothing else ever leaves it. A refusal carries the `Fault` that it
rests on: the field, its offset in the file, what was found there and what was wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one file.

    kind: the name of the refusal (§1.2), or `Other`.
    rule: the id in rules.json that the file breaks.
    field: the field's name, `envelope.version` or `dir[3].nbytes`.
    offset: where the field lies, in bytes from the start of the file; None where it has no place.
    found, wanted: what stands there, and what would have been right, in words.
    """

    kind: str
    rule: str
    field: str
    offset: int | None
    found: str
    wanted: str

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at 0x{self.offset:x}"
        return f"{self.kind}: {self.field}{at}: found {self.found}, wanted {self.wanted} [{self.rule}]"


class Refusal(Exception):
    """An invalid file (§1.2). `fault` says what and where; `kind` is the class's own name."""

    kind: ClassVar[str] = "Other"

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class InvalidMagic(Refusal):
    """The file does not begin with `CMF\\x01` (§1.2)."""

    kind = "InvalidMagic"


class UnsupportedVersion(Refusal):
    """`version` is not 2 (§1.2)."""

    kind = "UnsupportedVersion"


class UnsupportedFeature(Refusal):
    """A bit of `required_features` that the reader does not implement (§1.1)."""

    kind = "UnsupportedFeature"


class Bounds(Refusal):
    """A section, a tensor or a structure inside them reaches past what holds it, or is misaligned (§1.2)."""

    kind = "Bounds"


class Parse(Refusal):
    """The bytes are there but do not mean anything: a bad name, dtype, rank or JSON (§1.2)."""

    kind = "Parse"


class Other(Refusal):
    """A refusal for which §1.2 has no name, such as a path that is no regular file."""


class CannotEncode(Other):
    """Weights that an encoding can't hold: NaN, an infinity, or a scale past the largest half. A writer refuses them, so that
    no file has them; `fault.field` begins with the tensor's name."""


class Unrunnable(Other):
    """A valid file that an engine can't compute with: it says what is missing, and never guesses."""


class Unanswerable(Unrunnable):
    """A request that a model has no answer to, such as an unknown task: the fault is the asker's, not the file's."""


REFUSALS: dict[str, type[Refusal]] = {
    cls.kind: cls for cls in (InvalidMagic, UnsupportedVersion, UnsupportedFeature, Bounds, Parse, Other)
}


def refusal(fault: Fault) -> Refusal:
    """The exception for a fault, of the class that its kind names."""
    return REFUSALS[fault.kind](fault)
