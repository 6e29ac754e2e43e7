"""What is fuzzed in process: every parser has a target, the invariants hold, and a broken one is noticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import fuzz.targets
from cmfspec.codecs import CODECS
from cmfspec.errors import Fault, refusal
from cmfspec.format.checks import CHECKS
from cmfspec.format.verify import Problem
from cmfspec.layout import OPTIONAL
from fuzz.loop import fuzz as loop
from fuzz.structure import PARTS, Mutator, part, placed, repaired
from fuzz.targets import TARGETS, Escape, Seen, Target, valid_files

EXECUTIONS = 400


def same(_: Random, raw: bytes, __: Sequence[bytes]) -> bytes:
    """No mutation."""
    return raw


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_escapes_a_target(name: str) -> None:
    """A value or a named refusal; some of each, so that neither is all that is ever seen."""
    tally = loop(TARGETS[name], executions=EXECUTIONS, seed=1)
    assert tally.escape is None, tally.escape
    assert tally.executions == EXECUTIONS
    assert 0 < tally.accepted <= EXECUTIONS
    assert tally.corpus


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_is_accepted(name: str) -> None:
    """A seed that is refused leads nowhere."""
    target = TARGETS[name]
    refused = [seed for seed in target.seeds() if not target.check(seed).accepted]
    known = 6 if name == "reply" else 0  # operations whose `ok` needs more than {}
    assert len(refused) <= known, refused


def test_every_section_and_every_encoding_has_a_target() -> None:
    """A part that the reader parses and nobody fuzzes is the one with the bug."""
    assert {"header", "dir", *OPTIONAL} <= TARGETS.keys()
    assert {f"payload.{codec.name}" for codec in CODECS.values() if codec.weight} <= TARGETS.keys()
    assert {"header", "dir", *OPTIONAL} <= PARTS.keys()


def test_the_same_seed_makes_the_same_inputs() -> None:
    """A find comes back."""
    first, second, third = (loop(TARGETS["container"], executions=120, seed=seed) for seed in (3, 3, 4))
    assert first.corpus == second.corpus
    assert first.corpus != third.corpus


def test_what_leaves_a_target_ends_the_loop_with_the_input() -> None:
    """Whatever it is."""

    def check(raw: bytes) -> Seen:
        if len(raw) > 3:
            raise ZeroDivisionError
        return Seen(True, (len(raw),))

    tally = loop(Target("t", "", check, lambda: [b"a", b"abcd", b"b"], same), executions=9)
    assert tally.escape is not None
    raw, escaped = tally.escape
    assert (raw, type(escaped)) == (b"abcd", ZeroDivisionError)
    assert tally.executions == 2


def test_a_hang_is_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock interrupts it."""
    monkeypatch.setattr("fuzz.loop.HANG", 0.05)

    def check(raw: bytes) -> Seen:
        while True:
            pass

    tally = loop(Target("t", "", check, lambda: [b""], same), executions=1)
    assert tally.escape is not None
    assert "no end within" in str(tally.escape[1])


# --- each invariant, broken --------------------------------------------------------------------------------------


def lies() -> Iterator[tuple[str, str, str, object]]:
    """(target, what is replaced in fuzz.targets, what the escape says, the wrong thing)."""
    fault = Fault("Bounds", "ENV-015", "envelope.dir_off", 0, "1", "2")

    def refuses(*_: object) -> None:
        raise refusal(fault)

    other = valid_files()[1]

    def breaks(*_: object) -> None:
        raise IndexError("out of range")

    yield "container", "open", "open refuses", refuses
    yield "container", "faults", "open accepts", lambda _: iter([fault])
    yield "decoding", "open", "IndexError", breaks
    yield "verify", "verify", "reports it not", lambda _: iter(())
    yield "rebuilding", "render", "something else", lambda *_: other
    yield "header", "strict_object", "is not what it is", lambda *given: {"at": [given[-1]]}
    yield "reply", "decode_reply", "status", lambda *_: fuzz.targets.Reply("no")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "part_of", "says", "wrong"), [*lies()])
def test_a_broken_invariant_escapes(
    monkeypatch: pytest.MonkeyPatch, name: str, part_of: str, says: str, wrong: object
) -> None:
    """Each target notices what it is there for."""
    monkeypatch.setattr(fuzz.targets, part_of, wrong)
    tally = loop(TARGETS[name], executions=EXECUTIONS, seed=1)
    assert tally.escape is not None
    assert says in repr(tally.escape[1])


def test_a_refusal_of_another_kind_than_it_says_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Bounds` may not travel as a plain Refusal."""
    from cmfspec.errors import Refusal

    def refuses(*_: object) -> None:
        raise Refusal(Fault("Bounds", "ENV-015", "x", 0, "1", "2"))

    monkeypatch.setattr(fuzz.targets, "open", refuses)
    with pytest.raises(Escape, match="class Refusal"):
        TARGETS["container"].check(b"")


def test_a_codec_that_decodes_otherwise_in_place_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does one that makes values of nothing."""
    codec = CODECS[0]
    target = TARGETS[f"payload.{codec.name}"]
    seed = target.seeds()[0]

    def other(payload: memoryview, shape: tuple[int, ...], out: object = None) -> object:
        return np.full(shape, np.float32(0 if out is None else 1))

    from functools import partial

    wrong = replace(target, check=partial(fuzz.targets._payload, replace(codec, formula=other, fast=None)))  # type: ignore[arg-type]
    with pytest.raises(Escape, match="in place"):
        wrong.check(seed)
    with pytest.raises(Escape, match="values of"):
        wrong.check(b"\x01\xff\xff")


# --- mutations ---------------------------------------------------------------------------------------------------


def test_mutants_reach_every_check_of_the_reader() -> None:
    """Every row of the table refuses some mutant, and many are still accepted."""
    found: set[str] = set()
    mutate, seeds, dice, accepted, count = Mutator(), valid_files(), Random(7), 0, 6000
    for _ in range(count):
        faults = list(fuzz.targets.faults(mutate(dice, dice.choice(seeds), seeds)))
        found |= {fault.rule for fault in faults}
        accepted += not faults
    unreached = {check.rule for check in CHECKS} - found
    assert unreached <= {"ENV-023"}, unreached  # 16 MiB of shared names are beyond a file of this size
    assert accepted > count / 5


def test_hashes_are_repaired_so_that_the_parser_is_reached() -> None:
    """Of what still opens, most has no wrong hash but where the damage was meant."""
    mutate, seeds, dice, damaged, opened = Mutator(), valid_files(), Random(2), 0, 0
    for _ in range(300):
        content = mutate(dice, dice.choice(seeds), seeds)
        if not list(fuzz.targets.faults(content)):
            opened += 1
            damaged += any(p.where in ("header", "dir") for p in fuzz.targets.verify(fuzz.targets.open(content)))
    assert damaged < opened / 4


def test_a_part_can_be_replaced_by_a_longer_one() -> None:
    """It goes to the end, where the envelope then points, and the file is as valid as before."""
    for content in valid_files():
        header = part(content, "header")
        longer = header[:-1] + b',"zzz":"' + b"x" * 5000 + b'"}'
        new = repaired(placed(content, "header", longer))
        assert part(new, "header") == longer
        opened = fuzz.targets.open(new)
        problems: list[Problem] = list(fuzz.targets.verify(opened))
        assert not problems
        assert len(opened) == len(fuzz.targets.open(content))


def test_a_field_that_is_left_out_is_left_alone_by_name() -> None:
    """Its other values come of havoc alone, which is rare."""
    seeds = [content for content in valid_files() if part(content, "dir")]
    out, dice = Mutator(frozenset({"data_len", "data_off"})), Random(5)
    within, changed, count = 0, 0, 600
    for _ in range(count):
        content = dice.choice(seeds)
        new = out(dice, content, seeds)
        within += new[0x38:0x40] == content[0x38:0x40]
        changed += new != content
    assert within > count * 0.8
    assert changed > count * 0.8


@pytest.mark.parametrize("raw", [b"", b"\0", b"CMF\x01", bytes(127), bytes(128), b"\xff" * 200, b"{" * 64])
def test_mutations_take_anything(raw: bytes) -> None:
    """Whatever the bytes, there is a mutant of them, and it is no giant."""
    for target in TARGETS.values():
        dice = Random(1)
        for _ in range(60):
            assert len(target.mutate(dice, raw, [raw, b""])) < 1 << 17
