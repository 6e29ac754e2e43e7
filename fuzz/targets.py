"""What is fuzzed in process: a target is a function of arbitrary bytes that either says what it saw or raises `Escape`.

Law: a value or a named refusal, and nothing else, for any bytes. A part that our reader parses has a target of its own, one
declaration each; an encoding has one because it is in `CODECS`. What a target saw is small (novelty is counted by it) and
says nothing of lengths or places.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from cmfspec.codecs import CODECS, Codec
from cmfspec.contract.protocol import OPERATIONS, STATUSES, BadReply, Reply, Request, decode_reply, encode_reply
from cmfspec.errors import REFUSALS, Fault, Refusal
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.format.container import Container, faults, open
from cmfspec.format.header import strict_object
from cmfspec.format.unbuild import blueprint_of
from cmfspec.format.verify import verify
from cmfspec.layout import DATA_ALIGN, ENVELOPE_AT, ENVELOPE_SIZE, HASH_DIGITS, OPTIONAL
from fuzz import structure
from fuzz.havoc import havoc
from fuzz.jsontext import json_bytes
from golden.recipes import HEADER, NAMES, entry, recipe

_HEX = re.compile(rf"[0-9a-fA-F]{{{HASH_DIGITS}}}")
ELEMENTS = 1 << 20  # of a tensor that is decoded: what more would show costs more than it shows
RESERVED = "DT-004"  # the rule of encodings that have no weights to decode
AGREED = 4
BLOB = 2 * DATA_ALIGN  # bytes of data behind a directory that is fuzzed alone


_NO_DIGIT = dict.fromkeys(map(ord, "0123456789"))


class Escape(AssertionError):
    """The invariant is broken: neither a value nor a refusal, or a value that contradicts another."""


class Seen(NamedTuple):
    """accepted: a value, not a refusal; what: the kind of thing that was seen, for novelty."""

    accepted: bool
    what: tuple[Any, ...]


@dataclass(frozen=True)
class Target:
    """One thing to be fuzzed. check: bytes -> Seen, raises Escape; seeds: where to begin; mutate: (dice, bytes, others)."""

    name: str
    says: str
    check: Callable[[bytes], Seen]
    seeds: Callable[[], Sequence[bytes]]
    mutate: structure.Part


def _refused(refusal: Refusal) -> Seen:
    """A refusal must be one of the named ones and say something."""
    fault = refusal.fault
    if type(refusal) is not REFUSALS.get(fault.kind):
        raise Escape(f"a refusal of class {type(refusal).__name__} with the kind {fault.kind!r}")
    if not (fault.found and fault.wanted and fault.rule and str(refusal).isprintable()):
        raise Escape(f"a refusal that says nothing or can't be shown: {fault!r}")
    return Seen(False, (fault.kind, fault.rule, _unnumbered(fault.field)))


def _unnumbered(text: str) -> str:
    return text.translate(_NO_DIGIT)


def _opened(raw: bytes) -> Container | Fault:
    """The file or its first fault. `open` and `faults` agree: that is looked at in one of `AGREED` executions, chosen by
    the bytes, since it costs as much as the rest."""
    if crc32(raw) % AGREED:
        try:
            return open(raw)
        except Refusal as refusal:
            _refused(refusal)
            return refusal.fault
    found = list(faults(raw))
    try:
        opened = open(raw)
    except Refusal as refusal:
        _refused(refusal)
        if not found or found[0] != refusal.fault:
            raise Escape(f"open refuses with {refusal.fault}, faults says {found[:1]}") from None
        return refusal.fault
    if found:
        raise Escape(f"open accepts, faults says {found[0]}")
    return opened


def _shape(opened: Container) -> tuple[Any, ...]:
    """What kind of file it is: its sections, and its encodings as a set."""
    dtypes = {int(number) for number in opened.view.directory.records["dtype"]}
    return (tuple(opened.sections), frozenset(dtypes), min(len(opened), 8))


def _fault_seen(fault: Fault) -> Seen:
    return Seen(False, (fault.kind, fault.rule, _unnumbered(fault.field)))


def _container(raw: bytes) -> Seen:
    opened = _opened(raw)
    return _fault_seen(opened) if isinstance(opened, Fault) else Seen(True, _shape(opened))


def _decoded(raw: bytes) -> Seen:
    """Every tensor has values or is refused; `accepted` means that all of a file's weights were decoded."""
    opened = _opened(raw)
    if isinstance(opened, Fault):
        return _fault_seen(opened)
    outcomes: set[tuple[Any, ...]] = set()
    for tensor in opened:
        if np.prod(tensor.shape, dtype=np.float64) > ELEMENTS:
            outcomes.add((tensor.dtype, "large"))
            continue
        try:
            values = opened.values(tensor.index)
        except Refusal as refusal:
            outcomes.add((tensor.dtype, *_refused(refusal).what))
            continue
        _plausible(values, tensor.shape, opened.raw(tensor.index).nbytes, tensor.dtype_name)
        outcomes.add((tensor.dtype, "values"))
    lied = any(len(outcome) > 2 and outcome[2] != RESERVED for outcome in outcomes)
    return Seen(not lied, (tuple(opened.sections), frozenset(outcomes)))


def _plausible(values: Any, shape: tuple[int, ...], nbytes: int, name: str) -> None:
    if values.dtype != np.float32 or values.shape != tuple(shape):
        raise Escape(f"{name} {shape} decoded to {values.dtype} {values.shape}")
    if values.size > 32 * max(nbytes, 1):  # no encoding has fewer than a bit a weight
        raise Escape(f"{name}: {values.size} values of {nbytes} bytes")


def _verified(raw: bytes) -> Seen:
    """`verify` never raises, and reports one flipped byte wherever a hash that is right covers it."""
    opened = _opened(raw)
    if isinstance(opened, Fault):
        return _fault_seen(opened)
    problems = list(verify(opened))
    found = frozenset((problem.where, problem.kind) for problem in problems)
    wrong = {(problem.where, problem.index) for problem in problems}
    ranges = [(where, span) for where, span in hashed(opened) if where not in wrong and span[1]]
    if ranges:
        die = Random(hashlib.sha256(raw).digest())  # follows from the input: a find comes back
        where, (start, size) = die.choice(ranges)
        at = start + die.randrange(size)
        flipped = raw[:at] + bytes([raw[at] ^ (1 + die.randrange(255))]) + raw[at + 1 :]
        again = _opened(flipped)
        if not isinstance(again, Fault) and not any((p.where, p.index) == where for p in verify(again)):
            raise Escape(f"byte {at} of {where[0]} was changed, and verify reports it not")
    return Seen(True, (tuple(opened.sections), found))


def hashed(opened: Container) -> Iterator[tuple[tuple[str, int | None], tuple[int, int]]]:
    """((where, index) as `verify` says it, (start, size)) of every range that a hash covers."""
    view = opened.view
    yield from (((part, None), view.span(part)) for part in ("header", "dir") if view.envelope[f"{part}_hash"])
    hashes = opened.header.get("section_hashes")
    for section in OPTIONAL:
        listed = hashes.get(section) if isinstance(hashes, dict) else None
        if view.present(section) and isinstance(listed, str) and _HEX.fullmatch(listed):
            yield (section, None), view.span(section)
    base = view.span("data")[0]
    yield from ((("tensor", tensor.index), (base + tensor.off, tensor.nbytes)) for tensor in opened)


def _rebuilt(raw: bytes) -> Seen:
    """What is accepted becomes a blueprint, and the file rendered of it holds the same."""
    opened = _opened(raw)
    if isinstance(opened, Fault):
        return _fault_seen(opened)
    try:
        blueprint, edits = blueprint_of(raw)
    except ValueError:  # tensors that lie upon each other so often that they would not fit into memory
        return Seen(True, ("unbuilt",))
    again = open(render(blueprint, edits))
    if _contents(again) != _contents(opened):
        raise Escape("what was rendered of the file's blueprint holds something else than the file")
    return Seen(True, _shape(opened))


def _contents(opened: Container) -> tuple[Any, ...]:
    header = {key: value for key, value in opened.header.items() if key != "section_hashes"}
    sections = {name: bytes(opened.view.part(name)) for name in opened.sections}
    tensors = [(t.name, t.dtype, t.shape, t.hash, bytes(opened.raw(t.index))) for t in opened]
    return json.dumps(header, sort_keys=True), sections, tensors


def _in_a_file(section: str, raw: bytes) -> Seen:
    """A section alone, as part of a file of which nothing else is wrong."""
    content = bytearray(_frame() + raw)
    for end, value in (("off", len(content) - len(raw)), ("len", len(raw))):
        at = ENVELOPE_AT[f"{section}_{end}"]
        content[at : at + 8] = value.to_bytes(8, "little")
    opened = _opened(bytes(content))
    if not isinstance(opened, Fault):
        return Seen(True, (*_shape(opened), opened.view.present(section)))
    if opened.field.split(".")[0].split("[")[0] not in (section, "envelope"):
        raise Escape(f"only {section} can be wrong, and {opened.field} is found to be: {opened}")
    return _fault_seen(opened)


@cache
def _frame() -> bytes:
    """A valid file with a blob and no tensor."""
    return render(Blueprint(HEADER, (Entry("w", 6, (BLOB,), bytes(BLOB)),)), [("dir.count", 0)])


def _header(raw: bytes) -> Seen:
    try:
        value = strict_object(raw, "header", ENVELOPE_SIZE)
    except Refusal as refusal:
        return _refused(refusal)
    again = json.dumps(value).encode()
    if not _has_constants(value) and strict_object(again, "header", 0) != value:
        raise Escape("the header that was decoded is not what it is when written and decoded again")
    return Seen(True, (frozenset(type(node).__name__ for node in value.values()), min(len(value), 16)))


def _has_constants(value: Any) -> bool:
    """Whether a number was too large for a float: what JSON then writes is no JSON."""
    return "Infinity" in json.dumps(value)


def _payload(codec: Codec, raw: bytes) -> Seen:
    """[u8 rank][u16 dimensions][payload]."""
    rank = raw[0] % 4 if raw else 0
    shape = tuple(int.from_bytes(raw[1 + 2 * axis : 3 + 2 * axis], "little") for axis in range(rank))
    payload = memoryview(raw)[1 + 2 * rank :]
    if codec.shape_fault(len(shape), shape[-1] if shape else 1):
        return Seen(False, ("shape", rank))
    try:
        values = codec.decode(payload, shape)
    except Refusal as refusal:
        return _refused(refusal)
    if codec.weight or values.size:
        _plausible(values, shape, payload.nbytes, codec.name)
    out = np.full(shape, np.float32(7))
    if not np.array_equal(codec.decode(payload, shape, out), values, equal_nan=True):
        raise Escape(f"{codec.name} {shape}: other values when decoded in place")
    return Seen(True, (rank, 0 in shape, bool(np.isfinite(values).all())))


def _payload_seeds(codec: Codec) -> list[bytes]:
    shapes: tuple[tuple[int, ...], ...] = ((5, 64), (1, 32), (3, 96), (0, 32))
    shapes += () if codec.matrix else ((), (7,), (2, 3, 5))
    found = []
    for shape in shapes:
        if not (codec.name.startswith("q8") and len(shape) != 2):
            head = bytes([len(shape)]) + b"".join(dim.to_bytes(2, "little") for dim in shape)
            found.append(head + entry("w", codec.name, shape).payload)
    return found


def _payload_mutant(dice: Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Numbers at the ends of the payload, or its shape, or anything."""
    if len(raw) < 8 or dice.randrange(4) == 0:
        return havoc(dice, raw, others)
    out = bytearray(raw)
    edge = dice.randrange(min(len(raw), 64))
    at = dice.choice((edge, len(raw) - 1 - edge, 1 + dice.randrange(6), dice.randrange(len(raw))))
    width = min(dice.choice((1, 1, 2, 4)), len(raw) - at)
    structure.set_number(dice, out, at, width)
    return bytes(out)


def _reply(raw: bytes) -> Seen:
    """[u8 operation][line]."""
    op = [*OPERATIONS][raw[0] % len(OPERATIONS)] if raw else "ping"
    try:
        reply = decode_reply(raw[1:], Request(1, op, ""))
    except BadReply as error:
        return Seen(False, (op, _unnumbered(str(error))[:24]))
    if type(reply) is not Reply or reply.status not in STATUSES:
        raise Escape(f"a reply of status {reply.status!r}")
    if (reply.status == "ok") != isinstance(reply.value, OPERATIONS[op].reply):
        raise Escape(f"{reply.status} with a value of {type(reply.value).__name__}")
    encode_reply(1, reply)
    return Seen(True, (op, reply.status, reply.kind, bool(reply.warnings)))


_OKS: dict[str, Any] = {
    "hello": {"protocol": 1, "name": "r", "version": "1", "operations": ["open"], "features": [0], "dtypes": [0, 1]},
    "open": {"tensors": 3, "sections": ["masks", "vocab"]},
    "verify": {"sound": False, "problems": [{"where": "tensor", "index": 0, "kind": "hash"}]},
    "hash64": {"hash": "b456bcfc34c2cb2c"},
    "logits": {"shape": [3, 40]},
    "generate": {"tokens": [5, 9]},
    "ppl": {"nll": 12.5, "count": 3},
}


def _reply_seeds() -> list[bytes]:
    said: list[dict[str, Any]] = [
        {"refused": {"kind": "Bounds", "message": {"hex": "6f6e6c79"}}},
        {"unsupported": {}},
        {"error": {"message": "x"}},
        {"ok": {}, "warnings": ["w"]},
    ]
    lines = [json.dumps({"id": 1, **body}).encode() for body in said]
    oks = [bytes([n]) + json.dumps({"id": 1, "ok": _OKS.get(op, {})}).encode() for n, op in enumerate(OPERATIONS)]
    return oks + [bytes([2]) + line for line in lines]


def _reply_mutant(dice: Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    op = bytes([dice.randrange(256)]) if dice.randrange(16) == 0 else raw[:1]
    bodies = [other[1:] for other in others]
    if dice.randrange(3):
        try:
            line = json.loads(raw[1:])
            status = next(key for key in line if key in STATUSES)
            line[status] = json.loads(json_bytes(dice, json.dumps(line[status]).encode()))
            return op + json.dumps(line, ensure_ascii=bool(dice.randrange(2))).encode("utf-8", "replace")
        except (ValueError, TypeError, AttributeError, StopIteration, RecursionError):
            pass  # it is no reply any more
    return op + json_bytes(dice, raw[1:], bodies)


def valid_files() -> list[bytes]:
    """The recipes, and a file of one tensor for each encoding."""
    names = [*NAMES, *(f"one:{codec.name}:4x64" for codec in CODECS.values())]
    return [render(recipe(name)) for name in names]


@cache
def _parts(section: str) -> list[bytes]:
    return list(dict.fromkeys(raw for content in valid_files() if (raw := structure.part(content, section))))


_WHOLE = structure.Mutator()
_FILES: tuple[tuple[str, str, Callable[[bytes], Seen]], ...] = (
    ("container", "open a file; `faults` is empty exactly when `open` accepts", _container),
    ("decoding", "open a file and decode every tensor of it", _decoded),
    ("verify", "verify a file, and once more with one byte of a hashed range changed", _verified),
    ("rebuilding", "what is accepted round-trips through `build`", _rebuilt),
)
_SECTIONS = ("dir", *OPTIONAL)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *(Target(name, says, check, valid_files, _WHOLE) for name, says, check in _FILES),
        Target("header", "decode a header JSON", _header, partial(_parts, "header"), json_bytes),
        *(
            Target(
                name,
                f"open a file of which only `{name}` can be wrong",
                partial(_in_a_file, name),
                partial(_parts, name),
                structure.PARTS[name],
            )
            for name in _SECTIONS
        ),
        *(
            Target(
                f"payload.{codec.name}",
                f"decode a payload of {codec.name}",
                partial(_payload, codec),
                partial(_payload_seeds, codec),
                _payload_mutant,
            )
            for codec in CODECS.values()
            if codec.weight
        ),
        Target("reply", "decode what an implementation says", _reply, _reply_seeds, _reply_mutant),
    )
}
