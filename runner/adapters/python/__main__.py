"""`python -m runner.adapters.python package.module:Class`: a class becomes an adapter (README.md).

Law: what can't be imported, or isn't what it should be, is said on stderr and is a usage error (2), before any reply.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from cmfspec.codecs import CODECS
from cmfspec.contract.sdk import serve
from cmfspec.layout import IMPLEMENTED_FEATURES
from runner.adapters.python.wrapper import Wrapped, wrapped


def named(where: str) -> Any:
    """What `package.module:Name` names. Raises ArgumentTypeError."""
    module, colon, path = where.partition(":")
    if not (module and colon and path):
        raise argparse.ArgumentTypeError(f"{where!r}: wanted package.module:Name")
    try:
        found = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{where!r}: {error}") from None
    return found


def reader(where: str) -> Any:
    """A class, or another callable, by its name."""
    found = named(where)
    if not callable(found):
        raise argparse.ArgumentTypeError(f"{where!r} is a {type(found).__name__}, wanted a class")
    return found


def refusal(where: str) -> type[Exception]:
    """A class of exceptions by its name."""
    found = named(where)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise argparse.ArgumentTypeError(f"{where!r} is {found!r}, wanted a class of exceptions")
    return found


def main() -> None:
    """Answer on stdin and stdout for the class that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m runner.adapters.python", description=__doc__.split("\n")[0])
    parser.add_argument("reader", metavar="package.module:Class", help="called with a path")
    parser.add_argument(
        "--refusal", metavar="package.module:Error", type=refusal, action="append", default=[],
        help="an exception that refuses a file (repeatable); what is not named is an error",
    )  # fmt: skip
    parser.add_argument(
        "--feature", metavar="BIT", type=int, action="append",
        help="a feature bit that the class knows (repeatable; default 0 1 2 6)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", metavar="ID", type=int, action="append",
        help="a dtype that the class decodes (repeatable; default all of the text)",
    )  # fmt: skip
    given = parser.parse_args()
    try:
        make = reader(given.reader)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    features, dtypes = given.feature or IMPLEMENTED_FEATURES, given.dtype or CODECS
    serve(wrapped(Wrapped(given.reader, make, tuple(given.refusal), tuple(features), tuple(dtypes))))


if __name__ == "__main__":
    main()
