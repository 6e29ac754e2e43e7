"""The wheel: five packages, their data, and no tests."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = (
    "cmfspec/spec/SPEC.zh.md", "cmfspec/spec/RULINGS.md", "cmfspec/spec/rules.json", "cmfspec/contract/protocol.schema.json",
    "cmfspec/py.typed", "golden/cases/ENV.jsonl", "golden/cases/HASH.jsonl", "golden/oracle/llama/oracle.npz", "runner/adapters/c/reader.c", "runner/adapters/c/Makefile",
)  # fmt: skip


def test_the_wheel_holds_five_packages_and_their_data(tmp_path: Path) -> None:
    """Four of the names are generic: nothing else may land beside them."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "cmfspec",
        "golden",
        "fuzz",
        "conformance",
        "runner",
    }
    assert set(DATA) <= set(names)
    assert not [name for name in names if "test" in name or name.endswith((".o", "cmfreader", "cmfreader-asan"))]
    assert not [name for name in names if name.startswith("golden/interop/")]  # real files: for tests only
    assert wheel.stat().st_size < 12 * 2**20
