"""Kernels answer what the formulas answer, bit for bit."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmfspec.codecs import CODECS, Codec
from cmfspec.codecs.stored import Stored
from cmfspec.errors import Fault, Refusal
from cmfspec.format import hash64 as hashing
from cmfspec.format.hash64 import hash64_ranges
from cmfspec.kernels import threads as threading
from cmfspec.layout import DTYPE_IDS
from golden.recipes import entry
from golden.vectors import HASH64
from tests.test_hash64 import slowly


@st.composite
def ranges(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Bytes, and ranges of them: at odd places, overlapping, of no bytes, of pieces of words."""
    data = draw(st.binary(max_size=900))
    starts = st.integers(0, len(data))
    spans = st.tuples(starts, starts).map(lambda ends: (min(ends), abs(ends[1] - ends[0])))
    return data, draw(st.lists(spans, max_size=6))


@settings(deadline=None)  # the first example compiles
@given(ranges(), st.sampled_from([8, 64, 2**20]), st.integers(1, 3))
def test_many_ranges_are_hashed_in_one_call(found: tuple[bytes, list[tuple[int, int]]], cut: int, threads: int) -> None:
    """However they are cut into pieces."""
    data, spans = found
    starts, sizes = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_CUT", cut)
        got = hashing._compiled(data, starts, sizes, threads).tolist()
    assert got == [slowly(data[start : start + size]) for start, size in spans] == hash64_ranges(data, starts, sizes)


@pytest.mark.parametrize(("data", "want"), HASH64.items(), ids=lambda value: str(value)[:24])
def test_the_vectors_of_hash64_hold_for_the_kernel(data: bytes, want: int) -> None:
    assert hashing._compiled(data, np.array([0]), np.array([len(data)])).tolist() == [want]


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, -1), (0, 5), (5, 0), (3, 2), (2**62, 2**62)])
def test_a_range_outside_is_refused(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="within 4 bytes"):
        hash64_ranges(b"1234", np.array([start]), np.array([size]))


def test_large_data_takes_the_kernel_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the same door."""
    data = np.arange(300_001, dtype=np.uint32).tobytes()[:-3]
    asked: list[int] = []
    real = hashing._compiled

    def seen(*arguments: Any) -> Any:
        asked.append(len(arguments[0]))
        return real(*arguments)

    monkeypatch.setattr(hashing, "_compiled", seen)
    monkeypatch.setattr(hashing, "worth", lambda *_: False)
    slow = hashing.hash64(data)
    assert asked == []
    monkeypatch.setattr(hashing, "worth", lambda *_: True)
    assert hashing.hash64(data) == slow
    assert asked == [len(data)]


# --- codecs ----------------------------------------------------------------------------------------------------------

WEIGHTS = [codec for codec in CODECS.values() if codec.weight]
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01]  # halves
halves = st.one_of(st.sampled_from(EDGES), st.integers(0, 0xFFFF))


def same(got: Any, want: Any) -> bool:
    """To the bit; of a NaN, that it is one (which of two NaNs a processor's product keeps is its own affair)."""
    nan = np.isnan(want)
    return bool((np.isnan(got) == nan).all() and (got.view(np.uint32) == want.view(np.uint32))[~nan].all())


@st.composite
def tensors(draw: st.DrawFn, codec: Codec) -> tuple[bytes, tuple[int, ...]]:
    """Any valid payload: noise, and scales of every sort."""
    rows = draw(st.integers(0, 5))
    cols = codec.multiple * draw(st.integers(0, 9)) if codec.multiple > 1 else draw(st.integers(0, 300))
    shape: tuple[int, ...] = (rows, cols)
    if not codec.matrix:
        shape = draw(st.sampled_from([shape, (rows * cols,), (rows, 1, cols), (), (2, 64, 65), (4096,), (8229,)]))
    dice = np.random.default_rng(draw(st.integers(0, 2**32)))
    scales = np.array(draw(st.lists(halves, min_size=1, max_size=40)), "<u2")

    def noise(size: int, top: int = 256) -> bytes:
        return dice.integers(0, top, size, np.uint8).tobytes()

    def some(count: int) -> bytes:
        return dice.choice(scales, count).astype("<u2").tobytes()

    def tiles(size: int, top: int = 256) -> bytes:
        return b"".join(some(1) + noise(size, top) for _ in range(rows * cols // 32))

    n, groups = int(np.prod(shape)), rows * cols // 32
    widths = dice.choice([3, 4, 5, 6, 8], rows).astype(np.uint8)
    offsets = np.concatenate(([0], np.cumsum(widths.astype(np.int64) * cols // 8))).astype("<u4")
    count = int(dice.integers(0, 3 * rows + 1)) if n and rows else 0
    pointers = np.sort(dice.integers(0, count + 1, rows + 1)).astype("<u4")
    pointers[0], pointers[-1] = 0, count if rows else 0
    where = [(int(dice.integers(0, max(1, n))), int(dice.integers(0, max(1, cols)))) for _ in range(count)]
    made = {
        "f32": lambda: noise(4 * n),
        "f16": lambda: some(n),
        "bf16": lambda: noise(2 * n),
        "q8_row": lambda: noise(n) + some(rows),
        "q8_2f": lambda: noise(n) + some(rows + cols),
        "q4_block": lambda: noise(-(-n // 32) * 16) + some(-(-n // 32)),
        "q4_tiled": lambda: tiles(16),
        "q4tp": lambda: noise(n // 2) + some(2 * rows) + noise(rows * -(-cols // 32 * 5 // 8)),
        "q1": lambda: tiles(4),
        "q1s": lambda: (
            tiles(4) + count.to_bytes(4, "little") + b"".join(flat.to_bytes(4, "little") + some(1) for flat, _ in where)
        ),
        "q1t": lambda: (
            tiles(7) + pointers.tobytes() + b"".join(col.to_bytes(2, "little") + some(1) for _, col in where)
        ),
        "vbit": lambda: widths.tobytes() + some(groups) + noise(int(offsets[-1])),
        "vbit_ro": lambda: widths.tobytes() + some(groups) + offsets.tobytes() + noise(int(offsets[-1])),
    }
    return made[codec.name](), shape


@pytest.mark.parametrize("codec", WEIGHTS, ids=lambda codec: codec.name)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_fast_is_the_formula_to_the_bit(codec: Codec, data: st.DataObject) -> None:
    """In lines or in rows, in any pieces, over whatever stood there."""
    content, shape = data.draw(tensors(codec))
    payload = memoryview(content)
    assert codec.fast is not None
    with np.errstate(all="ignore"):
        want = codec.formula(payload, shape)
        for by_row in (False, True):
            for threads in (1, 2):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(threading, "PIECE", data.draw(st.sampled_from([1, 5000, 2**20])))
                    out = np.full(shape, np.nan, np.float32)
                    got = codec.fast(payload, shape, by_row).decode(out, threads)
                assert got is out
                assert same(got, want), f"{shape}"


@pytest.mark.parametrize("codec", WEIGHTS, ids=lambda codec: codec.name)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_product_is_that_of_the_decoded_weights(codec: Codec, data: st.DataObject) -> None:
    """Within 1e-5 of the sum of the finite magnitudes, the same bits on one thread and on two, in any pieces; NaN and
    infinities are those of float64."""
    content, shape = data.draw(tensors(codec).filter(lambda made: len(made[1]) == 2))
    payload = memoryview(content)
    dice = np.random.default_rng(data.draw(st.integers(0, 99)))
    xs = dice.standard_normal((3, shape[1])).astype(np.float32)
    if shape[1]:
        xs[2, dice.integers(0, shape[1])] = data.draw(st.sampled_from([0.0, np.inf, -np.inf, np.nan]))
    stored = codec.stored(payload, shape)
    with np.errstate(all="ignore"):
        products = xs[:, None].astype(np.float64) * codec.formula(payload, shape)
        want, size = products.sum(axis=2), np.where(np.isfinite(products), abs(products), 0).sum(axis=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "PIECE", data.draw(st.sampled_from([1, 500, 2**20])))  # so that two threads share it
        alone = [np.stack([stored.matvec(x, threads) for x in xs]) for threads in (1, 2)]
        together = [stored.matmat(xs, threads) for threads in (1, 2)]
    assert all(same(got, alone[0]) for got in (*alone, *together))
    got = codec.matmat(payload, shape, xs)
    with np.errstate(all="ignore"):
        close = np.abs(got - want) <= 1e-5 * size + 1e-37
    right = close | (got == want) | (np.isnan(got) & np.isnan(want))
    assert right[size < 1e37].all()


def test_a_wide_matrix_gives_the_same_bits_on_any_number_of_threads() -> None:
    """Pieces large enough that two threads do share the work."""
    dice = np.random.default_rng(1)
    shape = (600, 4128)
    tensor = entry("w", "q8_row", shape)
    stored = CODECS[tensor.dtype].stored(memoryview(tensor.payload), shape)
    x = dice.standard_normal(shape[1]).astype(np.float32)
    first = stored.matvec(x, 1)
    assert all(stored.matvec(x, threads).tobytes() == first.tobytes() for threads in (2, 3, 2))
    assert stored.decode(threads=1).tobytes() == stored.decode(threads=3).tobytes()
    np.testing.assert_allclose(first, stored.decode().astype(np.float64) @ x, rtol=1e-3)


def test_halves_are_widened_as_numpy_does_all_of_them() -> None:
    """NaN payloads included."""
    every = np.arange(65536, dtype="<u2")
    codec = CODECS[DTYPE_IDS["f16"]]
    assert codec.fast is not None
    got = codec.fast(memoryview(every.tobytes()), (65536,), False).decode()
    assert got.tobytes() == every.view("<f2").astype(np.float32).tobytes()


@pytest.mark.parametrize("codec", WEIGHTS, ids=lambda codec: codec.name)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_fast_refuses_what_the_formula_refuses(codec: Codec, data: st.DataObject) -> None:
    """A payload with a few bytes wrong or of another length: one refusal for both, or the same values."""
    content, shape = data.draw(tensors(codec))
    wrong = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3))):
        if wrong:
            wrong[data.draw(st.integers(0, len(wrong) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.sampled_from([len(wrong), len(wrong), max(0, len(wrong) - 1), len(wrong) // 2]))
    payload = memoryview(bytes(wrong[:size] + bytes(data.draw(st.sampled_from([0, 0, 1, 7])))))
    answers: list[Any] = []
    assert codec.fast is not None
    fast = codec.fast
    for way in (
        lambda: codec.formula(payload, shape),
        lambda: fast(payload, shape, False).decode(),
        lambda: fast(payload, shape, True).decode(),
    ):
        try:
            with np.errstate(all="ignore"):
                answers.append(way())
        except Refusal as refusal:
            answers.append(refusal.fault)
    assert all(isinstance(each, Fault) == isinstance(answers[0], Fault) for each in answers)
    assert all(each == answers[0] if isinstance(each, Fault) else same(each, answers[0]) for each in answers)


def test_a_vector_that_does_not_fit_is_refused() -> None:
    tensor = entry("w", "q8_row", (3, 40))
    stored = CODECS[tensor.dtype].stored(memoryview(tensor.payload), (3, 40))
    for x in (np.zeros(39, np.float32), np.zeros(40), np.zeros((1, 40), np.float32), np.float32(1)):
        with pytest.raises(ValueError, match=r"wanted float32 \[40\]"):
            stored.matvec(x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"wanted float32 \[m, 40\]"):
        stored.matmat(np.zeros(40, np.float32))
    flat = entry("w", "f16", (4,))
    with pytest.raises(ValueError, match="no matrix"):
        CODECS[flat.dtype].matvec(memoryview(flat.payload), (4,), np.zeros(4, np.float32))
    with pytest.raises(Refusal, match="an encoding of weights"):
        CODECS[DTYPE_IDS["u8"]].matvec(memoryview(b"1234"), (2, 2), np.zeros(2, np.float32))


@pytest.mark.parametrize("codec", WEIGHTS, ids=lambda codec: codec.name)
def test_a_large_tensor_is_decoded_by_the_kernel(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `decode`, once kernels are loaded; a small one never is."""
    import_module("cmfspec.kernels.runs")
    tensor = entry("w", codec.name, (64, 288))
    payload = memoryview(tensor.payload)
    want = codec.formula(payload, (64, 288))
    used: list[str] = []
    real = Stored.decode
    monkeypatch.setattr(Stored, "decode", lambda self, *rest: used.append("kernel") or real(self, *rest))
    assert same(codec.decode(payload, (64, 288)), want)
    assert used == ["kernel"]
    small = entry("w", codec.name, (4, 288))
    codec.decode(memoryview(small.payload), (4, 288))
    assert used == ["kernel"]
