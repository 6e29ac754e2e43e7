"""Blueprints: what is built verifies clean, and comes back from its JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cmfspec
from cmfspec.format.blueprint import Blueprint, Entry, canonical, from_json, index_section, masks_section, to_json
from cmfspec.format.build import render
from cmfspec.layout import SECTIONS
from fuzz.minimize import minimize, smaller
from golden.files import File
from golden.recipes import NAMES, recipe

TENSORS = st.builds(
    lambda name, dims, extra: Entry(
        name, 1, (*dims, extra), bytes(2 * extra) if not dims else bytes(2 * dims[0] * extra)
    ),
    st.text(max_size=20).filter(lambda text: text.isprintable()),
    st.lists(st.integers(0, 5), max_size=1).map(tuple),
    st.integers(0, 9),
)
BLUEPRINTS = st.builds(
    Blueprint,
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8), max_size=4),
    st.lists(TENSORS, max_size=5, unique_by=lambda entry: entry.name).map(tuple),
    st.just(b"") | st.just(masks_section({"masks": []}, [])),
    st.binary(max_size=40),
    st.just(b"") | st.just(index_section([(0, 0, [1], [2, 3])])),
)


@settings(max_examples=150, deadline=None)
@given(BLUEPRINTS, st.permutations(SECTIONS), st.integers(0, 70))
def test_what_is_built_opens_verifies_and_holds_what_was_asked(
    blueprint: Blueprint, order: list[str], gap: int
) -> None:
    """In any order of sections, with any gap."""
    opened = cmfspec.open(render(blueprint, [("order", order), ("gap.header", gap), ("gap.data", 70 - gap)]))
    assert list(cmfspec.verify(opened)) == []
    assert [(t.name, t.shape, bytes(opened.raw(t.index))) for t in opened] == [
        (e.name, e.shape, e.payload) for e in blueprint.tensors
    ]
    assert bytes(opened.view.part("vocab")) == blueprint.vocab


@settings(max_examples=100, deadline=None)
@given(BLUEPRINTS)
def test_a_blueprint_comes_back_from_its_json(blueprint: Blueprint) -> None:
    """Canonical JSON renders to the same bytes."""
    text = canonical(to_json(blueprint))
    assert canonical(to_json(from_json(json.loads(text)))) == text
    assert render(from_json(json.loads(text))) == render(blueprint)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_spelt_out_is_the_same_file(name: str) -> None:
    """So that it can be made smaller."""
    assert File(name).inlined().content() == File(name).content()


@pytest.mark.parametrize(
    "edit",
    [("envelope.nonsense", 1), ("dir[9].off", 0), ("masks@0", 1), ("zzz", 1), ("dir[0].nonsense", 1)],
    ids=lambda edit: edit[0],
)
def test_an_edit_that_finds_nothing_to_edit_is_an_error(edit: tuple[str, int]) -> None:
    """A lie that was never told would pass as one that was believed."""
    with pytest.raises((KeyError, IndexError)):
        render(recipe("plain"), [edit])


def test_an_edit_changes_what_it_says_and_nothing_else() -> None:
    """One field, and the hash over it."""
    right, wrong = File("full").content(), File("full").edited("dir[1].ndim", 7).content()
    differing = [at for at in range(len(right)) if right[at] != wrong[at]]
    start = cmfspec.open(right).view.directory.at(1, "ndim")
    assert [at for at in differing if not 0x78 <= at < 0x80] == [start]


def test_growth_leaves_every_old_byte_where_it_was() -> None:
    """§9: only the envelope changes in place."""
    grown = next(file for file in _grown())
    old, new = grown.base.content(), grown.content()
    assert new[128 : len(old)] == old[128:]
    assert len(cmfspec.open(new)) == len(cmfspec.open(old)) + 1


def _grown() -> list[File]:
    from conformance.s01_files import GROWN

    return list(GROWN)


def test_the_minimiser_finds_the_one_thing_that_matters() -> None:
    """Everything that is not the fault goes; the fault stays."""
    file = File("full").edited("tail", 5000).edited("gap.dir", 100).edited("dir[3].ndim", 9)

    def still(candidate: File) -> bool:
        return {fault.rule for fault in cmfspec.faults(candidate.content())} == {"VAL-009"}

    small = minimize(file, still)
    assert still(small)
    assert [edit for edit in small.edits if edit[0] != "dir[0].ndim"] == []
    assert len(small.tensors) == 1
    assert small.blueprint.vocab == small.blueprint.masks == small.blueprint.index == b""
    assert len(small.content()) < 4300
    assert list(smaller(small))


def test_the_minimiser_keeps_within_its_trials() -> None:
    """Each trial may be a hang."""
    asked: list[File] = []

    def still(candidate: File) -> bool:
        asked.append(candidate)
        return False

    file = File("full").edited("tail", 5000)
    assert minimize(file, still, trials=7) == file.inlined()
    assert len(asked) == 7
