"""Small models of Hugging Face and what it computes with them: the engine's ground truth that lies in the tree.

Law: a folder here is the source's, byte for byte: `config.json`, `model.safetensors` and `oracle.npz` (token ids, float32
logits, greedy continuations, likelihoods, drafts). PROVENANCE.json says why each is here and has the SHA-256 of its files.
They ship: stored cases ask any engine for these logits. With the whole source beside the tree our own tests take all
families from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

HOME = Path(__file__).with_suffix("")
SOURCE = HOME.parent.parent.parent / "shared" / "oracle" / "models"
PROVENANCE = "PROVENANCE.json"
FILES = ("config.json", "model.safetensors", "oracle.npz")
CHOSEN: Mapping[str, str] = {
    "llama": "the plainest: attention and a dense feed-forward",
    "llama3rope": "frequencies with factors of their own",
    "llama_yarn": "frequencies scaled by YaRN",
    "mistral": "a window of 8 in every layer",
    "qwen2": "biases of q, k and v",
    "qwen3": "norms of queries and keys; 6 heads of 16 are not the hidden size",
    "qwen2_moe": "biases; a router, experts and a gated shared expert beside a dense layer",
    "qwen3_moe": "a router whose chosen weights are divided by their sum",
    "qwen3_next": "fused projections of Gated DeltaNet; experts in one layer only",
    "qwen3_5": "Gated DeltaNet around full attention with an output gate; half of a head is rotated; two key heads",
    "qwen3_5_moe": "the same with experts and a shared one",
    "qwen3_5_mtp": "Gated DeltaNet, an output gate, qk-norm, partial rotation, (1+w) norms, tied weights, a head that drafts",
    "gemma": "(1+w) norms, scaled embeddings, GELU, one key head",
    "gemma2": "norms around both halves of a block, caps of scores and logits, a window in every other layer",
    "gemma3": "two bases of rotation, an irregular schedule of windows",
    "phi3": "fused q, k, v and gate, up",
    "olmo2": "norms after both halves of a block, norms of all queries at once",
    "deepseek_v3": "latent attention; a router by sigmoid with a bias of the choice; a head that drafts",
    "gpt_oss": "sinks, biases everywhere, experts that clamp",
    "lfm2": "short convolutions beside attention",
    "lfm2_moe": "the same with a router by sigmoid",
    "laguna": "gates of heads, layers with other numbers of heads, YaRN of half a head",
}


def wanted(source: Path = SOURCE) -> dict[str, bytes]:
    """Path below HOME to content, as it should be."""
    files = {f"{family}/{name}": (source / family / name).read_bytes() for family in CHOSEN for name in FILES}
    rows = {lies: {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()} for lies, raw in files.items()}
    about = {"recipe": "golden/oracle.py", "made_by": "python -m golden.make oracle", "why": CHOSEN, "files": rows}
    return {**files, PROVENANCE: f"{json.dumps(about, indent=1)}\n".encode()}


def write(files: Mapping[str, bytes]) -> None:
    """Write the files, and delete those that no longer have a place."""
    for lies in _present() - files.keys():
        (HOME / lies).unlink()
    for lies, raw in files.items():
        (HOME / lies).parent.mkdir(parents=True, exist_ok=True)
        (HOME / lies).write_bytes(raw)


def differing(files: Mapping[str, bytes]) -> list[str]:
    """What is not in the folder as it should be."""
    present = _present()
    return sorted(
        lies
        for lies in present | files.keys()
        if lies not in present or lies not in files or (HOME / lies).read_bytes() != files[lies]
    )


def damaged() -> list[str]:
    """What in the folder is not what its PROVENANCE.json says: changed, missing, or not named there."""
    named = json.loads((HOME / PROVENANCE).read_text("utf-8"))["files"]
    present = _present() - {PROVENANCE}
    return sorted(
        lies
        for lies in present | named.keys()
        if lies not in present
        or lies not in named
        or hashlib.sha256((HOME / lies).read_bytes()).hexdigest() != named[lies]["sha256"]
    )


def _present() -> set[str]:
    return {path.relative_to(HOME).as_posix() for path in HOME.rglob("*") if path.is_file()}
