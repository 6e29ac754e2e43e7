"""Where the shared material lies, for the tests that use it."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
INTEROP = SHARED / "interop"
needs_interop = pytest.mark.skipif(not INTEROP.is_dir(), reason=f"{INTEROP} is not here")
