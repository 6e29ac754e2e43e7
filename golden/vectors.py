"""Vectors of hash64 (§8), agreed by three independent implementations.

Law: written down, not computed. SALT_INSIDE holds the hash that a reader gets who salts before mixing, which the text's
wording also allows; the ruling is that the salt is outside.
"""

from __future__ import annotations

HASH64: dict[bytes, int] = {
    b"": 0x0000000000000000,
    b"\x00": 0xB456BCFC34C2CB2C,
    b"\xff": 0xF23558BA5CBEA776,
    b"a": 0x247F1EAECB8BE39A,
    b"CMF\x01": 0x582301F9ADCE5408,
    bytes(range(1, 8)): 0x8AB02661B5AD6935,
    bytes(7): 0x740729CBE468D1DD,
    bytes(range(1, 9)): 0x216FF52AC63A931C,
    bytes(8): 0x46ABCCA593A3C687,
    b"abcdefgh": 0x47DA24881D1E74A9,
    bytes(range(1, 10)): 0xAF71FE816B401A83,
    bytes(9): 0x12B56A2136F84755,
    bytes(range(16)): 0x2B19DF6CAAECD551,
    bytes((*range(8, 16), *range(8))): 0x2B19DF6CAAECD551,
    bytes(range(64)): 0x79D1716E27089B08,
    bytes(64): 0xDF8F278726291401,
    b"\xff" * 64: 0xDF8F278726291401,
    bytes(range(256)) * 16: 0x10D856F65B354658,
}
SALT_INSIDE: dict[bytes, int] = {
    bytes(range(16)): 0xC2048DD33FB9C7FC,
    bytes(range(64)): 0xDCD292C1784DE607,
    bytes(range(256)) * 16: 0xBBFD919A39018442,
}
