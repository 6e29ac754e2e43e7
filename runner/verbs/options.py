"""Options that several commands have, and what completes them on tab.

Law: nothing heavy is imported but by a completion that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
file_argument = click.argument("file", type=click.Path(dir_okay=False))


def jobs(help_text: str) -> Callable[..., Any]:
    """The option -j."""
    return click.option("-j", "--jobs", type=click.IntRange(min=1), help=help_text)


def rule_ids(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Ids of rules that begin so."""
    from cmfspec.contract.rule import norms

    return [identity for identity in norms() if identity.startswith(incomplete.upper())]


def tiers_of(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Tiers that begin so."""
    from cmfspec.contract.rule import TIERS

    return [tier for tier in TIERS if tier.startswith(incomplete.upper())]


def targets(function: Callable[..., Any], many: bool = False) -> Callable[..., Any]:
    """The options that name an implementation, or many of them."""
    for option in reversed(
        (
            click.option(
                "--impl",
                multiple=many,
                metavar="CMD",
                help=f"An adapter: a command that speaks the protocol (INTERPRETING.md){'; may be repeated' * many}.",
            ),
            click.option(
                "--argv",
                "argv",
                multiple=True,
                metavar="OP=CMD",
                help="A command for one operation: open='./r {file}'.",
            ),
            click.option(
                "--refuse-exit",
                multiple=True,
                type=int,
                metavar="N",
                help="Exit code that refuses (--argv; default 1).",
            ),
            click.option(
                "--feature",
                multiple=True,
                type=int,
                metavar="BIT",
                help="Feature bits that an --argv reader knows (default 0 1 2 6).",
            ),
            click.option(
                "--dtype",
                multiple=True,
                type=int,
                metavar="ID",
                help="Dtypes that an --argv reader decodes (default all of the text).",
            ),
            click.option(
                "--timeout-scale",
                type=click.FloatRange(min=0.01),
                default=1.0,
                help="Multiply every deadline (10 s a request).",
            ),
            click.option(
                "--mem-limit",
                default="2048",
                metavar="MIB",
                help="Memory of the implementation in MiB, or none (for ASan).",
            ),
        )
    ):
        function = option(function)
    return function


def many_targets(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name implementations."""
    return targets(function, many=True)
