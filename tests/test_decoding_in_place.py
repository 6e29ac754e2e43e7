"""A codec decodes where it is told to: the same bits, no second copy, and nowhere that doesn't fit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import cmfspec
from cmfspec.codecs import CODECS, Codec
from cmfspec.errors import Refusal
from golden.files import File
from golden.recipes import entry

WEIGHTS = [codec for codec in CODECS.values() if codec.weight]
SHAPES = ((5, 64), (1, 32), (0, 64), (3, 0))
FREE = ((), (33,), (7, 9), (2, 3, 4), (0,))  # of those that aren't matrices


def cases() -> list[Any]:
    """(codec, shape)."""
    return [
        pytest.param(codec, shape, id=f"{codec.name}-{shape}")
        for codec in WEIGHTS
        for shape in (*SHAPES, *(() if codec.matrix else FREE))
    ]


def payload(codec: Codec, shape: tuple[int, ...]) -> memoryview:
    """A valid one."""
    if codec.name == "q1t" and shape[1] == 0:
        return memoryview(bytes(4 * (shape[0] + 1)))  # row pointers and nothing else
    return memoryview(entry("w", codec.name, shape).payload)


@pytest.mark.parametrize(("codec", "shape"), cases())
def test_what_is_decoded_into_an_array_is_what_is_decoded_without(codec: Codec, shape: tuple[int, ...]) -> None:
    """To the bit, over whatever stood there, and it is that array that comes back."""
    raw = payload(codec, shape)
    want = codec.decode(raw, shape)
    out = np.full(shape, np.nan, np.float32)
    assert codec.decode(raw, shape, out) is out
    assert (want.dtype, want.shape) == (np.float32, shape)
    assert out.tobytes() == want.tobytes()


def held(array: Any) -> Any:
    """The same, read-only."""
    array.flags.writeable = False
    return array


UNFIT = {
    "float64": lambda: np.zeros((4, 64)),
    "big-endian": lambda: np.zeros((4, 64), ">f4"),
    "integers": lambda: np.zeros((4, 64), np.int32),
    "one row more": lambda: np.zeros((5, 64), np.float32),
    "flat": lambda: np.zeros(256, np.float32),
    "transposed": lambda: np.zeros((64, 4), np.float32).T,
    "strided": lambda: np.zeros((4, 128), np.float32)[:, ::2],
    "read-only": lambda: held(np.zeros((4, 64), np.float32)),
    "a list": lambda: [0.0] * 256,
    "a buffer": lambda: bytearray(1024),
}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("codec", WEIGHTS, ids=lambda codec: codec.name)
def test_an_array_that_does_not_fit_is_refused_and_left_alone(codec: Codec, unfit: str) -> None:
    """Nothing is cast, broadcast or copied in silence."""
    out: Any = UNFIT[unfit]()
    before = bytes(out) if isinstance(out, bytearray) else np.asarray(out).tobytes()
    with pytest.raises(ValueError, match=r"out: .*wanted a writable C-contiguous float32 array of \[4, 64\]"):
        codec.decode(payload(codec, (4, 64)), (4, 64), out)
    assert (bytes(out) if isinstance(out, bytearray) else np.asarray(out).tobytes()) == before


@pytest.mark.parametrize("codec", WEIGHTS, ids=lambda codec: codec.name)
def test_decoding_into_an_array_makes_no_second_one(codec: Codec) -> None:
    """What is allocated meanwhile stays well below the size of the values."""
    shape = (256, 4096)
    raw = np.zeros(0, np.uint8)
    if codec.nbytes is not None:
        raw = np.full(codec.nbytes(shape[0] * shape[1], *shape), 60, np.uint8)  # a finite scale wherever one is
    overlaid = {"vbit": _vbit(shape, 0), "vbit_ro": _vbit(shape, 1), "q1s": _tiles(shape, 6, 4), "q1t": _tiles(shape, 9, 4 * 257)}  # fmt: skip
    content = memoryview(overlaid.get(codec.name, raw.tobytes()))
    out = np.empty(shape, np.float32)
    tracemalloc.start()
    try:
        codec.decode(content, shape, out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.75 * out.nbytes


def _vbit(shape: tuple[int, int], offsets: int) -> bytes:
    rows, cols = shape
    table = (np.arange(rows + 1) * (cols // 2)).astype("<u4").tobytes() if offsets else b""
    return bytes([4]) * rows + bytes(2 * rows * cols // 32) + table + bytes(rows * cols // 2)


def _tiles(shape: tuple[int, int], tile: int, overlay: int) -> bytes:
    return bytes(shape[0] * shape[1] // 32 * tile + overlay)


def test_a_container_decodes_into_an_array_too() -> None:
    """`Container.values(index, out)`."""
    opened = cmfspec.open(File("encodings").content())
    for tensor in opened:
        if tensor.dtype_name == "u8":
            continue
        out = np.empty(tensor.shape, np.float32)
        assert opened.values(tensor.index, out) is out
        assert out.tobytes() == opened.values(tensor.index).tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q4_block"])
def test_a_shape_that_no_array_can_have_is_refused(dtype: str) -> None:
    """No elements, but the other dimensions multiply past an address: the file is valid, the reader's own limit is named."""
    codec = next(codec for codec in WEIGHTS if codec.name == dtype)
    with pytest.raises(Refusal, match="dimensions that an array can have"):
        codec.decode(memoryview(b""), (0, 2**32 - 1, 2**32 - 1))
