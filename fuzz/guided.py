"""The same targets under libFuzzer, by atheris: guided by the lines and comparisons of our reader.

Law: the mutations are ours, with libFuzzer's own between them; what it keeps is by coverage. It ends the process itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from random import Random
from typing import Any, NoReturn

OURS = 8  # of so many mutations, all but one are ours
LEAVE = ("cmfspec.layout", "cmfspec.spec")  # tables: nothing to guide by


def guided(name: str, options: list[str], seconds: float | None, executions: int | None) -> NoReturn:
    """Fuzz a target until so many executions or seconds have passed, or for ever. options: of libFuzzer, corpora too."""
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        raise SystemExit("--coverage needs atheris: pip install 'cmfspec[fuzz]'") from None
    for module in [module for module in sys.modules if module.split(".")[0] == "cmfspec"]:
        del sys.modules[module]  # they are imported anew, instrumented
    for module in ("fuzz.targets", "fuzz.structure", "golden.recipes"):
        sys.modules.pop(module, None)
    with atheris.instrument_imports(include=["cmfspec"], exclude=[*LEAVE]):
        targets: Any = importlib.import_module("fuzz.targets")
    target = targets.TARGETS[name]
    seeds = list(target.seeds())

    def mutant(data: bytes, longest: int, seed: int) -> bytes:
        dice = Random(seed)
        if dice.randrange(OURS) == 0:
            return bytes(atheris.Mutate(data, longest))
        parent = data if len(data) > 1 else dice.choice(seeds)
        return bytes(target.mutate(dice, parent, seeds)[:longest])

    words = [sys.argv[0], "-max_len=32768", "-timeout=10", "-rss_limit_mb=2048", "-artifact_prefix=./"]
    words += [f"-max_total_time={int(seconds)}"] if seconds else []
    words += [f"-runs={executions}"] if executions else []
    check: Callable[[bytes], Any] = target.check
    atheris.Setup([*words, *options], lambda data: _run(check, data), custom_mutator=mutant)
    atheris.Fuzz()
    raise SystemExit(0)


def _run(check: Callable[[bytes], Any], data: bytes) -> None:
    check(data)
