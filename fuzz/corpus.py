"""The shipped seeds: valid files for every section, encoding and feature. `python -m fuzz.corpus` makes them anew; `--check`
writes nothing and fails if what is stored is not what would be written.

Law: a seed is a recipe and edits, and follows from them; its name is the SHA-256 of its bytes, and what is right to say of it
stands beside it, made with our own reader. Of the candidates only those are kept that show some target something which none
before them shows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import cmfspec
from cmfspec.codecs import CODECS
from cmfspec.errors import Refusal
from cmfspec.format.blueprint import canonical
from cmfspec.format.build import Edit
from cmfspec.layout import OPTIONAL, SECTIONS
from fuzz.targets import TARGETS
from golden.files import File
from golden.recipes import NAMES, recipe

HOME = Path(__file__).parent / "seeds"
INDEX = "index.jsonl"
LARGEST = 2 * 2**20  # bytes of all seeds together
SHAPES = ("", "0", "1", "7", "2x3x5", "1x1x2x1x3x2", "4x64", "1x32", "3x96", "0x32")
VARIANTS: tuple[tuple[Edit, ...], ...] = (
    (("order", [*reversed(SECTIONS)]),),
    (("order", ["data", "index", "vocab", "masks", "dir", "header"]), ("tail", 5)),
    (("gap.header", 3), ("gap.dir", 1)),
    (("hashes", False),),
    (("dir.gap", 7),),
    (("header.skills", []), ("header.section_hashes", None)),
    (("envelope.flags", 2**32 - 1),),
)


@dataclass(frozen=True)
class Seed:
    """A stored file. file: what it is made of; content: its bytes."""

    file: File
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def name(self) -> str:
        """The name that it is stored under."""
        return f"{self.digest[:16]}.cmf"


def candidates() -> Iterator[File]:
    """Every valid file that might show something, the plainest first."""
    yield from (File(name) for name in NAMES)
    for codec in CODECS.values():
        for shape in SHAPES:
            name = f"one:{codec.name}:{shape}" if shape else f"one:{codec.name}:"
            if _exists(name):
                yield File(name)
    yield from (File(name, edits) for edits in VARIANTS for name in ("full", "plain", "tiny"))
    for name in ("plain", "full"):
        count = len(recipe(name).tensors)
        yield File(name, (("data.order", [*reversed(range(count))]), ("data.gap[0]", 70)))
    yield from (File("many:40:12"), File("many:3:300"), File("tiny", (("grow", _growth()),)))


def _growth() -> dict[str, Any]:
    """What a skill appends (§9)."""
    from cmfspec.format.blueprint import Blueprint, to_json

    skill = recipe("skill")
    return to_json(Blueprint({"skills": skill.header["skills"]}, recipe("one:f16:7").tensors))


def _exists(name: str) -> bool:
    try:
        return not any(cmfspec.faults(File(name).content()))
    except (ValueError, KeyError, IndexError):  # the encoding has no such shape
        return False


@cache
def chosen() -> tuple[Seed, ...]:
    """The candidates that are kept, in order."""
    seen: set[Any] = set()
    kept = []
    for file in candidates():
        content = file.content()
        new = set(_shown(content)) - seen
        if new:
            seen |= new
            kept.append(Seed(file, content))
    return tuple(kept)


def _shown(content: bytes) -> Iterator[Any]:
    """What a file shows: to the targets of whole files, and where its parts lie."""
    for name in ("decoding", "verify", "rebuilding"):
        yield name, TARGETS[name].check(content)
    view = cmfspec.open(content).view
    spans = {section: view.span(section) for section in SECTIONS}
    yield "order", tuple(sorted((s for s in SECTIONS if view.present(s)), key=lambda s: spans[s][0]))
    yield "hashed", tuple(bool(view.envelope[f"{part}_hash"]) for part in ("header", "dir"))
    yield "features", view.envelope["required_features"], bool(view.envelope["flags"])
    for tensor in cmfspec.open(content):
        yield "shape", tensor.dtype, len(tensor.shape), 0 in tensor.shape
    yield "odd", tuple(spans[section][0] % 8 != 0 for section in ("dir", *OPTIONAL))


def expectation(content: bytes) -> dict[str, Any]:
    """What is right to say of a file: its faults, or its sections and tensors, and the SHA-256 of all their values."""
    faults = [fault.rule for fault in cmfspec.faults(content)]
    if faults:
        return {"accepted": False, "faults": faults}
    opened = cmfspec.open(content)
    values, refused = hashlib.sha256(), {}
    for tensor in opened:
        try:
            values.update(opened.values(tensor.index).astype("<f4").tobytes())
        except Refusal as refusal:
            refused[str(tensor.index)] = refusal.fault.rule
    return {
        "accepted": True, "tensors": len(opened), "sections": opened.sections, "values": values.hexdigest(),
        "refused": refused, "sound": not any(cmfspec.verify(opened)),
    }  # fmt: skip


def wanted() -> dict[str, bytes]:
    """File name to content, as the folder should be."""
    lines = [
        canonical({"sha256": seed.digest, "file": seed.file.to_json(), "expect": expectation(seed.content)})
        for seed in chosen()
    ]
    return {seed.name: seed.content for seed in chosen()} | {INDEX: "".join(f"{line}\n" for line in lines).encode()}


def stored() -> dict[str, bytes]:
    """File name to content, as the folder is."""
    return {path.name: path.read_bytes() for path in sorted(HOME.iterdir())} if HOME.is_dir() else {}


@cache
def shipped() -> tuple[bytes, ...]:
    """The seeds, as they are stored, in the order of the index. Raises ValueError for one that is not what it was."""
    folder = files("fuzz").joinpath("seeds")
    found = []
    for line in folder.joinpath(INDEX).read_text("ascii").splitlines():
        digest = json.loads(line)["sha256"]
        content = folder.joinpath(f"{digest[:16]}.cmf").read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"seed {digest[:16]} is damaged")
        found.append(content)
    return tuple(found)


def write(content: dict[str, bytes]) -> None:
    """Make the folder hold exactly this."""
    HOME.mkdir(exist_ok=True)
    for name in stored().keys() - content.keys():
        (HOME / name).unlink()
    for name, raw in content.items():
        (HOME / name).write_bytes(raw)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.corpus", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something would change")
    content = wanted()
    if not parser.parse_args().check:
        write(content)
    present = stored()
    wrong = sorted(name for name in present.keys() | content.keys() if present.get(name) != content.get(name))
    size = sum(map(len, content.values()))
    print(f"{len(chosen())} seeds, {size} bytes" + (f"; not as stored: {', '.join(wrong)}" if wrong else ""))
    sys.exit(bool(wrong) or size > LARGEST)


if __name__ == "__main__":
    main()
