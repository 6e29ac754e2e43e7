"""A Hugging Face folder to a `.cmf` or its shards (§1 to §4, §6, §10).

Law: every tensor and every key of the source is carried or refused by name. One tensor is held at a time: its values as
float32 and its payload. The same source and options give the same bytes. What encoding a tensor gets is
`cmfspec.codecs.plan`'s: vectors and small tensors f16, routers and gates f16 beside quantised weights, all other matrices
(embeddings and the head too) what is asked for, q8_2f where that wants whole groups of 32 in a row and there are none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cmfspec
from cmfspec.codecs import plan
from cmfspec.errors import CannotEncode
from cmfspec.layout import VERSION
from cmfspec.tools.blocks import family, loudest, payload
from cmfspec.tools.config import Model, model_of
from cmfspec.tools.fused import Cut
from cmfspec.tools.names import mtp_layers, plan_of
from cmfspec.tools.output import appearing, target_of
from cmfspec.tools.safetensors import WEIGHTS, Stored, Weights
from cmfspec.tools.tokenizer import Tokenizer, tokenizer_of
from cmfspec.tools.unpackable import Unpackable, json_file, shown
from cmfspec.tools.writer import Item, Tally, write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

# What --quant takes: the encodings of weights by name, and the text's own abbreviation of one.
QUANTS = {
    "f32": "f32", "f16": "f16", "bf16": "bf16", "q8_row": "q8_row", "q8_2f": "q8_2f", "q4_block": "q4_block",
    "q4t": "q4_tiled", "q4_tiled": "q4_tiled", "q4tp": "q4tp", "vbit": "vbit", "vbit_ro": "vbit_ro",
    "q1": "q1", "q1s": "q1s", "q1t": "q1t",
}  # fmt: skip
# The header's quant_type is informational (§2); these are the words that readers know.
LABELS = {
    "f32": "F32", "f16": "F16", "bf16": "BF16", "q8_row": "Q8_ROW", "q8_2f": "Q8_2F", "q4_block": "Q4_BLOCK",
    "q4_tiled": "Q4_BLOCK", "q4tp": "Q4_BLOCK", "vbit": "VBIT", "vbit_ro": "VBIT", "q1": "VBIT", "q1s": "VBIT", "q1t": "VBIT",
}  # fmt: skip
EXPERT = re.compile(r"\.experts\.\d+\.")
_FIRST = (  # the order of §2
    "arch_name", "hidden_size", "intermediate_size", "num_layers", "num_attention_heads", "num_kv_heads", "head_dim",
    "vocab_size", "layer_types", "rms_norm_eps", "norm_style", "rope_theta", "tie_word_embeddings", "max_position_embeddings",
)  # fmt: skip

Progress = Callable[[str, int, int], None]  # (tensor that was written, weights so far, weights of all)


def silent(_: str, __: int, ___: int) -> None:
    """A progress that nobody watches."""


@dataclass(frozen=True)
class Report:
    """What was written. files: in order; counts: encoding to (tensors, bytes); remarks: what is worth knowing."""

    files: tuple[Path, ...]
    counts: Mapping[str, tuple[int, int]]
    remarks: tuple[str, ...]


def pack(
    source: str | os.PathLike[str],
    out: str,
    quant: str,
    shard_bytes: int | None = None,
    text_only: bool = False,
    progress: Progress = silent,
) -> Report:
    """Write the model in the folder `source` to the file `out`.

    quant: a key of QUANTS; shard_bytes: begin another shard where the tensors of one, as float32, would pass this (§10);
    text_only: leave out what a composite model has besides its text model.
    Raises Unpackable for a source that can't be carried and for weights that an encoding can't hold, Unwritable for an output
    that can't be, OSError where the machine can't. Then nothing has appeared.
    """
    folder, encoding = Path(source), QUANTS[quant]
    model = model_of(json_file(folder / "config.json"), text_only)
    with Weights(folder) as weights:
        target = target_of(out, [one for one in folder.iterdir() if one.is_file()])
        planned = plan_of(folder, weights, model.arch, bool(model.mtp), text_only)
        for cut in planned.cuts:
            if cut.stored.dtype not in WEIGHTS:
                raise Unpackable(
                    cut.stored.file,
                    f"tensor {shown(cut.stored.name)}",
                    cut.stored.dtype,
                    f"one of {', '.join(WEIGHTS)}",
                )
        for one, first in planned.copies:
            _check_copy(weights, one, first)
        tokenizer = tokenizer_of(folder, model.file, model.arch["vocab_size"])
        header = _header(folder, _arch(model, planned.cuts), encoding, tokenizer, planned.left_out)
        widths = _widths(weights, planned.cuts, encoding)
        shards = _shards(planned.cuts, shard_bytes)
        count = len(shards)
        names = [shard_name(target.name, no, count) for no in range(1, count + 1)] if shard_bytes else [target.name]
        tally = Tally(sum(cut.count for cut in planned.cuts), progress)
        with appearing(target, names) as openers:
            for no, (opener, cuts) in enumerate(zip(openers, shards, strict=True), 1):
                items = [_item(weights, cut, encoding, widths) for cut in cuts]
                with opener() as stream:
                    if shard_bytes:
                        write(stream, shard_header(header, no, count), items, _vocab(tokenizer, no), tally)
                    else:
                        write(stream, header, items, _vocab(tokenizer, 1), tally)
            weights.settle()
    files = tuple(target.with_name(name) for name in names)
    return Report(files, tally.counts, tokenizer.remarks + _remarks(planned.left_out))


def _vocab(tokenizer: Tokenizer, no: int) -> dict[str, bytes]:
    return {"vocab": tokenizer.vocab} if no == 1 else {}


def _remarks(left_out: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"left out: {count} tensors of {prefix}*" for prefix, count in sorted(left_out.items()))


def _arch(model: Model, cuts: Sequence[Cut]) -> dict[str, Any]:
    """The arch with its MTP head (§2.1), which is there iff its tensors are; the keys of §2 first."""
    arch = dict(model.arch)
    if layers := mtp_layers({cut.name: cut for cut in cuts}):
        if model.mtp is not None and model.mtp != layers:
            raise Unpackable(model.file.path, "mtp layers", f"{model.mtp}, and {layers} in the weights", "one number")
        arch["mtp"] = {"num_layers": layers, "share_lm_head": True, "share_embed": True}
    return {key: arch[key] for key in (*_FIRST, *(key for key in arch if key not in _FIRST))}


def _header(
    folder: Path, arch: Mapping[str, Any], encoding: str, tokenizer: Tokenizer, left_out: Mapping[str, int]
) -> dict[str, Any]:
    name = os.fsencode(folder.resolve().name).decode("utf-8", "replace")
    provenance: dict[str, Any] = {"tool": f"cmfspec {cmfspec.__version__}", "source_model": name, "quant": encoding}
    if left_out:
        provenance["left_out"] = dict(sorted(left_out.items()))
    header = {
        "format": "cmf",
        "version": VERSION,
        "arch": arch,
        "quant_type": LABELS[encoding],
        "provenance": provenance,
    }
    return header | ({"tokenizer_config": tokenizer.config} if tokenizer.config else {})


def shard_name(name: str, no: int, count: int) -> str:
    """The name of a shard (§10); name: of the whole."""
    return f"{name.removesuffix('.cmf')}-{no:05}-of-{count:05}.cmf"


def shard_header(header: Mapping[str, Any], no: int, count: int) -> dict[str, Any]:
    """A shard's header: what belongs to the whole model stands in the first alone (§10)."""
    alone: dict[str, Any] = {} if no == 1 else {"tokenizer_config": None, "skills": []}
    return {**header, **alone, "shard": {"no": no, "count": count}}


def _shards(cuts: Sequence[Cut], limit: int | None) -> list[list[Cut]]:
    """Greedy, in order; a tensor that is larger than the limit has a shard to itself."""
    shards: list[list[Cut]] = [[]]
    size = 0
    for cut in cuts:
        nbytes = 4 * cut.count
        if limit and shards[-1] and size + nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(cut)
        size += nbytes
    return shards


def values(weights: Weights, cut: Cut) -> F32:
    """The values of a tensor, read about a MiB at a time. Raises Unpackable."""
    out = np.empty(cut.shape, np.float32)
    first, step = cut.cols
    into = out.T if cut.turned else out.reshape(-1, len(range(first, cut.stored.cols, step)) or 1)
    at = 0
    for begin, end in cut.rows:
        for _, chunk in weights.chunks(cut.stored, begin, end):
            into[at : at + len(chunk)] = chunk[:, first::step]
            at += len(chunk)
    return out


def _item(weights: Weights, cut: Cut, encoding: str, widths: Mapping[str, NDArray[np.uint8]]) -> Item:
    dtype = plan(cut.name, cut.shape, encoding)

    def made() -> bytes | bytearray:
        try:
            return payload(dtype, values(weights, cut), cut.name, widths.get(cut.name))
        except ValueError as error:
            raise Unpackable(
                cut.stored.file, f"tensor {shown(cut.stored.name)}", error, f"what {dtype} holds"
            ) from None
        except CannotEncode as error:
            fault = error.fault
            raise Unpackable(cut.stored.file, fault.field, fault.found, f"{fault.wanted}, in {dtype}") from None

    return Item(cut.name, dtype, cut.shape, made)


def _widths(weights: Weights, cuts: Sequence[Cut], encoding: str) -> dict[str, NDArray[np.uint8]]:
    """For vbit: the widths of the rows of experts, who share a budget by layer and projection (§3.2)."""
    families: dict[str, list[Cut]] = {}
    for cut in cuts:
        if plan(cut.name, cut.shape, encoding) in ("vbit", "vbit_ro") and EXPERT.search(cut.name):
            families.setdefault(EXPERT.sub(".experts.*.", cut.name), []).append(cut)
    found: dict[str, NDArray[np.uint8]] = {}
    for members in families.values():
        loudness = [_finite(loudest(values(weights, cut)), cut) for cut in members]
        found |= zip((cut.name for cut in members), family(loudness), strict=True)
    return found


def _finite(loudness: F32, cut: Cut) -> F32:
    wrong = ~np.isfinite(loudness[:, 0])
    if wrong.any():
        row = int(wrong.argmax())
        raise Unpackable(cut.stored.file, f"{cut.name}, row {row}", loudness[row, 0], "finite weights")
    return loudness


def _check_copy(weights: Weights, one: Stored, first: Stored) -> None:
    """A tensor that the header says is shared has to be the one that it is shared with."""
    where = f"tensor {shown(one.name)}"
    if one.shape != first.shape:
        raise Unpackable(
            one.file, where, list(one.shape), f"{list(first.shape)}, as {shown(first.name)} that it is tied to"
        )
    pairs = zip(weights.chunks(one, 0, one.rows), weights.chunks(first, 0, first.rows), strict=False)
    if one.dtype != first.dtype or any(not np.array_equal(a, b) for (_, a), (_, b) in pairs):
        raise Unpackable(one.file, where, "other values", f"those of {shown(first.name)}, which it is tied to")
