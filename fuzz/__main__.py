"""`python -m fuzz [TARGET …]`: fuzz our own reader, for so many executions or seconds each.

Law: a plain loop everywhere; `--coverage` guides it with atheris where that is installed (the `fuzz` extra). Exit 0: no
escape; 1: something escaped, its input is in `--out`; 3: nothing was executed, or too little of it accepted to mean anything.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import time
import traceback
from pathlib import Path

from fuzz.loop import Tally
from fuzz.loop import fuzz as loop
from fuzz.targets import TARGETS, Target

ESCAPED, BROKEN = 1, 3
MEMORY = 2 << 30  # bytes of data that this process may hold: an input may not ask for more
LEAST = {"reply": 0.10}  # the share that must be accepted, where it is less than this
SHARE = 0.20
ENOUGH = 200  # executions from which on the share means something
SAY = 10.0  # seconds between lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, help="for each target (default 10, if no executions are given)")
    parser.add_argument("--executions", type=int, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("cmfspec-fuzz"), help="where inputs that escape are kept")
    parser.add_argument(
        "--coverage", action="store_true", help="guided by atheris, one target; libFuzzer's options after --"
    )
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    given, options = parser.parse_args(words[:split]), words[split + 1 :]
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"{unknown[0]}: no such target; wanted one of {', '.join(TARGETS)}")
    if given.coverage:
        if len(given.targets) != 1:
            parser.error("--coverage wants one target")
        from fuzz.guided import guided

        guided(given.targets[0], options, given.seconds, given.executions)
    if options:
        parser.error(f"{options[0]}: options of libFuzzer need --coverage")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    seconds = given.seconds or (None if given.executions else 10.0)
    codes = [run(TARGETS[name], seconds, given.executions, given.seed, given.out) for name in given.targets or TARGETS]
    sys.exit(max(codes, key=lambda code: (code == ESCAPED, code)))


def run(target: Target, seconds: float | None, executions: int | None, seed: int, out: Path) -> int:
    """Fuzz one target and say how it went."""
    last = time.monotonic()

    def told(tally: Tally) -> None:
        nonlocal last
        if time.monotonic() - last > SAY:
            last = time.monotonic()
            print(f"  {line(target, tally)}", file=sys.stderr, flush=True)

    tally = loop(target, executions=executions, seconds=seconds, seed=seed, told=told)
    print(line(target, tally), flush=True)
    if tally.escape:
        return escaped(target, *tally.escape, out)
    if not tally.executions:
        print(f"{target.name}: nothing was executed", file=sys.stderr)
        return BROKEN
    least = LEAST.get(target.name, SHARE)
    if tally.executions >= ENOUGH and tally.share < least:
        print(f"{target.name}: too little is accepted: {tally.share:.0%}, wanted {least:.0%}", file=sys.stderr)
        return BROKEN
    return 0


def line(target: Target, tally: Tally) -> str:
    """How far it is."""
    rate = tally.executions / tally.seconds if tally.seconds else 0.0
    return (
        f"{target.name:16} {tally.executions:9} executions {rate:8.0f}/s {tally.share:4.0%} accepted "
        f"({rate * tally.share:.0f}/s) {len(tally.seen):5} kinds of answers"
    )


def escaped(target: Target, raw: bytes, error: BaseException, out: Path) -> int:
    """Keep the input, say what left."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"escape-{target.name}-{hashlib.sha256(raw).hexdigest()[:16]}"
    path.write_bytes(raw)
    traceback.print_exception(error, limit=-6)
    print(f"{target.name}: {type(error).__name__} escaped; the input is {path}", file=sys.stderr)
    return ESCAPED


if __name__ == "__main__":
    main()
