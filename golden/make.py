"""`python -m golden.make cases`: draw the stored cases anew; `--check`: fail if they differ from what is stored.

Law: what is committed is what this program writes. Rules come from the entry points that register them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cmfspec.contract.rule import CATALOGUE, load_catalogue
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m golden.make", description=__doc__)
    parser.add_argument("what", choices=["cases"])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something would change")
    arguments = parser.parse_args()
    content = make_cases()
    if not arguments.check:
        write(content)
    wrong = differing(content)
    lines = sum(text.count("\n") for text in content.values())
    print(f"{lines} cases in {len(content)} files" + (f"; not as stored: {', '.join(wrong)}" if wrong else ""))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
