"""Real files that the format's own tools wrote, and what each tensor in them decodes to.

Law: a file here is the tool's, byte for byte; the one excerpt says that it is one. Those that are mostly zeros lie packed
(`.xz`) and count as their content. PROVENANCE.json says of each why it is here and has the SHA-256 of its content;
expected.json and q4tp_values.npz are the rows of the source that concern these files. They serve tests, and don't ship.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.format.container import open
from cmfspec.layout import SECTIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOME = Path(__file__).with_suffix("")
SOURCE = HOME.parent.parent.parent / "shared" / "interop"
EXPECTED, LADDER, PROVENANCE = "expected.json", "q4tp_values.npz", "PROVENANCE.json"
PACKED = ".xz"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the date of each member of LADDER: the same content, the same bytes


@dataclass(frozen=True)
class Chosen:
    """A file of the source. why: what it alone stands for; packed: it lies compressed; refused: the kind, if a reader
    of this text refuses it; of: it is an excerpt of this file, and holds the tensors of one dtype, `only`."""

    name: str
    why: str
    packed: bool = False
    refused: str = ""
    of: str = ""
    only: str = ""

    @property
    def lies(self) -> str:
        """Where it lies, from HOME."""
        return self.name + PACKED * self.packed


CHOSEN: tuple[Chosen, ...] = (
    Chosen("rust/qwen2-q4.cmf", "q4_block, and f16 beside it as in all of these"),
    Chosen("rust/qwen2-q4t.cmf", "q4_tiled"),
    Chosen("rust/qwen2-q4tp.cmf", "q4tp: the values within a tolerance, from q4tp_values.npz"),
    Chosen("rust/qwen2-q8_2f.cmf", "q8_2f, with feature bit 2"),
    Chosen("rust/qwen2-vbit.cmf", "vbit_ro without feature bit 2, which is legal"),
    Chosen("rust/qwen2-q1.cmf", "q1"),
    Chosen("rust/qwen2-q1s.cmf", "q1s with outliers"),
    Chosen("rust/qwen2-q1t.cmf", "q1t with outliers"),
    Chosen("python/qwen2-VBIT.cmf", "vbit, with feature bit 2, by the Python converter"),
    Chosen("python/llama-masks.cmf", "f32 matrices; masks of neurons, heads and gates, with an index"),
    Chosen("python/qwen3-masks-q8.cmf", "q8_row by the Python converter, with masks and an index"),
    Chosen("python/qwen3-skills-q8.cmf", "two skills inside a base: a registry, phi, tensors named skill.*"),
    Chosen("python/qwen3-defrag.cmf", "neurons cut out: shapes that no longer follow from the arch"),
    *(
        Chosen(f"python/shards/qwen3-0000{part}-of-00007.cmf", f"shard {part} of one model")
        for part in range(1, 8)
    ),
    Chosen("rust/lfm2_moe-moemask.cmf", "masks of experts; a 1-D tensor in f32, which readers take and writers don't make"),
    Chosen("rust/lfm2_moe-moedefrag.cmf", "experts cut out"),
    Chosen("rust/skill-standalone.cmf", "feature bit 6: a skill by itself; a hash for a vocab that isn't there"),
    Chosen("rust/signed.cmf", "q8_row by the Rust tool; its signature lies beside it"),
    Chosen("rust/qwen2-q8-streamed.cmf", "data_off near 7 MB, behind a gap of zeros", packed=True),
    Chosen("rust/qwen2-q2tp.cmf", "dtype 16, of which the text knows nothing", refused="Parse"),
    Chosen("broken/converter-died.cmf", "zeros where the envelope belongs", packed=True, refused="InvalidMagic"),
    Chosen(
        "excerpt/lumina-u8.cmf",
        "u8, which no file of less than 2.7 MB has: header, names and payloads are the tool's, the layout is ours",
        of="rust/lumina-q4t.cmf",
        only="u8",
    ),
)  # fmt: skip
SIGNATURE = "rust/signed.cmf.sig"

FACTS = (
    "rust/ is by the reference CLI cortiq 0.8.54: `convert --quant Q`, then `compact`; `moe-mask`, `moe-defrag`, `sign`, "
    "`skill export`. python/ is by the reference project's Python converter 0.5.100.",
    "The models are tiny ones with random weights; the tokenizer is a byte-level BPE of 123 tokens made for this.",
    "expected.json: per tensor the SHA-256 of its values as row-major little-endian float32 (u8: of its raw bytes). They are "
    "from a reading of the text that shares no code with any product; the Rust reader agrees to the bit, in q4tp to 2e-6.",
    "q4tp_values.npz: the values of q4tp tensors, key `file:tensor`, to be met within 1e-5 of the tensor's largest value.",
    "No file of the source has bf16. Left out are models that add no encoding and no construct of the container.",
)


def names() -> tuple[str, ...]:
    """The files, as they are named in EXPECTED."""
    return tuple(chosen.name for chosen in CHOSEN)


def content(name: str) -> bytes:
    """A file as its tool wrote it. Raises KeyError for one that isn't here, LZMAError for one that can't be unpacked."""
    return _unpacked(HOME / {chosen.name: chosen.lies for chosen in CHOSEN}[name])


def expected() -> dict[str, dict[str, Any]]:
    """File name to bytes, required_features, sections {name: [off, len]} and tensors {name: dtype, shape, nbytes, hash,
    sha256}."""
    rows: dict[str, dict[str, Any]] = json.loads((HOME / EXPECTED).read_text("utf-8"))
    return rows


def ladder() -> dict[str, NDArray[np.float32]]:
    """`file:tensor` to the values of a q4tp tensor, float32 of its shape."""
    with np.load(HOME / LADDER) as stored:
        return dict(stored)


def wanted(source: Path = SOURCE) -> dict[str, bytes]:
    """What the folder should hold, made from the source: where it lies to its content, unpacked."""
    rows = json.loads((source / EXPECTED).read_text("utf-8"))
    files, kept = {SIGNATURE: (source / SIGNATURE).read_bytes()}, {}
    for chosen in CHOSEN:
        if chosen.of:
            files[chosen.lies], kept[chosen.name] = _excerpt(chosen, source, rows[chosen.of])
            continue
        files[chosen.lies] = (source / chosen.name).read_bytes()
        if not chosen.refused:
            kept[chosen.name] = rows[chosen.name]
    lines = [f"{json.dumps(name)}:{json.dumps(kept[name], separators=(',', ':'))}" for name in sorted(kept)]
    files[EXPECTED] = ("{" + ",\n".join(lines) + "}\n").encode()
    files[LADDER] = _some_of((source / LADDER).read_bytes(), kept)
    files[PROVENANCE] = _provenance(files)
    return files


def write(files: Mapping[str, bytes]) -> None:
    """Write what differs, and delete what has no place."""
    for lies in _present() - files.keys():
        (HOME / lies).unlink()
    for lies in differing(files):
        path = HOME / lies
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(files[lies], preset=9) if lies.endswith(PACKED) else files[lies])


def differing(files: Mapping[str, bytes]) -> list[str]:
    """What is not in the folder as it should be."""
    present = _present()
    return sorted(
        lies
        for lies in present | files.keys()
        if lies not in present or lies not in files or _seen(lies) != files[lies]
    )


def damaged() -> list[str]:
    """What in the folder is not what its PROVENANCE.json says: changed, missing, or not named there."""
    named: dict[str, Any] = json.loads((HOME / PROVENANCE).read_text("utf-8"))["files"]
    present = _present() - {PROVENANCE}
    return sorted(
        lies
        for lies in present | named.keys()
        if lies not in present or lies not in named or _sha256(_seen(lies) or b"") != named[lies]["sha256"]
    )


def _present() -> set[str]:
    return {path.relative_to(HOME).as_posix() for path in HOME.rglob("*") if path.is_file()}


def _unpacked(path: Path) -> bytes:
    raw = path.read_bytes()
    return lzma.decompress(raw) if path.name.endswith(PACKED) else raw


def _seen(lies: str) -> bytes | None:
    """The content of what lies there; None if it can't be unpacked."""
    try:
        return _unpacked(HOME / lies)
    except lzma.LZMAError:
        return None


def _excerpt(chosen: Chosen, source: Path, row: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """A file of some tensors of another, and its row of EXPECTED."""
    whole = open(source / chosen.of)
    some = [tensor for tensor in whole if tensor.dtype_name == chosen.only]
    entries = (Entry(t.name, t.dtype, t.shape, bytes(whole.raw(t.index))) for t in some)
    made = render(Blueprint(whole.header, tuple(entries)))
    view = open(made).view
    return made, {
        "bytes": len(made),
        "required_features": view.envelope["required_features"],
        "sections": {section: list(view.span(section)) for section in SECTIONS},
        "tensors": {tensor.name: row["tensors"][tensor.name] for tensor in some},
    }


def _some_of(archive: bytes, files: Mapping[str, Any]) -> bytes:
    """The members of an npz whose key begins with one of these names, each as it stands."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as whole, zipfile.ZipFile(out, "w") as some:
        for member in sorted(whole.namelist()):
            if member.split(":")[0] in files:
                some.writestr(zipfile.ZipInfo(member, LONG_AGO), whole.read(member))
    return out.getvalue()


def _provenance(files: Mapping[str, bytes]) -> bytes:
    chosen = {entry.lies: entry for entry in CHOSEN}
    others = {
        SIGNATURE: "the signature of rust/signed.cmf",
        EXPECTED: "what each file holds and what its tensors decode to",
        LADDER: "the values of the q4tp tensors",
    }
    rows = {}
    for lies, raw in sorted(files.items()):
        entry = chosen.get(lies)
        row = {"why": entry.why if entry else others[lies], "bytes": len(raw), "sha256": _sha256(raw)}
        row |= {"refused": entry.refused} if entry and entry.refused else {}
        row |= {"excerpt_of": entry.of} if entry and entry.of else {}
        rows[lies] = row
    about = {"recipe": "golden/interop.py", "made_by": "python -m golden.make interop", "facts": FACTS}
    return (json.dumps({**about, "files": rows}, indent=1) + "\n").encode()


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
