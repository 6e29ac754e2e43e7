"""What our own pages point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent
PAGES = sorted([*HOME.glob("*.md"), *HOME.glob("docs/*.md"), *HOME.glob("runner/adapters/**/README.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """Relative ones: to a file or a folder."""
    missing = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert not missing


def test_there_are_pages_with_links() -> None:
    """Lest the test before look at nothing."""
    assert {"README.md", "INTERPRETING.md"} <= {page.name for page in PAGES}
    assert len(LINK.findall((HOME / "README.md").read_text("utf-8"))) > 5
