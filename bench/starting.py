"""What it takes to start: whole processes, beside one of Python that does nothing.

Law: both are the same interpreter, with the modules that were compiled before. The bound is a process that only imports the
libraries that we can't do without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.measure import Row, Ways
from cmfspec.format.blueprint import Blueprint
from cmfspec.format.build import render
from golden.recipes import HEADER, entry

SIZE = (157, 320)  # of a tensor of f16: 100 kB


def started(environment: dict[str, str], *words: str) -> None:
    """A process from its start to its end."""
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, env=environment, check=True)


@contextmanager
def starting(imports: str, words: Callable[[str], list[str]]) -> Iterator[Ways]:
    """A command of ours, beside nothing; words: from the path of a small file."""
    with tempfile.TemporaryDirectory(prefix="cmfspec-bench-") as folder:
        path = Path(folder) / "small.cmf"
        path.write_bytes(render(Blueprint(HEADER, (entry("w", "f16", SIZE),))))
        # Else modules might be compiled anew in every process, or into the tree.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        run = partial(started, {**environment, "PYTHONPYCACHEPREFIX": folder})
        ours = partial(run, "-m", "cmfspec", *words(str(path)))
        yield Ways([ours], [partial(run, "-c", "pass")], 1, [partial(run, "-c", f"import {imports}")])


ROWS = (
    Row(
        "start-help", "`cmfspec --help`, the whole process", "`python -c pass`", "processes", 1 / 6,
        lambda: starting("click", lambda _: ["--help"]), bound="a process that imports click and ends", seconds=3.0,
    ),
    Row(
        "start-verify", "`cmfspec verify` of 100 kB, the whole process", "`python -c pass`", "processes", 1 / 12,
        lambda: starting("click, msgspec, numpy", lambda path: ["verify", path]),
        bound="a process that imports click, msgspec and numpy and ends", seconds=5.0,
    ),
)  # fmt: skip
