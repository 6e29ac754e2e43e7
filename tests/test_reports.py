"""Bugs that were reported against readers in use: each of a container or of an encoding is asked by a rule or a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cmfspec.contract.rule import CATALOGUE, load_catalogue
from tests.shared import SHARED

REPORTS = SHARED / "research" / "REPORTS.md"
REFERENCE = re.compile(r"CVE-\d+-\d+|(?:[\w.-]+/)?[\w.-]+#\d+|01data-ai/\w+")
ROW = re.compile(r"^\| ([AB]\d+) \| ([^|]*)\|", re.MULTILINE)

load_catalogue()


@pytest.mark.skipif(not REPORTS.is_file(), reason=f"{REPORTS} is not here")
def test_every_report_on_containers_and_encodings_is_named() -> None:
    """By one of its references, in the `bugs` of a rule or in a test."""
    named = " ".join(bug for rule in CATALOGUE.values() for bug in rule.bugs)
    named += " ".join(path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.py"))
    rows = ROW.findall(REPORTS.read_text("utf-8"))
    assert len(rows) > 30
    missing = {
        number: source for number, source in rows if not any(found in named for found in REFERENCE.findall(source))
    }
    assert not missing
