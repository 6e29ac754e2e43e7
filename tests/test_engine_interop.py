"""Files that the reference tools wrote run to the logits of their weights, or say by name why they can't."""

from __future__ import annotations

from pathlib import Path

import pytest

import cmfspec
from cmfspec.contract.compare import LOGITS, largest_difference
from cmfspec.engine import load
from cmfspec.errors import Refusal
from cmfspec.format.blueprint import Blueprint
from cmfspec.format.build import render
from conformance.faults.effects import tolerance
from golden.models import answers, entries
from golden.oracle import CHOSEN
from tests.shared import INTEROP, needs_interop

FILES = sorted(INTEROP.glob("*/*.cmf")) if INTEROP.is_dir() else []
REFUSED = {
    "broken/converter-died": "InvalidMagic",
    "python/qwen3_moe-vbit": "header.arch.moe",
    "rust/gemma3-f16": "header.arch.sliding_window",
    "rust/lumina-q4t": "PIPE-008",
    "rust/qwen2-q2tp": "DT-016",
    "rust/qwen3_moe-f16": "header.arch.moe",
    "rust/skill-standalone": "FEAT-015",
}
NEAR = {"f16": 1.5e-2, "F16": 1.5e-2, "F32": 1e-2}  # to Hugging Face's logits: what halves do to these models
NEAR_GDN = 0.1


def named(path: Path) -> str:
    """As in the table."""
    return f"{path.parent.name}/{path.stem}"


@needs_interop
@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_real_file_runs_to_the_logits_of_its_weights_or_says_why_not(path: Path) -> None:
    """Those of the file of the same weights in float32; and near the oracle's, where it holds halves or floats."""
    if named(path) in REFUSED:
        with pytest.raises(Refusal, match=REFUSED[named(path)]):
            load(cmfspec.open(path))
        return
    opened = cmfspec.open(path)
    family, _, quant = path.stem.partition("-")
    known = family in CHOSEN
    ids = answers(family)["token_ids"][0] if known else (3, 5, 9, 1)
    bar = tolerance(family) if known else LOGITS
    task = "dense" if opened.view.present("masks") else None
    got = load(opened).logits(ids, task=task)
    weights = {tensor.name: opened.values(tensor.index) for tensor in opened if not tensor.name.startswith("skill.")}
    plain = load(cmfspec.open(render(Blueprint({**opened.header, "skills": None}, entries(weights)))))
    assert largest_difference(got, plain.logits(ids)) <= bar
    if quant in NEAR:
        near = NEAR_GDN if bar > LOGITS else NEAR[quant]
        assert largest_difference(got, answers(family)["logits"][0]) <= near


@needs_interop
def test_the_table_of_refusals_names_files_that_are_there() -> None:
    """And most of the files run."""
    assert REFUSED.keys() <= {named(path) for path in FILES}
    assert len(FILES) - len(REFUSED) >= 37
