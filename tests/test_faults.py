"""Every single fault of the forward shows on the golden logits, by as much as the table in the tree says."""

from __future__ import annotations

import numpy as np
import pytest

from cmfspec.contract.compare import largest_difference
from conformance.faults import wrong
from conformance.faults.effects import clear, differing, effects, model, stored, tolerance
from conformance.faults.families import FAULTS
from conformance.faults.fault import Fault, applied
from golden.models import answers
from golden.oracle import CHOSEN

LEAST = 84
RIGHT = {
    "attend": {"attention.attend": wrong.attend, "mla.attend": wrong.attend},
    "recurrence": {"gdn.run": wrong.recurrence},
    "block": {"model.run_block": wrong.block, "mtp.run_block": wrong.block},
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.name))
def test_a_fault_dies_by_a_golden_model(fault: Fault) -> None:
    """By three times the tolerance at least; and the stored effects are those of today."""
    found = effects(fault)
    assert clear(found)
    row = {"says": fault.says, "effects": found}
    assert differing({**stored(), fault.name: row}) == []


def test_the_table_has_every_fault_once() -> None:
    """In the order of the forward, and enough of them."""
    assert list(stored()) == [fault.name for fault in FAULTS]
    assert len(FAULTS) >= LEAST
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_every_family_shows_some_faults() -> None:
    """One that shows none would be no golden model."""
    shown = {family for row in stored().values() for family in clear(row["effects"])}
    assert shown == set(CHOSEN)


@pytest.mark.parametrize("family", CHOSEN)
def test_without_a_fault_the_goldens_are_met(family: str) -> None:
    """The right engine, which no fault has changed for good, and each wrong function without its options."""
    ids, want = answers(family)["token_ids"][0], answers(family)["logits"][0]
    assert largest_difference(model(family).logits(ids), want) <= tolerance(family)
    for name, functions in RIGHT.items():
        wraps = {path: (lambda _, function=function: function) for path, function in functions.items()}
        with applied(Fault(name, "nothing", wraps=wraps), model(family)) as same:
            assert largest_difference(same.logits(ids), want) <= tolerance(family), name
    assert np.isfinite(want).all()
