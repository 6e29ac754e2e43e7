"""How a kernel is compiled and where it is kept.

Law: a kept kernel doesn't notice that a function it calls or a number it uses has changed, so the folder's name is the digest
of all that a kernel may import: this package and `layout`. Edit one, and all are compiled anew. Where nothing can be written
(a read-only tree, no home), kernels are compiled each time, and one line says so. Fast maths that may lose a NaN or an
infinity is never allowed.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

R = TypeVar("R")
SOURCES = (Path(__file__).parent, Path(__file__).parent.parent / "layout.py")
VARIABLE = "CMFSPEC_CACHE_DIR"
KERNELS: dict[str, Any] = {}  # each that has been decorated, as numba holds it, by module and name


def digest() -> str:
    """Of every module that a kernel may import, names and bytes."""
    found = hashlib.sha256()
    for path in (*sorted(SOURCES[0].glob("*.py")), SOURCES[1]):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def home() -> Path:
    """Where caches go: $CMFSPEC_CACHE_DIR, $XDG_CACHE_HOME/cmfspec, ~/.cache/cmfspec. Raises RuntimeError without a home."""
    named, shared = os.environ.get(VARIABLE), os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named)
    return (Path(shared) if shared else Path.home() / ".cache") / "cmfspec"


@cache
def folder() -> Path | None:
    """The folder that these kernels are kept in, made; None, and one line on stderr, where that can't be."""
    try:
        found = home() / f"kernels-{digest()}"
        found.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=found):
            return found
    except (OSError, RuntimeError) as error:
        why = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        print(f"cmfspec: kernels are compiled anew each time, they can't be kept: {why}", file=sys.stderr)
        return None


def kernel(function: Callable[..., R]) -> Callable[..., R]:
    """Compile `function` when it is first called; it runs without the interpreter's lock."""
    kept = folder()
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(kept or "")
    try:  # where it is kept is decided here, in decorating
        made: Callable[..., R] = numba.njit(nogil=True, cache=kept is not None, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before
    KERNELS[f"{function.__module__}.{function.__qualname__}"] = made
    return made


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """A helper of kernels, compiled into each of them."""
    made: Callable[..., R] = numba.njit(nogil=True, error_model="numpy")(function)
    return made
