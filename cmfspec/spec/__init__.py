"""The texts that the suite judges by, vendored and pinned by hash."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

TEXTS = {"spec_sha256": "SPEC.zh.md", "rules_sha256": "rules.json", "rulings_sha256": "RULINGS.md"}


@cache
def digests() -> dict[str, str]:
    """SHA-256 of each vendored text."""
    return {key: hashlib.sha256(files(__name__).joinpath(name).read_bytes()).hexdigest() for key, name in TEXTS.items()}


def squeezed(text: str) -> str:
    """Without white space and emphasis (`**`): line breaks in the text mean nothing."""
    return "".join(text.replace("**", "").split())
