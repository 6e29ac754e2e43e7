"""Answers: what an implementation said, and what one can hold it to.

Law: every `must_…` raises the outcome that fits; there is no bare assert, so `python -O` deletes nothing. What a stranger
wrote into `out` is untrusted like the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.contract import compare
from cmfspec.contract.outcome import (
    NotApplicable,
    Observed,
    WrongAccept,
    WrongReason,
    WrongReject,
    WrongValue,
)
from cmfspec.contract.outcome import Protocol as BrokenProtocol
from cmfspec.contract.protocol import BadReply, Opened, Reply, TensorLine, Verified, decode_line
from cmfspec.errors import Refusal
from cmfspec.format.blueprint import Entry
from cmfspec.format.container import Container
from cmfspec.format.hash64 import hash64
from cmfspec.format.view import View
from cmfspec.layout import DTYPE_NAMES


@dataclass(frozen=True)
class Answer:
    """A reply, and what one can hold it to."""

    op: str
    reply: Reply
    kinds: bool
    excuse: str = ""  # why even a valid file may be refused: what it holds and hello doesn't declare

    def __str__(self) -> str:
        if self.reply.status == "ok":
            extra = f" with warnings {list(self.reply.warnings)}" if self.reply.warnings else ""
            return f"{self.op}: accepted{extra}"
        kind = f" {self.reply.kind}" if self.kinds else ""
        said = f", {self.reply.message!r}" if self.reply.message else ""
        return f"{self.op}: refused{kind}{said}"

    @property
    def accepted(self) -> bool:
        """Whether the reply is `ok`; if not, it is a refusal."""
        return self.reply.status == "ok"

    def must_be_accepted(self, tensors: int | None = None) -> None:
        """The file is valid. tensors: how many the directory has, held to if the reply says a number.

        Raises NotApplicable if it was refused and holds what hello doesn't declare."""
        if not self.accepted and self.excuse:
            raise NotApplicable(f"a reader of {self.excuse}", f"hello does not declare it; {self}")
        if not self.accepted:
            raise WrongReject("the file accepted", str(self))
        opened = self.reply.value
        if tensors is not None and isinstance(opened, Opened) and opened.tensors not in (None, tensors):
            raise WrongValue(f"{tensors} tensors", f"{opened.tensors}")

    def must_refuse(self, *kinds: type[Refusal]) -> None:
        """The file is invalid. kinds: those that §1.2 names for it, if it names any."""
        named = " or ".join(kind.kind for kind in kinds)
        if self.accepted:
            raise WrongAccept(f"a refusal{' ' * bool(named)}{named}", str(self))
        if kinds and self.kinds and self.reply.kind not in {kind.kind for kind in kinds}:
            raise WrongReason(f"a refusal {named}", str(self))

    def must_lack(self, absent: str) -> None:
        """The section is absent from the file. Raises NotApplicable if the reply doesn't say which sections there are."""
        if not self.accepted:
            return
        sections = self.reply.value.sections
        if sections is None:
            raise NotApplicable("the sections that `open` sees", "the reply doesn't list them")
        if absent in sections:
            raise WrongValue(f"no {absent} section", f"sections {', '.join(sections)}")

    def observe(self) -> NoReturn:
        """The text is silent: report what was done."""
        raise Observed("anything: the text is silent", str(self))


@dataclass(frozen=True)
class Verdict(Answer):
    """What verify found."""

    @property
    def _verified(self) -> Verified:
        verified: Verified = self.reply.value
        return verified

    def __str__(self) -> str:
        if not self.accepted:
            return Answer.__str__(self)
        problems = ", ".join(_place(p.where, p.index) for p in self._verified.problems[:5])
        return "verify: sound" if self._verified.sound else f"verify: not sound, problems: {problems or 'none named'}"

    def must_be_sound(self) -> None:
        """Nothing is wrong with the file."""
        self.must_be_accepted()
        if not self._verified.sound:
            raise WrongReject("a sound file", str(self))

    def must_report(self, where: str, index: int | None = None, *, refusing: bool = False) -> None:
        """The damage is found, in its place. refusing: refusing to open the file is as good."""
        wanted = f"a problem at {_place(where, index)}"
        if not self.accepted:
            if not refusing:
                self.must_be_accepted()
            return
        if self._verified.sound:
            raise WrongAccept(wanted + (" or a refusal" if refusing else ""), str(self))
        problems = self._verified.problems
        named = any(p.where == where and index in (None, p.index) for p in problems)
        if not named and (problems or self.kinds):
            raise WrongValue(wanted, str(self))

    def must_find_something(self) -> None:
        """The damage is found, wherever the chain shows it first; a refusal is as good."""
        if self.accepted and self._verified.sound:
            raise WrongAccept("a problem or a refusal", str(self))


@dataclass(frozen=True)
class Listing(Answer):
    """The directory as the subject lists it."""

    out: str = ""

    def lines(self) -> list[TensorLine]:
        """The entries, in order. Raises Protocol for what isn't the list."""
        try:
            return [decode_line(line) for line in written(self.out).splitlines() if line.strip()]
        except BadReply as error:
            raise BrokenProtocol("a line of JSON for each tensor", str(error)) from None

    def must_be(self, entries: Sequence[Entry]) -> None:
        """Exactly these tensors in this order."""
        self.must_be_accepted()
        lines = self.lines()
        if len(lines) != len(entries):
            raise WrongValue(f"{len(entries)} tensors", f"{len(lines)}")
        for index, (line, entry) in enumerate(zip(lines, entries, strict=True)):
            want = (
                entry.name,
                entry.dtype,
                list(entry.shape),
                str(len(entry.payload)),
                f"{hash64(entry.payload):016x}",
            )
            got = (line.name, line.dtype, line.shape, line.nbytes, line.hash.lower())
            for field, g, w in zip(("name", "dtype", "shape", "nbytes", "hash"), got, want, strict=True):
                if g != w:
                    raise WrongValue(f"tensor {index} with {field} {_short(w)}", f"{_short(g)}")


@dataclass(frozen=True)
class Values(Answer):
    """One tensor as the subject decodes it."""

    out: str = ""

    def must_decode(self, entry: Entry) -> None:
        """The values that the entry's payload has by §3.2 ."""
        self.must_be_accepted()
        codec = CODECS[entry.dtype]
        want = codec.decode(memoryview(entry.payload), entry.shape).reshape(-1)
        raw = written(self.out)
        if len(raw) != 4 * want.size:
            raise WrongValue(f"{want.size} values, {4 * want.size} bytes", f"{len(raw)} bytes")
        got = np.frombuffer(raw, "<f4").astype(np.float32)
        relative = compare.Q4TP_RELATIVE if codec.name == "q4tp" else 0.0
        at = compare.first_difference(got, want, relative)
        if at is not None:
            raise WrongValue(f"{codec.name} {entry.name!r}[{at}] = {want[at]!r}", f"{got[at]!r}")

    def must_be_bytes(self, payload: bytes) -> None:
        """The payload as it lies in the file."""
        self.must_be_accepted()
        got = written(self.out)
        if got != payload:
            at = next(
                (i for i, (a, b) in enumerate(zip(got, payload, strict=False)) if a != b), min(len(got), len(payload))
            )
            raise WrongValue(f"the payload's {len(payload)} bytes", f"{len(got)} bytes, different from byte {at} on")


@dataclass(frozen=True)
class HeaderSeen(Answer):
    """The header as the subject reads it."""

    out: str = ""

    def must_have(self, wanted: dict[str, Any], keys: Iterable[str]) -> None:
        """The same values at these keys of the text's example (`a.b` for nested ones)."""
        self.must_be_accepted()
        try:
            seen = json.loads(written(self.out))
        except ValueError as error:
            raise BrokenProtocol("the header as JSON", str(error)) from None
        for key in keys:
            got, want = _dig(seen, key), _dig(wanted, key)
            if got != want:
                raise WrongValue(f"header {key} = {_short(want)}", _short(got))


@dataclass(frozen=True)
class Encoding(Answer):
    """Weights as the subject encodes them."""

    out: str = ""
    asked: int = 0

    @property
    def payload(self) -> bytes:
        """The payload. Raises WrongReject if there is none."""
        self.must_be_accepted()
        return written(self.out)

    def must_be_in(self, *names: str) -> str:
        """The encoding that was used is one of these; its name."""
        self.must_be_accepted()
        used = self.reply.value.dtype
        used = self.asked if used is None else used
        name = DTYPE_NAMES[used] if 0 <= used < len(DTYPE_NAMES) else f"dtype {used}"
        if name not in names:
            raise WrongValue(" or ".join(names), name)
        return name


@dataclass(frozen=True)
class Written:
    """A file that a subject wrote, as our own reader sees it."""

    opened: Container

    @property
    def view(self) -> View:
        """Its bytes and its parts."""
        return self.opened.view

    @property
    def envelope(self) -> dict[str, int]:
        """The fields of its envelope."""
        return self.view.envelope

    def has_bit(self, bit: int) -> bool:
        """Whether this bit of required_features is set."""
        return bool(self.envelope["required_features"] >> bit & 1)

    def must_be(self, what: str, got: Any, want: Any) -> None:
        """Something about it is as it should be."""
        if got != want:
            raise WrongValue(f"{what}: {_short(want)}", _short(got))

    def observe(self, tell: Callable[[Written], str]) -> NoReturn:
        """The text is silent: report what was done."""
        raise Observed("anything: the text is silent", tell(self))


def _dig(node: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(node, list):
            node = node[int(key)] if int(key) < len(node) else None
        else:
            node = node.get(key) if isinstance(node, dict) else None
    return node


def written(out: str) -> bytes:
    """What the implementation left in `out`. Raises Protocol."""
    try:
        return Path(out).read_bytes()
    except OSError as error:
        raise BrokenProtocol("an answer in the file that `out` names", f"{error.strerror}") from None


def _place(where: str, index: int | None) -> str:
    return where if index is None else f"{where} {index}"


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
