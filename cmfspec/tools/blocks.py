"""A tensor's payload, encoded a few rows at a time.

Law: the bytes are those of `cmfspec.codecs.encode` for the whole tensor. An encoder works in several arrays of the size
of what it is given; where the rows of an encoding are independent it is given some of them at a time, so that a large
tensor takes no more than its values, its payload and a few MiB. What a payload has by segments (all quants, then all
scales) is put together by segments; what is chosen for the whole tensor (column fields, outliers) is chosen first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.codecs import encode
from cmfspec.codecs.codec import ceil_div, groups
from cmfspec.codecs.encode_q1 import KEEP, by_rows, signed, sparse, ternary
from cmfspec.codecs.encode_vbit import family_widths, row_widths
from cmfspec.codecs.encoder import TINY, checked, raw, share, stored
from cmfspec.codecs.q4 import HALF
from cmfspec.layout import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmfspec.codecs.codec import F32

BLOCK = 1 << 18  # weights at a time

# (rows, columns) to the sizes of a payload's segments but the last, which is the rest.
SEGMENTS: Mapping[str, Callable[[int, int], tuple[int, ...]]] = {
    "f32": lambda rows, cols: (),  # noqa: ARG005
    "f16": lambda rows, cols: (),  # noqa: ARG005
    "bf16": lambda rows, cols: (),  # noqa: ARG005
    "q8_row": lambda rows, cols: (rows * cols,),
    "q4_block": lambda rows, cols: (ceil_div(rows * cols, GROUP) * HALF,),
    "q4_tiled": lambda rows, cols: (),  # noqa: ARG005
    "q4tp": lambda rows, cols: (rows * groups(cols) * HALF, 4 * rows),
    "q1": lambda rows, cols: (),  # noqa: ARG005
    "vbit": lambda rows, cols: (rows, 2 * rows * groups(cols)),
}


def payload(name: str, weights: F32, tensor: str, widths: NDArray[np.uint8] | None = None) -> bytes | bytearray:
    """The payload of a tensor in the encoding `name`.

    weights: float32 of the tensor's shape; tensor: its name; widths: of each row, for vbit and vbit_ro.
    Raises as `encode` does: CannotEncode for what the encoding can't hold.
    """
    if weights.size == 0:
        return encode(name, weights, tensor=tensor)
    if name in ("q1s", "q1t"):
        return _with_outliers(name, weights, tensor)
    if name == "q8_2f":
        return _two_fields(weights, tensor)
    if name in ("vbit", "vbit_ro"):
        return _by_width(name, weights, tensor, widths)
    matrix = weights.reshape(-1, weights.shape[-1]) if weights.ndim else weights.reshape(1, 1)
    blocks = (encode(name, rows, tensor=f"{tensor} from row {at}") for at, rows in _blocks(matrix))
    return _joined(name, matrix, blocks)


def _blocks(matrix: F32) -> Iterator[tuple[int, F32]]:
    """(number of the first row, rows), so many that they end where a group of 32 does."""
    step = max(1, BLOCK // max(1, matrix.shape[1]) // GROUP) * GROUP
    for at in range(0, len(matrix), step):
        yield at, matrix[at : at + step]


def _joined(name: str, matrix: F32, blocks: Iterator[bytes]) -> bytearray:
    """The payloads of the blocks as one."""
    pieces: list[bytearray] = [bytearray() for _ in range(len(SEGMENTS[name](1, GROUP)) + 1)]
    for (_, rows), block in zip(_blocks(matrix), blocks, strict=True):
        at, view = 0, memoryview(block)
        for piece, size in zip(pieces, (*SEGMENTS[name](*rows.shape), len(block)), strict=True):
            piece += view[at : at + size]
            at += size
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    return whole


def _two_fields(weights: F32, tensor: str) -> bytearray:
    """q8_2f: the root mean square of each column, and what is left after it as q8_row."""
    power = np.zeros(weights.shape[1])
    for _, rows in _blocks(weights):
        power += np.einsum("oi,oi->i", rows, rows, dtype=np.float64, casting="safe")
    columns = np.maximum(stored(np.sqrt(power / len(weights)).astype(np.float32), tensor, "column"), TINY)
    blocks = (encode("q8_row", rows / columns, tensor=f"{tensor} from row {at}") for at, rows in _blocks(weights))
    return _joined("q8_row", weights, blocks) + raw(columns)


def _by_width(name: str, weights: F32, tensor: str, widths: NDArray[np.uint8] | None) -> bytearray:
    """vbit, and between its scales and its rows the table that vbit_ro has."""
    chosen: Any = family([loudest(weights)])[0] if widths is None else widths
    blocks = (
        encode("vbit", rows, tensor=f"{tensor} from row {at}", widths=chosen[at : at + len(rows)])
        for at, rows in _blocks(weights)
    )
    joined = _joined("vbit", weights, blocks)
    if name == "vbit_ro":
        rows, cols = weights.shape
        at = sum(SEGMENTS["vbit"](rows, cols))
        offsets = np.concatenate(([0], np.cumsum(chosen.astype(np.int64) * cols // 8)))
        if offsets[-1] >= 2**32:
            raise ValueError(f"{tensor}: {offsets[-1]} bytes of rows, more than the table can address")
        joined[at:at] = offsets.astype("<u4").tobytes()
    return joined


def _with_outliers(name: str, weights: F32, tensor: str) -> bytearray:
    """The tiles of q1s or q1t, and behind them what was kept apart."""
    for at, rows in _blocks(weights):
        checked(rows, f"{tensor} from row {at}")
    kept = _largest(weights, share(KEEP, weights.size))
    tiles = bytearray()
    for at, rows in _blocks(weights):
        apart, where = kept[at : at + len(rows)], f"{tensor} from row {at}"
        tiles += signed(rows, apart, True, where) if name == "q1s" else ternary(rows, apart, where)
    tiles += (sparse if name == "q1s" else by_rows)(kept, weights, tensor)
    return tiles


def _largest(weights: F32, count: int) -> NDArray[np.bool_]:
    """Where the `count` largest magnitudes are; of equal ones, the earlier: found in two passes."""
    flat, kept = weights.reshape(-1), np.zeros(weights.size, np.bool_)
    if not count:
        return kept.reshape(weights.shape)
    pool, least = np.empty(0, np.float32), np.float32(-1)
    for at in range(0, flat.size, BLOCK):
        sizes = np.abs(flat[at : at + BLOCK])
        pool = np.concatenate((pool, sizes[sizes > least]))
        if len(pool) >= count:
            pool = np.partition(pool, len(pool) - count)[len(pool) - count :]
            least = pool[0]
    ties = count - int((pool > least).sum())
    for at in range(0, flat.size, BLOCK):
        sizes = np.abs(flat[at : at + BLOCK])
        level = np.flatnonzero(sizes == least)[:ties]
        ties -= len(level)
        kept[at : at + BLOCK] = sizes > least
        kept[at + level] = True
    return kept.reshape(weights.shape)


def loudest(weights: F32) -> F32:
    """The largest magnitude of each row, [rows, 1]: all that the choice of widths looks at."""
    found = np.empty((len(weights), 1), np.float32)
    for at, rows in _blocks(weights):
        found[at : at + len(rows), 0] = np.abs(rows).max(axis=1, initial=0)
    return found


def family(members: list[F32]) -> list[NDArray[np.uint8]]:
    """The widths of the rows of tensors that share a budget (§3.2), from what `loudest` says of each."""
    return [row_widths(members[0])] if len(members) == 1 else family_widths(members)
