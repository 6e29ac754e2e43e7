"""Wrong files are wrong in one way, right files in none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import cmfspec
from cmfspec.codecs import CODECS
from cmfspec.contract.rule import norms
from cmfspec.errors import REFUSALS, Fault, Refusal
from fuzz.grid import grid
from fuzz.mutations import MUTATIONS, Mutation
from golden.files import File
from golden.recipes import NAMES


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=lambda mutation: mutation.name)
def test_a_named_mutation_has_its_own_fault_and_no_other(mutation: Mutation) -> None:
    """Rejected for the wrong reason is the classic false green."""
    assert mutation.breaks in norms()
    assert list(cmfspec.faults(mutation.file.base.content())) == []
    found = faults_of(mutation)
    assert {fault.rule for fault in found} == {mutation.breaks}
    if mutation.kinds:
        assert {fault.kind for fault in found} <= set(mutation.kinds)
    assert found[0].found != found[0].wanted


def faults_of(mutation: Mutation) -> list[Fault]:
    """All faults, the first of which is the one that stops a reader: at open, or when the tensor is decoded."""
    content = mutation.file.content()
    found = list(cmfspec.faults(content))
    if mutation.index is not None:
        assert found == []
        cmfspec.open(mutation.file.base.content()).values(mutation.index)
    with pytest.raises(Refusal) as refused:
        cmfspec.open(content).values(mutation.index or 0)
    assert refused.value.kind in REFUSALS
    assert not found or refused.value.fault == found[0]
    return found or [refused.value.fault]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_valid_and_sound(name: str) -> None:
    """And says what its blueprint says."""
    file = File(name)
    opened = cmfspec.open(file.content())
    assert list(cmfspec.faults(file.content())) == []
    assert list(cmfspec.verify(opened)) == []
    assert [(t.name, t.dtype, t.shape) for t in opened] == [(e.name, e.dtype, e.shape) for e in file.tensors]
    assert [bytes(opened.raw(t.index)) for t in opened] == [e.payload for e in file.tensors]


def rearranged(values: np.ndarray) -> Iterator[np.ndarray]:  # type: ignore[type-arg]
    """What readers have made of a tensor: reversed, shifted, pairs or nibbles swapped, groups and rows out of place."""
    flat = values.reshape(-1)
    even = flat[: len(flat) // 2 * 2]
    yield flat[::-1]
    yield np.roll(flat, 1)
    yield np.concatenate((even.reshape(-1, 2)[:, ::-1].reshape(-1), flat[len(even) :]))
    yield np.roll(flat, 16)
    if len(flat) > 32:
        yield np.roll(flat, 32)
    if values.ndim == 2 and 1 not in values.shape:
        yield values.T.reshape(-1)
        yield np.roll(values, 1, axis=0).reshape(-1)


@pytest.mark.parametrize("name", NAMES)
def test_no_tensor_of_a_recipe_is_the_same_after_a_permutation(name: str) -> None:
    """A reader that mixes up elements, groups or rows must be seen to; tests on blocks of zeros passed a permuted layout for
    months (paiml/aprender#1656)."""
    for entry in File(name).tensors:
        codec = CODECS[entry.dtype]
        if not entry.payload:
            continue
        raw = memoryview(entry.payload)
        values = codec.decode(raw, entry.shape) if codec.weight else np.frombuffer(raw, np.uint8)
        assert np.isfinite(values).all(), entry.name
        for wrong in rearranged(values):
            assert not np.array_equal(wrong, values.reshape(-1)), entry.name


@pytest.mark.parametrize("name", ["full", "plain"])
def test_the_grid_is_accepted_or_refused(name: str) -> None:
    """faults is empty exactly when open accepts."""
    for file in grid(name):
        content = file.content()
        found = list(cmfspec.faults(content))
        if found:
            with pytest.raises(Refusal) as refused:
                cmfspec.open(content)
            assert refused.value.fault == found[0]
        else:
            cmfspec.open(content)
