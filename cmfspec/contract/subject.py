"""A subject: typed questions to an implementation, and answers that hold it to something.

Law: a check sees only this. Every `must_…` raises the outcome that fits; there is no bare assert, so `python -O` deletes
nothing. What hello doesn't declare is NOT_APPLICABLE before it is asked; what it declares and then doesn't support is ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from cmfspec.codecs import CODECS
from cmfspec.contract import compare
from cmfspec.contract.answers import Answer, Encoding, HeaderSeen, Listing, Values, Verdict, Written, written
from cmfspec.contract.computed import Continuation, Scores, Surprise
from cmfspec.contract.link import Link
from cmfspec.contract.outcome import (
    Beyond,
    ErrorReply,
    NotApplicable,
    Resource,
    WrongValue,
)
from cmfspec.contract.protocol import Family, Form, Rows, Under
from cmfspec.format import container, verify
from cmfspec.format.blueprint import Blueprint, Entry, canonical, to_json
from cmfspec.layout import DTYPE_IDS, DTYPE_NAMES, ENVELOPE_AT, FEATURE_NAMES, IMPLEMENTED_FEATURES, RESERVED_FEATURES

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

FEATURES_AT = ENVELOPE_AT["required_features"]
WRITES = ("encode", "write")  # operations that are asked about something that is no container


class Content(Protocol):
    """Anything that a question can be about."""

    def content(self) -> bytes:
        """The bytes of the file."""
        ...


class Tensors(Content, Protocol):
    """A file of which is known what it should hold."""

    @property
    def tensors(self) -> tuple[Entry, ...]:
        """The tensors that a right reader finds."""
        ...


class Edited(Tensors, Protocol):
    """A file that is wrong, one lie away from a right one."""

    @property
    def base(self) -> Tensors:
        """The right one."""
        ...


class Described(Protocol):
    """A file by what it holds."""

    @property
    def blueprint(self) -> Blueprint:
        """What it holds."""
        ...


@dataclass(frozen=True)
class _Bytes:
    """What an encoder is to encode, or the description of what a writer is to write."""

    raw: bytes

    def content(self) -> bytes:
        return self.raw


@dataclass(frozen=True)
class Asked:
    """What was asked about: the file, its hole, and the lines that went to and fro."""

    content: bytes = b""
    hole: tuple[int, int] | None = None
    exchange: tuple[str, str] | None = None


class Subject:
    """An implementation behind a link, for the length of one case."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.hello = link.hello
        self.last = Asked()
        self._paths: dict[bytes, str] = {}

    @property
    def evidence(self) -> Asked:
        """The file that was last asked about, with the request and the reply."""
        return Asked(self.last.content, self.last.hole, self.link.transcript[-1] if self.link.transcript else None)

    def path(self, file: Content) -> str:
        """Where the file lies; placed once a case."""
        content, hole = file.content(), getattr(file, "hole", None)
        self.last = Asked(content, hole)
        if content not in self._paths:
            self._paths[content] = self.link.place(content, hole)
        return self._paths[content]

    def ask(self, op: str, file: Content, *, undeclared: bool = False, **members: Any) -> Answer:
        """Ask about a file. Raises NotApplicable for an operation that hello doesn't name.

        undeclared: it may be about a dtype that hello doesn't name, so that `unsupported` is as good as a refusal.
        """
        self.needs(op)
        reply = self.link.ask(op, self.path(file), **members)
        if reply.status == "error":
            raise ErrorReply("an answer", f"{op}: error {reply.message!r}")
        if reply.status == "unsupported" and not undeclared:
            raise ErrorReply(f"{op}, which hello declares", f"unsupported {reply.message!r}")
        excused = reply.status == "refused" and op not in WRITES
        return Answer(op, reply, self.hello.kinds, self._excuse(file) if excused else "")

    def _excuse(self, file: Content) -> str:
        """What a valid file holds that hello doesn't declare: such a file may be refused."""
        features = int.from_bytes(file.content()[FEATURES_AT : FEATURES_AT + 4], "little")
        bits = [bit for bit in IMPLEMENTED_FEATURES if features >> bit & 1 and bit not in self.hello.features]
        entries: Sequence[Entry] = getattr(file, "tensors", ())
        ids = sorted({entry.dtype for entry in entries} - {*self.hello.dtypes})
        return ", ".join([f"feature bit {bit}" for bit in bits] + [f"dtype {number}" for number in ids])

    def needs(self, op: str) -> None:
        """Go on only if the operation is declared."""
        if op not in self.hello.operations:
            raise NotApplicable(f"`{op}`", "hello does not declare it")

    # --- the questions ----------------------------------------------------------------------------------------

    def open(self, file: Content) -> Answer:
        """Is the file valid (§1.2)?"""
        return self.ask("open", file)

    def open_nothing(self) -> Answer:
        """Is a path valid at which there is no file?"""
        return Answer("open", self.link.ask("open", self.link.new_out()), self.hello.kinds)

    def verify(self, file: Content) -> Verdict:
        """Does every hash of the chain match (§8.1)?"""
        answer = self.ask("verify", file)
        return Verdict(answer.op, answer.reply, answer.kinds, answer.excuse)

    def tensors(self, file: Content) -> Listing:
        """What does the directory say (§3)?"""
        out = self.link.new_out()
        answer = self.ask("tensors", file, out=out)
        return Listing(answer.op, answer.reply, answer.kinds, answer.excuse, out)

    def tensor(self, file: Content, index: int, form: Form = "f32", *, undeclared: bool = False) -> Values:
        """What are the values of this tensor, or its raw bytes (§3.2)?"""
        if form not in self.hello.forms:
            raise NotApplicable(f"`tensor` as {form}", "hello does not declare it")
        out = self.link.new_out()
        answer = self.ask("tensor", file, undeclared=undeclared, index=index, form=form, out=out)
        return Values(answer.op, answer.reply, answer.kinds, answer.excuse, out)

    def header(self, file: Content) -> HeaderSeen:
        """What is the header (§2)?"""
        out = self.link.new_out()
        answer = self.ask("header", file, out=out)
        return HeaderSeen(answer.op, answer.reply, answer.kinds, answer.excuse, out)

    def hash64(self, file: Content) -> int | None:
        """hash64 of the file's bytes (§8); None where the reply isn't 16 hex digits."""
        answer = self.ask("hash64", file)
        answer.must_be_accepted()
        digits = answer.reply.value.hash
        return int(digits, 16) if len(digits) == 16 and all(c in "0123456789abcdefABCDEF" for c in digits) else None

    def must_say(self, file: Content, tensors: Sequence[Entry]) -> None:
        """The whole directory and every value of a file, as far as the subject answers for them."""
        self.open(file).must_be_accepted(len(tensors))
        if "tensors" in self.hello.operations:
            self.tensors(file).must_be(tensors)
        for index, entry in enumerate(tensors):
            if entry.dtype in self.hello.dtypes and CODECS[entry.dtype].weight:
                self.tensor(file, index).must_decode(entry)

    def must_decode(self, file: Tensors, index: int = 0) -> None:
        """The file opens, and this tensor of it has its values. Raises NotApplicable for a dtype not declared."""
        entry = file.tensors[index]
        self.needs_dtype(entry.dtype)
        self.open(file).must_be_accepted(len(file.tensors))
        self.tensor(file, index).must_decode(entry)

    def must_not_decode(self, file: Edited, index: int = 0) -> None:
        """No value comes of this tensor: the file is refused, or the tensor is; without its edits it is decoded, to
        whatever values. Raises NotApplicable for a dtype not declared."""
        self.needs_dtype(file.tensors[index].dtype)
        self.open(file.base).must_be_accepted(len(file.tensors))
        self.tensor(file.base, index).must_be_accepted()
        if self.open(file).accepted:
            self.tensor(file, index).must_refuse()

    def encode(self, name: str, weights: F32, bits: float | None = None) -> Encoding:
        """The payload of these weights. name: the encoding that is asked for. bits: for vbit, the mean width of a row.
        Raises NotApplicable for an encoding that hello doesn't list in `encodes`."""
        self.needs("encode")
        dtype = DTYPE_IDS[name]
        if dtype not in self.hello.encodes:
            raise NotApplicable(f"an encoder of {name}", "hello does not declare it")
        out = self.link.new_out()
        asked: dict[str, Any] = {"dtype": dtype, "shape": list(weights.shape), "out": out} | (
            {"bits": bits} if bits else {}
        )
        answer = self.ask("encode", _Bytes(weights.astype("<f4").tobytes()), **asked)
        return Encoding(answer.op, answer.reply, answer.kinds, answer.excuse, out, dtype)

    def write(self, file: Described) -> Written:
        """A file that holds the same, written by the subject; valid and sound by our own reader."""
        out = self.link.new_out()
        self.ask("write", _Bytes(canonical(to_json(file.blueprint)).encode()), out=out).must_be_accepted()
        content = written(out)
        for fault in container.faults(content):
            raise WrongValue("a valid file written", str(fault))
        found = Written(container.open(content))
        for problem in verify.verify(found.opened):
            raise WrongValue("a sound file written", str(problem))
        return found

    def must_not_write(self, file: Described) -> None:
        """No file can hold this, and the writer says so."""
        self.ask("write", _Bytes(canonical(to_json(file.blueprint)).encode()), out=self.link.new_out()).must_refuse()

    def needs_dtype(self, dtype: int) -> None:
        """Go on only if hello says that tensors of this dtype are decoded."""
        self.needs("tensor")
        if dtype not in self.hello.dtypes:
            raise NotApplicable(f"dtype {dtype}, {DTYPE_NAMES[dtype]}", "hello does not declare it")

    def logits(
        self,
        file: Content,
        tokens: Sequence[int],
        *,
        split: Sequence[int] | None = None,
        rows: Rows = "all",
        task: str | None = None,
        skill: str | None = None,
    ) -> Scores:
        """What does the model make of these tokens (§2)? split: how many of them each call of the forward takes."""
        out = self.link.new_out()
        how: dict[str, Any] = {"split": [*split]} if split is not None else {}
        how |= {"rows": rows} if rows != "all" else {}
        how |= {"task": task, "skill": skill, "out": out}
        answer = self.ask("logits", file, tokens=[*tokens], **how)
        return Scores(answer.op, answer.reply, answer.kinds, answer.excuse, out)

    def generate(self, file: Content, tokens: Sequence[int], max_new: int, stop: Sequence[int] = ()) -> Continuation:
        """How does the model go on, greedily (§2)? stop: ids that end it, the file's own notwithstanding."""
        answer = self.ask("generate", file, tokens=[*tokens], max_new=max_new, stop=[*stop])
        return Continuation(answer.op, answer.reply, answer.kinds, answer.excuse)

    def likelihood(self, file: Content, tokens: Sequence[int], window: int, stride: int) -> Surprise:
        """How likely does the model find these tokens, but the first (§2)?"""
        answer = self.ask("ppl", file, tokens=[*tokens], window=window, stride=stride)
        return Surprise(answer.op, answer.reply, answer.kinds, answer.excuse)

    def needs_under(self, what: Under) -> None:
        """Go on only if hello says that models are run under masks, or under skills."""
        self.needs("logits")
        if what not in self.hello.under:
            raise NotApplicable(f"a run under a {what}", "hello does not declare it")

    def needs_family(self, *families: Family) -> None:
        """Go on only if hello says that models of these families are run."""
        for family in families:
            if family not in self.hello.families:
                raise NotApplicable(f"models of {family}", "hello does not declare it")

    # --- conditions -------------------------------------------------------------------------------------------

    def beyond_if_declared(self, *, feature_bit: int | None = None, dtype: int | None = None) -> None:
        """Go on only if the subject does not say that it knows this bit or id. What the text does not define is then
        beyond this revision; what it defines is simply implemented, and there is nothing to refuse."""
        if feature_bit is not None and feature_bit in self.hello.features:
            known = feature_bit < len(FEATURE_NAMES) and feature_bit not in RESERVED_FEATURES
            self._beyond(f"a refusal of feature bit {feature_bit}", "hello lists it", known)
        if dtype is not None and dtype in self.hello.dtypes:
            self._beyond(f"a refusal of dtype {dtype}", "hello lists it", dtype < len(DTYPE_NAMES))

    @staticmethod
    def _beyond(expected: str, got: str, known: bool) -> NoReturn:
        raise (NotApplicable if known else Beyond)(expected, got)

    def resident_peak(self, ask: Callable[[], Any]) -> int:
        """Peak of resident memory, in bytes, of a fresh process while it answers. Raises NotApplicable where it can't
        be measured."""
        self.link.renew()
        self.link.reset_peak()
        ask()
        peak = self.link.peak()
        if peak is None:
            raise NotApplicable("a measure of resident memory", "none on this system")
        return peak

    def must_cost_no_more(self, got: int, control: int, what: str) -> None:
        """Peak against peak, in bytes (ENV-023)."""
        if got > control + compare.RESIDENT_SLACK:
            allowed = f"at most {compare.RESIDENT_SLACK >> 20} MiB of memory above a valid file"
            raise Resource(allowed, f"{(got - control) >> 20} MiB above it for {what}")
