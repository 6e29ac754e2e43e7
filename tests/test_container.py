"""Our reader against every byte: a value or a named refusal, and no allocation beyond the file."""

from __future__ import annotations

import contextlib
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cmfspec
from cmfspec.codecs import CODECS
from cmfspec.errors import Other, Parse, Refusal
from cmfspec.format.blueprint import Blueprint, Entry
from cmfspec.format.build import render
from cmfspec.format.directory import RECORD_CHECKS, parse_directory
from cmfspec.format.header import strict_object
from cmfspec.layout import DIR_HEAD, ENVELOPE, INDEX_ENTRY, INDEX_HEAD, MASKS_HEAD, RECORD, RECORD_DTYPE
from golden.files import File

FULL = File("full").content()
VALUES = (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
CONSTANT = 4 * 2**20  # bytes that opening may allocate whatever the file; numpy and json have their own


def everything(content: bytes) -> None:
    """Ask a file everything; only refusals may come of it."""
    try:
        opened = cmfspec.open(content)
        list(cmfspec.verify(opened))
        for tensor in opened:
            opened.raw(tensor.index)
    except Refusal:
        return
    for tensor in opened:
        try:
            values = opened.values(tensor.index)
        except Refusal:
            continue
        assert values.shape == tensor.shape


def test_the_file_holds_every_section_within_eight_kibibytes() -> None:
    """What the next tests are exhaustive over."""
    assert len(FULL) <= 8192
    assert cmfspec.open(FULL).sections == ["masks", "vocab", "index"]


def test_cut_at_every_byte_it_is_refused_or_a_file() -> None:
    """Every prefix; and none that lacks a byte of a section is accepted."""
    for size in range(len(FULL)):
        everything(FULL[:size])
        with pytest.raises(Refusal):
            cmfspec.open(FULL[:size])


def fields() -> list[tuple[int, int]]:
    """(offset, width) of every field of envelope, directory and section heads."""
    opened = cmfspec.open(FULL)
    span = {name: opened.view.span(name)[0] for name in ("dir", "masks", "index")}
    found = [(f.offset, f.width) for f in ENVELOPE]
    found += [(span["dir"] + f.offset, f.width) for f in DIR_HEAD]
    found += [(opened.view.directory.at(i, f.name), f.width) for i in range(len(opened)) for f in RECORD]
    found += [(span["masks"] + f.offset, f.width) for f in MASKS_HEAD]
    found += [
        (span["index"] + f.offset, f.width)
        for f in (*INDEX_HEAD, *(type(f)(f.name, f.offset + 8, f.width) for f in INDEX_ENTRY))
    ]
    return found


def test_every_field_at_every_nasty_value_is_refused_or_a_file() -> None:
    """And costs no more memory than the file and a constant."""
    everything(FULL)
    tracemalloc.start()
    try:
        for at, width in fields():
            for value in VALUES:
                content = FULL[:at] + (value % 2 ** (8 * width)).to_bytes(width, "little") + FULL[at + width :]
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                everything(content)
                assert tracemalloc.get_traced_memory()[1] - before < len(FULL) + CONSTANT, (at, value)
    finally:
        tracemalloc.stop()


def test_every_flipped_byte_is_refused_or_a_file() -> None:
    """All bytes of the file but the zeros between header and blob, three ways."""
    for at in (*range(1200), *range(4096, len(FULL))):
        for mask in (0x01, 0x80, 0xFF):
            content = bytearray(FULL)
            content[at] ^= mask
            everything(bytes(content))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=600))
def test_arbitrary_bytes_behind_a_magic_are_refused_or_a_file(noise: bytes) -> None:
    """No other exception, whatever comes."""
    everything(noise)
    everything(FULL[:16] + noise)
    everything(FULL[:0x30] + noise[:80].ljust(80, b"\0") + FULL[128:])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=60).map(str.encode))
def test_a_header_of_arbitrary_bytes_is_refused_or_an_object(raw: bytes) -> None:
    """Whatever JSON may do to its decoder."""
    with contextlib.suppress(Parse):
        assert isinstance(strict_object(raw, "header", 128), dict)


HEADERS = {
    "nested 100,000 deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "an integer of a million digits": b'{"a":' + b"9" * 1_000_000 + b"}",
    "a lone surrogate": b'{"a":"\\ud800"}',
    "a lone surrogate as key": b'{"\\udc00":1}',
    "a key twice": b'{"arch":{"hidden_size":32},"arch":{"hidden_size":64}}',
    "a key twice by escape": b'{"a":1,"\\u0061":2}',
    "an unclosed string": b'{"a":"' + b"[" * 1000,
    "a comment": b'{"a":1} // b',
    "a trailing comma": b'{"a":1,}',
    "NaN": b'{"a":NaN}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NULs behind": b"{}\0\0",
}


@pytest.mark.parametrize("raw", HEADERS.values(), ids=HEADERS.keys())
def test_a_header_that_is_not_strict_json_is_a_parse_refusal(raw: bytes) -> None:
    """Named, with its place."""
    with pytest.raises(Parse) as refused:
        strict_object(raw, "header", 128)
    assert refused.value.fault.rule.startswith(("HDR-", "VAL-"))
    assert (refused.value.fault.offset or 0) >= 128


def test_surrogate_pairs_and_large_numbers_are_fine() -> None:
    """Strict is not narrow."""
    value = strict_object(b' {"a":"\\ud83d\\ude00","n":123456789012345678901234567890,"f":1e-300} ', "header", 0)
    assert value == {"a": "\U0001f600", "n": 123456789012345678901234567890, "f": 1e-300}


def record_arrays() -> st.SearchStrategy[np.ndarray]:  # type: ignore[type-arg]
    """Records with plausible and with wild fields."""
    small = st.sampled_from([0, 1, 2, 3, 31, 32, 33, 64, 2**16, 2**31, 2**32 - 1])
    wide = st.sampled_from([0, 1, 64, 66, 128, 192, 1000, 2**32, 2**63, 2**64 - 64, 2**64 - 1])
    one = st.tuples(
        small,
        st.sampled_from([0, 1, 5, 65535]),
        st.integers(0, 18),
        st.integers(0, 8),
        st.tuples(*[small] * 6),
        wide,
        wide,
    )

    def build(rows: list[tuple[int, int, int, int, tuple[int, ...], int, int]]) -> np.ndarray:  # type: ignore[type-arg]
        return np.array([(*row, 0) for row in rows], RECORD_DTYPE)

    return st.lists(one, min_size=1, max_size=6).map(build)


@settings(max_examples=400, deadline=None)
@given(record_arrays(), st.binary(max_size=12), st.sampled_from([0, 64, 200, 2**40]))
def test_the_vectorised_checks_miss_nothing_that_the_exact_ones_find(records, pool: bytes, data_len: int) -> None:  # type: ignore[no-untyped-def]
    """An array may suspect too much, never too little."""
    count = len(records)
    raw = count.to_bytes(8, "little") + (16 + 56 * count).to_bytes(8, "little") + records.tobytes() + pool
    directory = parse_directory(memoryview(raw), 0, data_len)
    for check in RECORD_CHECKS:
        if check.name == "record.name_utf8" and any(RECORD_CHECKS[0].find(directory)):
            continue
        exact = [i for i in range(count) if check.fault(directory, i)]
        assert set(exact) <= set(np.flatnonzero(check.suspects(directory)).tolist()), check.name


def test_names_that_share_a_pool_cannot_cost_more_than_the_file() -> None:
    """A million names of 64 KiB over the same bytes are a limit of this reader, said by name."""
    entries = tuple(Entry(f"{i}", 1, (0,), b"") for i in range(2000))
    edits = [
        (f"dir[{i}].{field}", value) for i in range(2000) for field, value in (("name_off", i % 7), ("name_len", 60000))
    ]
    entries += (Entry("x" * 65000, 1, (0,), b""),)
    with pytest.raises(Other) as refused:
        cmfspec.open(render(Blueprint({}, entries), edits))
    assert "names" in refused.value.fault.field


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device"])
def test_a_path_that_is_no_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    """A FIFO would hang an ordinary open for ever."""
    path = tmp_path / "x.cmf"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(Other):
        cmfspec.open(path)
    with pytest.raises(Other):
        cmfspec.open("a\0b")


def test_a_sparse_file_of_eight_gibibytes_opens_without_being_read(tmp_path: Path) -> None:
    """Large files are mapped; the 32-bit offsets of others end at 2 or 4 GiB (ggml-org/llama.cpp#19856)."""
    far = File("full").with_hole(8 * 2**30)
    at, size = far.hole
    path = tmp_path / "far.cmf"
    with path.open("wb") as file:
        file.write(far.content()[:at])
        file.seek(size, os.SEEK_CUR)
        file.write(far.content()[at:])
    opened = cmfspec.open(path)
    assert [bytes(opened.raw(t.index)) for t in opened] == [entry.payload for entry in far.file.tensors]
    assert list(cmfspec.verify(opened)) == []


def test_reserved_and_raw_dtypes_have_no_values() -> None:
    """mix8_4 and q4_col: never a value; u8: bytes, not a weight."""
    for dtype in (5, 6, 7):
        opened = cmfspec.open(render(Blueprint({}, (Entry("w", dtype, (4,), b"abcd"),))))
        assert bytes(opened.raw(0)) == b"abcd"
        with pytest.raises(Parse):
            opened.values(0)
    assert set(CODECS) == set(range(16)) - {5, 7}


def test_a_ternary_zero_is_zero_whatever_the_scale() -> None:
    """q1t: code 0 is 0, not 0 times an infinite scale."""
    payload = b"\x00\x7c" + bytes([1, 0, 0, 0, 0, 0, 0]) + bytes(8)  # scale +Inf, first digit 1
    values = CODECS[14].decode(memoryview(payload), (1, 32))
    assert values[0, 0] == np.inf
    assert not values[0, 1:].any()


def test_the_container_is_a_sequence_that_knows_its_names() -> None:
    """Names are exact: 300 characters that differ in the last, a NUL, 65,535 bytes (ml-explore/mlx#943)."""
    names = ["a" * 300 + "b", "a" * 300 + "c", "x\0y", "n" * 65535, ""]
    opened = cmfspec.open(render(Blueprint({}, tuple(Entry(name, 1, (1,), b"\0\0") for name in names))))
    assert [tensor.name for tensor in opened] == names
    assert [opened.index_of(name) for name in names] == [0, 1, 2, 3, 4]
    assert opened[-1].name == ""
    assert [t.name for t in opened[1:3]] == names[1:3]
    with pytest.raises(KeyError):
        opened.index_of("x")
    with pytest.raises(IndexError):
        _ = opened[5]


def many(names: list[str]) -> bytes:
    """A file of tensors with these names."""
    return render(Blueprint({}, tuple(Entry(name, 1, (1,), b"\0\0") for name in names)))


@pytest.mark.parametrize("long", [0, 5, 200], ids=["short", "words", "longer than what is hashed"])
@pytest.mark.parametrize("letter", ["t", "é"])
def test_among_many_names_the_one_pair_alike_is_found(long: int, letter: str) -> None:
    """A thousand names, unlike only in their last characters, one of them twice."""
    names = [letter * long + f"{number:03}" for number in range(1000)]
    assert list(cmfspec.open(many(names)).names.items()) == [(name, at) for at, name in enumerate(names)]
    with pytest.raises(Parse) as refused:
        cmfspec.open(many([*names, names[617]]))
    assert refused.value.fault.rule == "DIR-009"
    assert refused.value.fault.field == "dir[1000].name_off"
    assert "dir[617]" in refused.value.fault.found


def test_names_that_are_a_word_and_the_start_of_one_differ() -> None:
    """Every length from none to 40 of one letter, and each of them doubled: a hash that forgets the length would err."""
    names = [letter * size for size in range(1, 41) for letter in "abcdefgh"] + [""]
    assert list(cmfspec.open(many(names)).names) == names


@pytest.mark.parametrize("odd", ["x\0y", "é", "plain"])
def test_the_names_are_the_same_however_they_lie_in_the_pool(odd: str) -> None:
    """Back to back in order, out of order, and sharing bytes."""
    names = [f"name.{number}" for number in range(40)] + [odd]
    content = many(names)
    opened = cmfspec.open(content)
    assert [tensor.name for tensor in opened] == list(opened.names) == names
    directory = opened.view.directory
    turned = replace(directory, records=directory.records[::-1])
    assert turned.texts() == names[::-1]
    assert replace(directory, records=directory.records[3:]).texts() == names[3:]


def test_a_skill_whose_tensors_are_absent_is_still_in_a_valid_file() -> None:
    """The registry promises, the directory holds (huggingface/huggingface_hub#4725): opening is not the place to compare."""
    file = File("plain").edited("header.skills", [{"id": "sql", "layers": [3]}])
    opened = cmfspec.open(file.content())
    assert not [tensor.name for tensor in opened if tensor.name.startswith("skill.sql.")]
    assert list(cmfspec.verify(opened)) == []
