"""From a file back to its blueprint: the inverse of building, as far as there is one."""

from __future__ import annotations

import pytest

import cmfspec
from cmfspec.format.blueprint import Blueprint, canonical, to_json
from cmfspec.format.build import render
from cmfspec.format.unbuild import blueprint_of
from cmfspec.layout import ENVELOPE_SIZE
from fuzz.grid import grid
from fuzz.mutations import MUTATIONS
from golden.files import File
from golden.recipes import NAMES, entry, recipe
from tests.shared import INTEROP, needs_interop


def rules(content: bytes) -> set[str]:
    """The rules that a file breaks."""
    return {fault.rule for fault in cmfspec.faults(content)}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_comes_back_from_its_bytes(name: str) -> None:
    """The same blueprint, hashes of sections aside, and the same bytes."""
    content = File(name).content()
    blueprint, edits = blueprint_of(content)
    assert render(blueprint, edits) == content
    assert edits == ()
    assert blueprint.tensors == recipe(name).tensors


def test_a_lie_comes_back_as_an_edit() -> None:
    """Nine of ten named mutations at least break the same rules again; what has no envelope can't be told."""
    kept, asked = 0, 0
    for mutation in MUTATIONS.values():
        content = mutation.file.content()
        if len(content) < ENVELOPE_SIZE:
            with pytest.raises(ValueError, match="no envelope"):
                blueprint_of(content)
            continue
        asked += 1
        kept += rules(render(*blueprint_of(content))) == rules(content)
    assert asked > 50
    assert kept >= 0.9 * asked


def test_damage_that_no_check_sees_stays() -> None:
    """Wrong hashes, none at all, another order, trailing bytes."""
    for path, value in (
        ("dir[1].hash", 5), ("envelope.header_hash", 7), ("hashes", False), ("tail", 77), ("envelope.flags", 3),
        ("order", ["data", "index", "dir", "header", "vocab", "masks"]), ("header.section_hashes.vocab", "0" * 16),
    ):  # fmt: skip
        content = File("full").edited(path, value).content()
        again = render(*blueprint_of(content))
        before, after = (list(map(str, cmfspec.verify(cmfspec.open(c)))) for c in (content, again))
        assert (len(again), before) == (len(content), after), path


@pytest.mark.parametrize("name", ["full", "plain"])
def test_whatever_a_file_says_is_described_or_refused(name: str) -> None:
    """No third way, and the description can be written down."""
    for file in grid(name):
        try:
            blueprint, edits = blueprint_of(file.content())
        except ValueError:
            continue
        render(blueprint, edits)
        canonical([to_json(blueprint), [list(edit) for edit in edits]])


def test_tensors_upon_each_other_do_not_fill_the_memory() -> None:
    """Each of six says that it has the whole blob."""
    large, *small = (entry(f"w.{number}", "f16", (32 if number else 16384,)) for number in range(6))
    size = len(large.payload)
    lies = [(f"dir[{i}].{field}", value) for i in range(1, 6) for field, value in (("off", 0), ("nbytes", size))]
    content = render(Blueprint({}, (large, *small)), lies)
    with pytest.raises(ValueError, match="tensors have"):
        blueprint_of(content)
    assert blueprint_of(render(Blueprint({}, (large, *small)), lies[:2]))[0].tensors[1].payload == large.payload


@needs_interop
def test_files_of_other_writers_come_back() -> None:
    """Sound ones stay sound, with the same tensors."""
    found = [path for path in sorted(INTEROP.rglob("*.cmf")) if "broken" not in path.parts]
    assert found
    for path in found:
        content = path.read_bytes()
        if rules(content):
            continue
        opened, again = cmfspec.open(content), cmfspec.open(render(*blueprint_of(content)))
        assert [(t.name, t.dtype, t.shape, t.hash) for t in opened] == [
            (t.name, t.dtype, t.shape, t.hash) for t in again
        ]
        assert opened.header == again.header
