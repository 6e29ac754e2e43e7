"""The entry of the `cmfspec` command.

Law: four of our five top-level packages have generic names, so before anything is imported this module checks that all
lie beside `cmfspec`. It is the one place that looks upwards: it starts `runner.cli`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

SIBLINGS = ("golden", "fuzz", "conformance", "runner")


def stranger() -> str | None:
    """The first sibling that is missing or is another project's package, as a sentence; None if all are ours."""
    home = Path(__file__).resolve().parent.parent
    for name in SIBLINGS:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin != home / name / "__init__.py":
            where = f"at {origin}" if origin else "nowhere to be found"
            return f"the package `{name}` is {where}, not beside cmfspec in {home}"
    return None


def main() -> None:
    """Run the command line."""
    problem = stranger()
    if problem:
        print(
            f"cmfspec: {problem}.\nInstall cmfspec in an environment of its own: `pipx install cmfspec` or "
            "`uv tool install cmfspec`.",
            file=sys.stderr,
        )
        raise SystemExit(3)
    from runner.cli import main as run

    run()


if __name__ == "__main__":
    main()
