"""`python -m conformance.faults.effects [--check]`: how far each fault moves the logits of each golden model.

Law: golden/effects.json has, for each fault, the largest difference to Hugging Face's logits on each family on which it goes
past the family's tolerance; a number is kept to three digits, and holds if it is met within a tenth. What a model refuses
under a fault counts as no answer, and is told as `refused`.
"""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cmfspec.contract.compare import LOGITS, LOGITS_GDN
from cmfspec.engine import Model, load, mtp
from cmfspec.errors import Refusal
from cmfspec.format import container
from cmfspec.format.build import render
from conformance.faults.families import FAULTS
from conformance.faults.fault import Fault, applied
from golden.models import answers, of_the_oracle
from golden.oracle import CHOSEN

PATH = Path(__file__).resolve().parent.parent.parent / "golden" / "effects.json"
CLEAR = 3.0  # times the tolerance: what some golden model must be moved by
SAME = 0.1  # share by which a stored effect may differ on another machine
STEPS = (9, 1, 1, 1, 5, 1, 6)  # of the 24 tokens, where a fault shows only in steps
REFUSED = "refused"
Effect = float | str


@lru_cache(maxsize=32)
def model(family: str) -> Model:
    """A small model of Hugging Face, loaded."""
    return load(container.open(render(of_the_oracle(family))))


def tolerance(family: str) -> float:
    """Of its logits."""
    return LOGITS_GDN if "LinearAttention" in model(family).arch.layer_types else LOGITS


def effect(fault: Fault, family: str) -> Effect | None:
    """The largest difference to the oracle's logits; None where the fault has no place in the family."""
    if fault.drafts and model(family).mtp is None:
        return None
    said = answers(family)
    ids, want = (said["mtp_input_ids"], said["mtp_logits"]) if fault.drafts else (said["token_ids"], said["logits"])
    worst = 0.0
    try:
        with applied(fault, model(family)) as wrong, np.errstate(all="ignore"):
            for row in range(len(ids)):
                got = (
                    _drafts(wrong, ids[row])
                    if fault.drafts
                    else wrong.logits(ids[row], STEPS if fault.stepwise else None)
                )
                worst = max(worst, float(np.abs(got.astype(np.float64) - want[row]).max()))
    except Refusal:
        return REFUSED
    return worst


def _drafts(it: Model, ids: Any) -> Any:
    hidden, state = it.advance(it.start(), ids)
    assert it.mtp is not None  # noqa: S101  # who asks has looked
    drafted, _ = mtp.draft(it.arch, state.weights, it.mtp, it.embedded(state.weights, ids[1:]), hidden[:-1], None)
    return it.scores(state, drafted)


def effects(fault: Fault) -> dict[str, Effect]:
    """Of a fault on every family where it goes past the tolerance."""
    found = {family: effect(fault, family) for family in sorted(CHOSEN)}
    return {
        family: value if isinstance(value, str) else float(f"{value:.3g}")
        for family, value in found.items()
        if value is not None and (isinstance(value, str) or value > tolerance(family))
    }


def clear(fault_effects: dict[str, Effect]) -> list[str]:
    """The families on which a fault can't be taken for rounding."""
    return [
        family
        for family, value in fault_effects.items()
        if not isinstance(value, str) and value >= CLEAR * tolerance(family)
    ]


def same(stored: Effect, found: Effect | None) -> bool:
    """Whether a stored effect is met."""
    if isinstance(stored, str) or isinstance(found, str) or found is None:
        return stored == found
    return math.isclose(stored, found, rel_tol=SAME)


def table() -> dict[str, dict[str, Any]]:
    """What golden/effects.json says."""
    return {fault.name: {"says": fault.says, "effects": effects(fault)} for fault in FAULTS}


def stored() -> dict[str, dict[str, Any]]:
    """The table in the tree."""
    read: dict[str, dict[str, Any]] = json.loads(PATH.read_text("ascii"))
    return read


def differing(found: dict[str, dict[str, Any]]) -> list[str]:
    """The faults of which the stored table says something else."""
    known = stored()
    return sorted(
        name
        for name in known.keys() | found.keys()
        if name not in known
        or name not in found
        or known[name]["says"] != found[name]["says"]
        or known[name]["effects"].keys() != found[name]["effects"].keys()
        or not all(same(value, found[name]["effects"][family]) for family, value in known[name]["effects"].items())
    )


def main() -> None:
    """The command line."""
    found = table()
    blurred = [name for name, row in found.items() if not clear(row["effects"])]
    if "--check" in sys.argv[1:]:
        wrong = differing(found)
    else:
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
        PATH.write_text("{\n" + lines + "\n}\n", "ascii")
        wrong = []
    print(
        f"{len(found)} faults on {len(CHOSEN)} families; {len(blurred)} that no golden model shows: {', '.join(blurred)}"
    )
    if wrong:
        print(f"not as stored: {', '.join(wrong)}")
    sys.exit(bool(wrong or blurred))


if __name__ == "__main__":
    main()
