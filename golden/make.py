"""`python -m golden.make cases`: draw the stored cases anew; `interop`: choose the real files anew; `oracle`: the
small models that the engine is held to. `--check`: write nothing,
and fail if what is stored is not what would be written.

Law: what is committed is what this program writes. Rules come from the entry points that register them, real files from
the shared folder; where that is absent, `interop --check` holds the files to the SHA-256 that are stored with them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cmfspec.contract.rule import CATALOGUE, load_catalogue
from golden import interop, oracle
from golden.cases import draw_cases, store
from golden.dice import Dice

HOME = Path(__file__).parent / "cases"


def make_cases() -> dict[str, str]:
    """File name to content, as it should be."""
    load_catalogue()
    return store({identity: draw_cases(rule, Dice(identity)) for identity, rule in CATALOGUE.items()})


def write(content: dict[str, str]) -> None:
    """Write the files, and delete those that no longer have a place."""
    for path in HOME.glob("*.jsonl"):
        if path.name not in content:
            path.unlink()
    for name, text in content.items():
        (HOME / name).write_text(text, "ascii", newline="\n")


def differing(content: dict[str, str]) -> list[str]:
    """Names of files that are not what they should be."""
    present = {path.name: path.read_text("ascii") for path in HOME.glob("*.jsonl")}
    return sorted(name for name in present.keys() | content.keys() if present.get(name) != content.get(name))


def _cases(check: bool) -> tuple[str, list[str]]:
    content = make_cases()
    if not check:
        write(content)
    lines = sum(text.count("\n") for text in content.values())
    return f"{lines} cases in {len(content)} files", differing(content)


def _interop(check: bool) -> tuple[str, list[str]]:
    if not interop.SOURCE.is_dir():
        if not check or not interop.HOME.is_dir():
            where = "the folder that real files come from" if not check else "the folder of real files"
            raise SystemExit(f"{interop.HOME if check else interop.SOURCE} is not here: {where}")
        return f"{len(interop.CHOSEN)} real files, held to the stored SHA-256", interop.damaged()
    files = interop.wanted()
    if not check:
        interop.write(files)
    return f"{len(interop.CHOSEN)} real files", interop.differing(files)


def _oracle(check: bool) -> tuple[str, list[str]]:
    if not oracle.SOURCE.is_dir():
        if not check or not oracle.HOME.is_dir():
            raise SystemExit(f"{oracle.HOME if check else oracle.SOURCE} is not here: the folder of small models")
        return f"{len(oracle.CHOSEN)} small models, held to the stored SHA-256", oracle.damaged()
    files = oracle.wanted()
    if not check:
        oracle.write(files)
    return f"{len(oracle.CHOSEN)} small models", oracle.differing(files)


MAKERS = {
    "cases": _cases,
    "interop": _interop,
    "oracle": _oracle,
}  # check -> (what there is, what is not as it should be)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m golden.make", description=__doc__)
    parser.add_argument("what", choices=MAKERS)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something would change")
    arguments = parser.parse_args()
    said, wrong = MAKERS[arguments.what](arguments.check)
    print(said + (f"; not as stored: {', '.join(wrong)}" if wrong else ""))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
