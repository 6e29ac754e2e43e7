"""A dictionary for libFuzzer (`-dict=`) and AFL++ (`-x`): what a file is full of, as tokens.

Law: derived from `layout`, the recipes and the nasty numbers; a token of more than 64 bytes helps nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from cmfspec.layout import DTYPE_IDS, MAGIC, VERSION
from fuzz.havoc import NASTY
from fuzz.jsontext import PIECES
from fuzz.structure import NAMES
from golden.recipes import HEADER

LONGEST = 64
_PLAIN = re.compile(rb"[ !#-\[\]-~]")


def tokens() -> Iterator[tuple[str, bytes]]:
    """(name, bytes), without repetition."""
    yield "magic", MAGIC
    yield "envelope", MAGIC + VERSION.to_bytes(4, "little")
    for value in NASTY:
        for width in (2, 4, 8):
            if 255 < value < 1 << 8 * width:
                yield f"u{8 * width}_{value:x}", value.to_bytes(width, "little")
    for name, number in DTYPE_IDS.items():
        yield f"dtype_{name}", bytes([number, 2])
    for key in re.findall(r'"[a-z_0-9]+"', json.dumps({**HEADER, "section_hashes": {}, "skills": [], "masks": []})):
        yield f"key_{key[1:-1]}", key.encode()
    for place, piece in enumerate((*PIECES, *NAMES)):
        yield f"piece_{place}", piece


def text() -> str:
    """The dictionary as a file."""
    lines: dict[bytes, str] = {}
    for name, raw in tokens():
        if raw and len(raw) <= LONGEST:
            lines.setdefault(raw, f'{name}="{"".join(_escaped(byte) for byte in raw)}"\n')
    return "# CMF v2; made by `cmfspec corpus export --dict`\n" + "".join(lines.values())


def _escaped(byte: int) -> str:
    char = bytes([byte])
    return char.decode() if _PLAIN.fullmatch(char) else f"\\x{byte:02x}"
