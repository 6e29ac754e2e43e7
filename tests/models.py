"""Small Hugging Face folders, made and read without any of our own code."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "I64": np.dtype("<i8")}
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def safetensors(tensors: Mapping[str, tuple[str, Any]]) -> bytes:
    """A file of these tensors: name to (dtype, array)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read(path: Path) -> dict[str, Any]:
    """Name to array of a file of F32, F16 or BF16; float32."""
    raw = path.read_bytes()
    length = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        array = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        found[name] = array.astype(np.float32)
    return found


def llama(config: Mapping[str, Any] = CONFIG, seed: int = 7) -> dict[str, Any]:
    """The weights that a llama of this configuration has, float32."""
    dice = np.random.default_rng(seed)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
        shapes |= {f"{at}self_attn.{role}_proj.weight": (hidden, hidden) for role in "qo"}
        shapes |= {f"{at}self_attn.{role}_proj.weight": (kv, hidden) for role in "kv"}
        shapes |= {f"{at}mlp.{role}_proj.weight": (inner, hidden) for role in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (hidden, inner)
    return {name: dice.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def tokenizer(size: int) -> dict[str, Any]:
    """A tokenizer.json of single letters."""
    vocab = {chr(33 + i): i for i in range(size - 2)} | {"<s>": size - 2, "</s>": size - 1}
    return {
        "version": "1.0",
        "added_tokens": [{"id": size - 1, "content": "</s>"}],
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }


def folder(
    home: Path, config: Mapping[str, Any] = CONFIG, weights: Mapping[str, Any] | None = None, dtype: str = "F32"
) -> Path:
    """A folder with that model; weights: instead of those of a llama."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(json.dumps(config, indent=2))
    arrays = llama(config) if weights is None else weights
    stored = {name: (dtype, narrowed(array, dtype)) for name, array in arrays.items()}
    (home / "model.safetensors").write_bytes(safetensors(stored))
    return home


def narrowed(array: Any, dtype: str) -> Any:
    """float32 as it is stored; bfloat16 by cutting the lower half off."""
    return (array.view(np.uint32) >> 16).astype("<u2") if dtype == "BF16" else array.astype(DTYPES[dtype])


def with_tokenizer(home: Path, size: int = CONFIG["vocab_size"]) -> Path:
    """The same folder with a tokenizer and a chat template."""
    (home / "tokenizer.json").write_text(json.dumps(tokenizer(size)) + "\n")
    (home / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE, "eos_token": {"content": "</s>"}})
    )
    (home / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    return home
