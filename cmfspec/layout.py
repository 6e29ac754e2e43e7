"""Every offset, width, bit and id of the format, once (§1, §1.1, §3, §3.1, §4).

Law: tables only. A number of the spec that stands anywhere else in the code is a mistake.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

MAGIC = b"CMF\x01"
VERSION = 2
U64 = 2**64 - 1

# --- §1 the envelope: 128 bytes, little-endian ---------------------------------------------------------------------

ENVELOPE_SIZE = 128


@dataclass(frozen=True, slots=True)
class Field:
    """One integer of a fixed layout: name, offset and width in bytes."""

    name: str
    offset: int
    width: int


SECTIONS = ("header", "dir", "data", "masks", "vocab", "index")
MANDATORY = ("header", "dir")
OPTIONAL: tuple[str, ...] = ("masks", "vocab", "index")

ENVELOPE: tuple[Field, ...] = (
    Field("magic", 0x00, 4),
    Field("version", 0x04, 4),
    Field("flags", 0x08, 4),
    Field("required_features", 0x0C, 4),
    Field("header_off", 0x10, 8),
    Field("header_len", 0x18, 8),
    Field("dir_off", 0x20, 8),
    Field("dir_len", 0x28, 8),
    Field("data_off", 0x30, 8),
    Field("data_len", 0x38, 8),
    Field("masks_off", 0x40, 8),
    Field("masks_len", 0x48, 8),
    Field("vocab_off", 0x50, 8),
    Field("vocab_len", 0x58, 8),
    Field("index_off", 0x60, 8),
    Field("index_len", 0x68, 8),
    Field("header_hash", 0x70, 8),
    Field("dir_hash", 0x78, 8),
)
ENVELOPE_AT = {field.name: field.offset for field in ENVELOPE}
ENVELOPE_STRUCT = struct.Struct("<" + "".join({4: "I", 8: "Q"}[field.width] for field in ENVELOPE))

DATA_ALIGN = 4096  # §4: the blob, for mmap
TENSOR_ALIGN = 64  # §3, §4: each tensor, for SIMD loads
MASK_ALIGN = 8  # §5: each mask blob, from the section's start

# --- §1.1 required_features ----------------------------------------------------------------------------------------

TENSOR_DIR, BINARY_MASKS, QUANT_2F, DELTA_MASKS, HOT_PACKS, LOOP_MASKS, SKILL_FILE = range(7)
FEATURE_NAMES = (
    "TENSOR_DIR",
    "BINARY_MASKS",
    "QUANT_2F",
    "DELTA_MASKS",
    "HOT_PACKS",
    "LOOP_MASKS",
    "SKILL_FILE",
)
RESERVED_FEATURES = (DELTA_MASKS, HOT_PACKS)
IMPLEMENTED_FEATURES = (TENSOR_DIR, BINARY_MASKS, QUANT_2F, SKILL_FILE)

# --- §3 the tensor directory ---------------------------------------------------------------------------------------

DIR_HEAD: tuple[Field, ...] = (Field("count", 0, 8), Field("pool_off", 8, 8))
DIR_HEAD_SIZE = 16
MAX_NDIM = 6

RECORD: tuple[Field, ...] = (
    Field("name_off", 0, 4),
    Field("name_len", 4, 2),
    Field("dtype", 6, 1),
    Field("ndim", 7, 1),
    *(Field(f"shape{axis}", 8 + 4 * axis, 4) for axis in range(MAX_NDIM)),
    Field("off", 32, 8),
    Field("nbytes", 40, 8),
    Field("hash", 48, 8),
)
RECORD_SIZE = 56
RECORD_DTYPE = np.dtype(
    {
        "names": ["name_off", "name_len", "dtype", "ndim", "shape", "off", "nbytes", "hash"],
        "formats": ["<u4", "<u2", "u1", "u1", ("<u4", (MAX_NDIM,)), "<u8", "<u8", "<u8"],
        "offsets": [0, 4, 6, 7, 8, 32, 40, 48],
        "itemsize": RECORD_SIZE,
    }
)

# --- §3.1 dtype ids (§3.2 layouts are in cmfspec.codecs) -----------------------------------------------------------

DTYPE_NAMES = (
    "f32", "f16", "bf16", "q8_row", "q4_block", "mix8_4", "u8", "q4_col",
    "vbit", "q8_2f", "vbit_ro", "q4_tiled", "q1", "q1s", "q1t", "q4tp",
)  # fmt: skip
DTYPE_IDS = {name: number for number, name in enumerate(DTYPE_NAMES)}
GROUP = 32  # weights that share a scale

# --- §5, §7 heads of the optional sections -------------------------------------------------------------------------

MASKS_HEAD: tuple[Field, ...] = (Field("n_masks", 0, 4), Field("meta_len", 4, 4))
MASKS_HEAD_SIZE = 8
INDEX_HEAD: tuple[Field, ...] = (Field("n_entries", 0, 4), Field("reserved", 4, 4))
INDEX_HEAD_SIZE = 8
INDEX_ENTRY: tuple[Field, ...] = (
    Field("task_id", 0, 4),
    Field("layer_idx", 4, 4),
    Field("n_groups", 8, 4),
    Field("n_heads", 12, 4),
)
INDEX_ENTRY_SIZE = 16

# --- §8 hash64 -----------------------------------------------------------------------------------------------------

HASH_SALT = 0x9E3779B97F4A7C15
FMIX_1, FMIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
HASH_DIGITS = 16

# --- limits of this reader, where the text gives none --------------------------------------------------------------

READ_WHOLE = 64 * 2**20  # files up to this size are read, larger ones are mapped
MAX_JSON_DEPTH = 256
MAX_JSON_DIGITS = 4096
MAX_SHARED_NAMES = 16 * 2**20  # bytes that names may declare beyond what the pool holds


def align(value: int, to: int) -> int:
    """`value` rounded up to a multiple of `to`."""
    return -(-value // to) * to
