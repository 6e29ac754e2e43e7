"""Wrong parts of a reader, each wrong in one way, for the twins.

Law: pure replacements for a row of the table of checks, or for another part of `cmfspec.contract.reference.Parts`. Each is
a mistake that some public reader has made, or one slip away from the right row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from cmfspec.contract.protocol import Opened, Reply
from cmfspec.contract.reference import Parts
from cmfspec.errors import Fault, Refusal
from cmfspec.format.checks import features_outside, run_checks
from cmfspec.format.container import Container, Tensor
from cmfspec.format.directory import Directory, parse_directory
from cmfspec.format.hash64 import fmix64, hash64
from cmfspec.format.header import strict_object
from cmfspec.format.verify import Problem, verify
from cmfspec.format.view import ADDRESSED, View
from cmfspec.layout import (
    DIR_HEAD_SIZE,
    ENVELOPE_SIZE,
    HASH_DIGITS,
    HASH_SALT,
    IMPLEMENTED_FEATURES,
    OPTIONAL,
    U64,
    VERSION,
)
from conformance.twins.twin import Faults, Find, no, without_problems
from golden.files import File

HOARD = 256 * 2**20  # bytes that the hoarder touches


# --- §1 ------------------------------------------------------------------------------------------------------------


def garbage_is_a_model(buffer: bytes | memoryview) -> View:
    return View(File("empty").content() if len(buffer) < ENVELOPE_SIZE else buffer)


def narrow_shape(opened: Container, index: int) -> Tensor:
    tensor: Tensor = opened[index]
    return replace(tensor, shape=tuple(dim & 0xFF for dim in tensor.shape))


def header_in_front(view: View) -> Faults:
    if view.span("header")[0] > view.span("data")[0]:
        yield no(view, "header_off")


def in_order(view: View) -> Faults:
    offsets = [view.span(section)[0] for section in OPTIONAL if view.present(section)]
    if offsets != sorted(offsets):
        yield no(view, "masks_off")


def by_length(opened: Container) -> Reply:
    present = [section for section in OPTIONAL if opened.view.span(section)[1]]
    return Reply("ok", Opened.of(len(opened), present))


def no_header_is_empty(buffer: bytes | memoryview) -> View:
    view = View(buffer)
    if view.span("header")[1] == 0:
        view.header = {}
    return view


def no_directory_is_empty(buffer: bytes | memoryview) -> View:
    view = View(buffer)
    if view.span("dir")[1] < DIR_HEAD_SIZE:
        view.envelope["dir_off"], view.envelope["dir_len"] = 0, DIR_HEAD_SIZE
        view.directory = Directory(0, parse_directory(memoryview(bytes(DIR_HEAD_SIZE)), 0, 0).records, b"", 0, 0)
        view.dir_head = lambda: (0, DIR_HEAD_SIZE)  # type: ignore[method-assign]
    return view


def bounds_of(skipped: tuple[str, ...] = (), slack: int = 0, wrap: bool = False) -> Find:
    def find(view: View) -> Faults:
        for section in ADDRESSED:
            off, length = view.span(section)
            end = (off + length) & U64 if wrap else off + length
            if section not in skipped and length and view.present(section) and end > view.size + slack:
                yield no(view, f"{section}_off")

    return find


def sector_aligned(view: View) -> Faults:
    if view.span("data")[0] % 512:
        yield no(view, "data_off")


def nothing_inside_the_blob(view: View) -> Faults:
    start, length = view.span("data")
    for section in ADDRESSED:
        off = view.span(section)[0]
        if section != "data" and view.present(section) and start < off < start + length:
            yield no(view, f"{section}_off")


def nothing_behind(view: View) -> Faults:
    if view.size > max(sum(view.span(section)) for section in ADDRESSED):
        yield no(view, "file")


def divides(view: View) -> Faults:
    for index in range(len(view.directory.records)):
        for dim in view.directory.shape(index):
            if U64 // dim == 0:
                yield no(view, "shape")


def hoards(view: View) -> Faults:
    room = min(8 * view.masks_head()[0], HOARD)
    if len(b"\x01" * room) > U64:
        yield no(view, "masks")


def first_directory(buffer: bytes | memoryview) -> View:
    view = View(buffer)
    head = bytes(view.buffer[ENVELOPE_SIZE : view.span("data")[0]]).decode("latin-1")
    try:
        _, end = json.JSONDecoder().raw_decode(head)
    except ValueError:
        return view
    if view.span("header")[0] != ENVELOPE_SIZE:
        view.envelope |= {"dir_off": ENVELOPE_SIZE + end, "dir_len": view.span("data")[0] - ENVELOPE_SIZE - end}
    return view


# --- §1.1, §1.2 ----------------------------------------------------------------------------------------------------


def features_as_u16(view: View) -> Faults:
    view.envelope["required_features"] &= 0xFFFF
    return features_outside(IMPLEMENTED_FEATURES)(view)


def only_known_fields(view: View) -> Faults:
    if any(key.startswith("zzz") for key in view.header):
        yield no(view, "header")


def with_warnings(opened: Container) -> Reply:
    names = [f"{fault}" for fault in run_checks(opened.view)]
    return Reply("ok", Opened.of(len(opened), opened.sections), warnings=tuple(names))


def features_are_versions(view: View) -> Faults:
    for fault in features_outside(IMPLEMENTED_FEATURES)(view):
        yield replace(fault, kind="UnsupportedVersion")


def version(*accepted: int) -> Find:
    def find(view: View) -> Faults:
        if view.envelope["version"] not in accepted:
            yield Fault("UnsupportedVersion", "", "version", 4, str(view.envelope["version"]), str(accepted))

    return find


def older_versions_only(view: View) -> Faults:
    if view.envelope["version"] < VERSION:
        yield Fault("UnsupportedVersion", "", "version", 4, "an old one", str(VERSION))


def end(directory: Directory, index: int) -> int:
    return int(directory.records[index]["off"]) + int(directory.records[index]["nbytes"])


def signed(value: int) -> int:
    return value - 256 if value > 127 else value


def surrogates_fail(directory: Directory, index: int) -> bool:
    try:
        directory.name_bytes(index).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return True
    return False


def hashes_at_open(view: View) -> Faults:
    for problem in verify(Container(view)):
        if problem.where == "tensor":
            yield no(view, "hash")


def replaces_what_is_no_utf8(view: View) -> Faults:
    raw = bytes(view.part("header"))
    try:
        view.header = strict_object(raw.decode("utf-8", "replace").encode(), "header", 0)
    except Refusal as refused:
        yield refused.fault


# --- §8 ------------------------------------------------------------------------------------------------------------


def short_positions(data: bytes | memoryview) -> int:
    """The position of a word is kept in one byte."""
    acc, raw = 0, bytes(data)
    for at in range(0, len(raw), 8):
        acc ^= fmix64(int.from_bytes(raw[at : at + 8], "little")) ^ ((at // 8 & 0xFF) * HASH_SALT & U64)
    return fmix64(acc ^ len(raw))


def salted_nothing(data: bytes | memoryview) -> int:
    return hash64(data) if len(data) else fmix64(HASH_SALT)


def verify_by(hashed: Callable[[bytes | memoryview], int]) -> Callable[[Container], Iterator[Problem]]:
    def find(opened: Container) -> Iterator[Problem]:
        for problem in parts_only(opened):
            part = opened.view.part(problem.where) if problem.where != "section_hashes" else None
            if part is None or hashed(part) == hash64(part):
                yield problem
        for part_name in ("header", "dir"):
            raw, wanted = opened.view.part(part_name), opened.view.envelope[f"{part_name}_hash"]
            if wanted and hashed(raw) not in (wanted, hash64(raw)):
                yield Problem(part_name, None, "hash", 0, "", "")
        for tensor in opened:
            if hashed(opened.raw(tensor.index)) != tensor.hash:
                yield Problem("tensor", tensor.index, "hash", 0, "", "")

    return find


def parts_only(opened: Container) -> Iterator[Problem]:
    return (problem for problem in verify(opened) if problem.where != "tensor")


def all_ones_is_absent(opened: Container, problem: Problem) -> bool:
    return problem.where in ("header", "dir") and opened.view.envelope[f"{problem.where}_hash"] == U64


def zero_is_a_hash(opened: Container) -> Iterator[Problem]:
    yield from verify(opened)
    for part in ("header", "dir"):
        if opened.view.envelope[f"{part}_hash"] == 0:
            yield Problem(part, None, "hash", 0, "", "")


def section_hashes(opened: Container) -> dict[str, object]:
    hashes = opened.header.get("section_hashes")
    return hashes if isinstance(hashes, dict) else {}


def lenient(read: Callable[[object], int]) -> Parts:
    """verify that takes a malformed section hash for what `read` makes of it."""

    def forgiven(opened: Container, problem: Problem) -> bool:
        if problem.where != "section_hashes":
            return False
        for section, text in section_hashes(opened).items():
            try:
                if section in OPTIONAL and read(text) != hash64(opened.view.part(section)):
                    return False
            except (ValueError, TypeError):
                return False
        return True

    return without_problems(forgiven)


def loose_hex(text: object) -> int:
    if not isinstance(text, str):
        raise TypeError
    return int(text, 16)


def number_only(text: object) -> int:
    """A right number, or the hex that the text prescribes."""
    if isinstance(text, str) and len(text) == HASH_DIGITS:
        return int(text, 16)
    if not isinstance(text, int):
        raise TypeError
    return text


def vocab_up_to_the_index(opened: Container) -> Iterator[Problem]:
    yield from (problem for problem in verify(opened) if problem.where != "vocab")
    start, end = opened.view.span("vocab")[0], opened.view.span("index")[0]
    wanted = section_hashes(opened).get("vocab")
    if not (opened.view.present("vocab") and opened.view.present("index") and start < end and isinstance(wanted, str)):
        return
    if f"{hash64(opened.view.buffer[start:end]):016x}" != wanted:
        yield Problem("vocab", None, "hash", 0, "", "")
