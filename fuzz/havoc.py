"""Havoc: what a fuzzer does to bytes of which it knows nothing. The last resort, after everything that knows the format.

Law: bytes in, bytes out, no longer than `longest`; what comes follows from the dice alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

HITS = 6  # changes to one input, at most
NASTY = (0, 1, 2, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1,
         2**32, 2**40, 2**61, 2**63 - 4096, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 64, 2**64 - 8, 2**64 - 1)  # fmt: skip


def nasty(dice: Random, width: int, right: int = 0) -> int:
    """A number that fits `width` bytes and that code gets wrong: at an edge, or a little off the right one."""
    limit = 1 << 8 * width
    kind = dice.randrange(5)
    if kind == 0:
        return dice.choice(NASTY) % limit
    if kind == 4:
        return ((1 << dice.randrange(8 * width)) + dice.choice((-1, 0, 0, 1))) % limit
    if kind == 1:
        return (right + dice.choice((-4096, -64, -8, -2, -1, 1, 2, 8, 63, 64, 4096))) % limit
    if kind == 2:
        return dice.getrandbits(dice.randint(1, 8 * width))
    return right ^ 1 << dice.randrange(8 * width)


def _flip(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)


def _byte(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    raw[dice.randrange(len(raw))] = dice.randrange(256)


def _number(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    width = dice.choice((1, 2, 4, 8))
    at = dice.randrange(len(raw))
    at -= at % width
    piece = raw[at : at + width]
    raw[at : at + width] = nasty(dice, len(piece), int.from_bytes(piece, "little")).to_bytes(len(piece), "little")


def _delete(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(raw))
    del raw[at : at + _few(dice)]


def _insert(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(raw) + 1)
    raw[at:at] = bytes([dice.randrange(256)]) * _few(dice) if dice.randrange(2) else dice.randbytes(_few(dice))


def _repeat(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(raw))
    raw[at:at] = raw[at : at + _few(dice)]


def _move(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    source, at, size = dice.randrange(len(raw)), dice.randrange(len(raw)), _few(dice)
    piece = raw[source : source + size]
    raw[at : at + len(piece)] = piece


def _cut(dice: Random, raw: bytearray, _: Sequence[bytes]) -> None:
    del raw[dice.randrange(len(raw)) :]


def _splice(dice: Random, raw: bytearray, others: Sequence[bytes]) -> None:
    """The rest of another input, from the same place or from anywhere."""
    other = dice.choice(others) if others else bytes(raw)
    at = dice.randrange(len(raw))
    start = at if dice.randrange(2) else dice.randrange(len(other) + 1)
    raw[at:] = other[start:]


def _few(dice: Random) -> int:
    return 1 << dice.randrange(7)


Change = Callable[[Random, bytearray, Sequence[bytes]], None]
CHANGES: tuple[Change, ...] = (_flip, _flip, _byte, _byte, _number, _number, _delete, _insert, _repeat, _move)
RARE: tuple[Change, ...] = (_cut, _splice)


def havoc(dice: Random, raw: bytes, others: Sequence[bytes] = (), longest: int = 1 << 16) -> bytes:
    """`raw` with a few changes. others: inputs of the same kind, to be spliced with."""
    out = bytearray(raw)
    for _ in range(1 + dice.randrange(HITS)):
        if not out:
            out += dice.randbytes(_few(dice))
            continue
        change = dice.choice(RARE) if dice.randrange(24) == 0 else dice.choice(CHANGES)
        change(dice, out, others)
    return bytes(out[:longest])
