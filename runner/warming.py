"""`cmfspec warm`: every kernel compiled and kept, before somebody waits for it.

Law: a kernel is compiled for the types that it is called with, so each is called as a file's reader calls it, on next to
nothing, through the same doors. What is there already is left as it is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from rich.console import Console

from cmfspec.codecs import CODECS, encode
from cmfspec.codecs.stored import Stored
from cmfspec.format.hash64 import _compiled
from cmfspec.kernels.compiled import KERNELS, folder
from cmfspec.layout import DTYPE_IDS
from runner.exits import EXIT_BROKEN
from runner.progress import bar
from runner.terminal import safe

SHAPE = (2, 64)
LADDER = "q4tp"  # the encoding whose scales have a kernel of their own


def stored(name: str) -> Stored:
    """A small matrix, ready for kernels; they are asked for whether or not it is worth it."""
    payload = memoryview(encode(name, np.ones(SHAPE, np.float32)))
    return CODECS[DTYPE_IDS[name]].stored(payload, SHAPE)


def uses() -> dict[str, Callable[[], object]]:
    """What calls each kernel, in words."""
    xs = np.ones((2, SHAPE[1]), np.float32)
    return {
        "hash64": partial(_compiled, bytes(9), np.array([0]), np.array([9])),
        "the scales of q4tp": partial(stored, LADDER),
        "decoding": lambda: stored("q8_row").decode(),
        "products with a vector": lambda: stored("q8_row").matvec(xs[0]),
        "products with vectors": lambda: stored("q8_row").matmat(xs),
    }


def warm_command(as_json: bool) -> int:
    """`cmfspec warm`: the exit code."""
    kept, began = folder(), time.perf_counter()
    if kept is None:  # and why has been said
        if as_json:
            print(json.dumps({"folder": None, "kernels": 0, "compiled": 0, "seconds": 0.0}))
        else:
            print(
                "nothing was compiled: it could not be kept; $CMFSPEC_CACHE_DIR names another folder", file=sys.stderr
            )
        return EXIT_BROKEN
    try:
        _use(uses())
    except OSError as error:  # a folder that was there, and that is full
        print(f"cmfspec: {safe(str(error.filename or kept))}: {error.strerror or error}", file=sys.stderr)
        return EXIT_BROKEN
    compiled = sum(sum(each.stats.cache_misses.values()) for each in KERNELS.values())
    seconds = round(time.perf_counter() - began, 2)
    if as_json:
        told = {"folder": str(kept), "kernels": len(KERNELS), "compiled": compiled, "seconds": seconds}
        print(json.dumps(told))
    else:
        there = len(KERNELS) - compiled
        print(f"{compiled} kernels compiled in {seconds:.1f} s, {there} were there: {safe(str(kept))}")
    return 0


def _use(work: dict[str, Callable[[], object]]) -> None:
    """Call each, and show how far it has come."""
    with bar(Console(stderr=True), "kernels", len(work)) as advance:
        for what, use in work.items():
            advance(0, what)
            use()
            advance()
