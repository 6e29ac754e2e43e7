"""Recipes: small valid files by name, as blueprints.

Law: a recipe is deterministic, and no tensor of it is invariant under a permutation of its elements or groups: a reader
that mixes them up must be seen to. Every recipe with a hash to check has content that no swap of words leaves equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.format.blueprint import Blueprint, Entry, index_section, masks_section
from cmfspec.layout import DTYPE_IDS, GROUP
from golden.masked import cut, masked
from golden.models import of_the_oracle, quantised, small
from golden.numbers import floats, noise

ARCH: Mapping[str, Any] = {
    "arch_name": "qwen3.5",
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_layers": 2,
    "num_attention_heads": 3,
    "num_kv_heads": 1,
    "head_dim": 16,
    "vocab_size": 300,
    "layer_types": ["LinearAttention", "FullAttention"],
    "rms_norm_eps": 1e-6,
    "norm_style": "qwen",
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
}
HEADER: Mapping[str, Any] = {
    "format": "cmf",
    "version": 2,
    "arch": ARCH,
    "quant_type": "F16",
    "provenance": {"tool": "cmfspec"},
}
VOCAB = b'{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}'


def scales(seed: str, count: int) -> bytes:
    """`count` positive normal halves."""
    values = np.abs(floats(seed, count)) / 16 + np.float32(2**-10)
    return bytes(values.astype("<f2"))


def entry(name: str, dtype: str, shape: tuple[int, ...], seed: str = "") -> Entry:
    """A tensor with a valid payload of that encoding."""
    seed = f"{seed}{name}/{dtype}/{shape}"
    total = int(np.prod(shape, dtype=np.int64)) if shape else 1
    payload = _PAYLOADS.get(dtype, _sized)(seed, dtype, total, shape)
    return Entry(name, DTYPE_IDS[dtype], shape, payload)


def _sized(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:
    """Noise for the quants with normal halves wherever the layout has a scale."""
    codec = CODECS[DTYPE_IDS[dtype]]
    rows, cols = shape if len(shape) == 2 else (1, total)
    if codec.nbytes is None:
        raise ValueError(f"{dtype} has no fixed size")
    return noise(seed, int(codec.nbytes(total, rows, cols)))


def _f32(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    return floats(seed, total).astype("<f4").tobytes()


def _f16(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    return floats(seed, total).astype("<f2").tobytes()


def _bf16(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    return (floats(seed, total).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def _q8(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:
    """No −128: whoever gets that wrong is to be told so by one rule."""
    rows, cols = shape
    return noise(seed, total).replace(b"\x80", b"\x7f") + scales(seed + "s", rows + (cols if dtype == "q8_2f" else 0))


def _q4_block(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    """No nibble 0, which is −8: whoever gets that wrong is to be told so by one rule."""
    count = -(-total // GROUP)
    nibbles = bytes((byte & 15 or 1) | (byte >> 4 or 1) << 4 for byte in noise(seed, count * GROUP // 2))
    return nibbles + scales(seed + "s", count)


def _tiles(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    size = {"q4_tiled": 16, "q1": 4, "q1s": 4}[dtype]
    tiles = b"".join(scales(f"{seed}{g}s", 1) + noise(f"{seed}{g}", size) for g in range(total // GROUP))
    overlay = b""
    if dtype == "q1s":
        where = range(0, total, 13)
        values = floats(seed + "o", len(where)).astype("<f2").tobytes()
        overlay = len(where).to_bytes(4, "little")
        overlay += b"".join(at.to_bytes(4, "little") + values[2 * i : 2 * i + 2] for i, at in enumerate(where))
    return tiles + overlay


def _q4tp(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    rows, cols = shape
    params = b"".join(np.array([-6 - r % 3, 0.125 + 0.0625 * (r % 4)], "<f2").tobytes() for r in range(rows))
    codes = noise(seed + "c", rows * (-(-(cols // GROUP) * 5 // 8)))
    return noise(seed, total // 2) + params + codes


def _bits(raw: bytes, width: int) -> bytes:
    """Codes of `width` bits, the high bit first. Never the top one: whoever gets that wrong is to be told by one rule."""
    codes = "".join(f"{byte % (2**width - 1):0{width}b}" for byte in raw)
    return int(codes or "0", 2).to_bytes(len(codes) // 8, "big")


def _vbit(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:
    rows, cols = shape
    widths = [(3, 4, 5, 6, 8)[r % 5] for r in range(rows)]
    packed = [_bits(noise(f"{seed}{r}", cols), width) for r, width in enumerate(widths)]
    offsets = np.cumsum([0, *map(len, packed)]).astype("<u4").tobytes() if dtype == "vbit_ro" else b""
    return bytes(widths) + scales(seed + "s", total // GROUP) + offsets + b"".join(packed)


def _q1t(seed: str, dtype: str, total: int, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    rows, cols = shape
    tiles = b""
    for group in range(total // GROUP):
        digits = bytes(byte % 243 for byte in noise(f"{seed}{group}", 6)) + bytes([noise(f"{seed}{group}t", 1)[0] % 9])
        tiles += scales(f"{seed}{group}s", 1) + digits
    columns = [sorted({byte % cols for byte in noise(f"{seed}{r}col", r % 4)}) for r in range(rows)]
    pointers = np.cumsum([0, *map(len, columns)]).astype("<u4").tobytes()
    flat = [col for row in columns for col in row]
    values = floats(seed + "o", len(flat)).astype("<f2").tobytes()
    return tiles + pointers + b"".join(c.to_bytes(2, "little") + values[2 * i : 2 * i + 2] for i, c in enumerate(flat))


_PAYLOADS: dict[str, Callable[[str, str, int, tuple[int, ...]], bytes]] = {
    "f32": _f32, "f16": _f16, "bf16": _bf16, "q8_row": _q8, "q8_2f": _q8, "q4_block": _q4_block,
    "q4_tiled": _tiles, "q1": _tiles, "q1s": _tiles, "q4tp": _q4tp, "vbit": _vbit, "vbit_ro": _vbit, "q1t": _q1t,
}  # fmt: skip


def _masks() -> bytes:
    ffn, heads, gates = 2 * 5, 2 * 1, 1  # ARCH: 2 layers, 40 neurons, 3 heads
    blobs = [
        bytes([*noise(f"ffn{i}", ffn), *(b & 7 for b in noise(f"head{i}", heads)), 3][: ffn + heads + gates])
        for i in range(2)
    ]
    rest = {"description": None, "quality": None, "parent": None, "has_hot_pack": False}
    masks = [
        {"task_id": 0, "name": "general", "sparsity": 0.5, "priority": "Fallback", **rest},
        {"task_id": 1, "name": "code", "sparsity": 0.25, "priority": "Normal", **rest},
    ]
    return masks_section({"default_task": "general", "masks": masks}, blobs)


def _index() -> bytes:
    return index_section([(0, 0, [0, 1], [0, 2]), (0, 1, [1], [1]), (1, 0, [0], [0, 1, 2])])


NORM = "model.layers.0.input_layernorm.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"
HEAD = "lm_head.weight"


def _plain() -> Blueprint:
    return Blueprint(HEADER, (entry(NORM, "f16", (32,)), entry(GATE, "f32", (5, 7)), entry(HEAD, "bf16", (3, 11))))


def _full() -> Blueprint:
    """Every section within 8 KiB."""
    tensors = (
        entry(NORM, "f16", (32,)),
        entry(GATE, "q8_2f", (4, 32)),
        entry("model.layers.0.mlp.up_proj.weight", "q4_block", (3, 21)),
        entry(HEAD, "vbit", (5, 32)),
    )
    return Blueprint(HEADER, tensors, _masks(), VOCAB, _index())


def _wide() -> Blueprint:
    """Integers that need more than one byte, in every field that can have them."""
    long_name = "model.layers.0." + "ab" * 160 + ".weight"
    tensors = (entry(GATE, "f16", (258, 3)), entry(long_name, "q8_row", (2, 770)), entry(HEAD, "f32", (1, 2, 513)))
    return Blueprint({**HEADER, "provenance": {"tool": "cmfspec", "note": "x" * 200}}, tensors)


def _encodings() -> Blueprint:
    """One tensor of each encoding that can be read."""
    shapes = {"f32": (3, 5), "f16": (33,), "bf16": (2, 3, 4), "u8": (50,), "q4_block": (7, 9)}
    tensors = tuple(entry(f"w.{codec.name}", codec.name, shapes.get(codec.name, (5, 64))) for codec in CODECS.values())
    return Blueprint(HEADER, tensors)


def _skill() -> Blueprint:
    record = {
        "id": "gfx-html",
        "layers": [0],
        "base_dir_hash": "9f22593eb458bc6f",
        "base_arch": "qwen3.5",
        "task": "specialist",
        "provenance": {"corpus": "none", "tensors": 1},
    }
    return Blueprint({**HEADER, "skills": [record]}, (entry(GATE, "f16", (5, 7)),))


def _unprotected() -> Blueprint:
    """Sections that no hash covers, as old files have them."""
    return Blueprint({**HEADER, "section_hashes": None}, (entry(NORM, "f16", (32,)),), _masks(), VOCAB, _index())


_RECIPES: dict[str, Callable[[], Blueprint]] = {
    "plain": _plain,
    "full": _full,
    "wide": _wide,
    "encodings": _encodings,
    "skill": _skill,
    "unprotected": _unprotected,
    "tiny": lambda: Blueprint(HEADER, (entry(NORM, "f16", (32,)),)),
    "empty": lambda: Blueprint(HEADER),
    "hollow": lambda: Blueprint(HEADER, (entry(NORM, "f16", (32,)), entry("w.none", "f16", (0,)))),
    "vocab": lambda: Blueprint(HEADER, (entry(NORM, "f16", (32,)),), vocab=VOCAB),
}
NAMES = tuple(_RECIPES)


def _one(dtype: str, shape: str = "", seed: str = "") -> Blueprint:
    """One tensor of that encoding and shape (`5x64`); no shape: a scalar."""
    dims = tuple(int(dim) for dim in shape.split("x")) if shape else ()
    return Blueprint(HEADER, (entry("w", dtype, dims, seed),))


def _every(dtype: str) -> Blueprint:
    """All 65536 patterns of a half."""
    return Blueprint(HEADER, (Entry("w", DTYPE_IDS[dtype], (256, 256), np.arange(65536, dtype="<u2").tobytes()),))


def _many(count: str, length: str) -> Blueprint:
    """Very small tensors with names of that length."""
    names = (f"w.{index:0>{int(length) - 2}}" for index in range(int(count)))
    return Blueprint(HEADER, tuple(entry(name, "f16", (3,)) for name in names))


_FAMILIES: dict[str, Callable[..., Blueprint]] = {
    "one": _one, "every": _every, "many": _many,
    "model": small, "quant": quantised, "oracle": of_the_oracle, "masked": masked, "cut": cut,
}  # fmt: skip


@cache
def recipe(name: str) -> Blueprint:
    """The blueprint of that name: one of `NAMES`, or a family and its parameters (`one:vbit:5x64`). Raises KeyError."""
    family, *parameters = name.split(":")
    return _FAMILIES[family](*parameters) if parameters else _RECIPES[name]()
