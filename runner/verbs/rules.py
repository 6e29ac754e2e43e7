"""Commands about the rules and about the suite itself.

Law: declarations only; a command imports its work when it is used.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from runner.verbs.options import jobs, json_flag, rule_ids


@click.command()
@click.option("--area", metavar="AREA", help="Only this area (ENV, FEAT, VAL, …).")
@json_flag
def rules(area: str | None, as_json: bool) -> None:
    """List every rule of the spec: tested, or untested and why."""
    from runner.rulecmds import rules_command

    sys.exit(rules_command(area, as_json))


@click.command()
@click.argument("identity", metavar="ID", shell_complete=rule_ids)
@json_flag
def explain(identity: str, as_json: bool) -> None:
    """Explain a rule: the text, how it is tested, how an ambiguity is resolved."""
    from runner.rulecmds import explain_command

    sys.exit(explain_command(identity, as_json))


@click.command()
@jobs("Processes (default: one a core).")
@click.option("--write", type=click.Path(dir_okay=False), metavar="FILE", help="Put the numbers into this text.")
@click.option("--check", type=click.Path(dir_okay=False), metavar="FILE", help="Fail if this text has other numbers.")
@json_flag
def selftest(**options: Any) -> None:
    """Measure the suite itself: which rules are tested, and does each find its deliberately wrong readers?"""
    from runner.measure import selftest_command

    sys.exit(selftest_command(**options))


@click.command()
@click.argument("text", metavar="NEW.md", type=click.Path(exists=True, dir_okay=False))
@json_flag
def gate(text: str, as_json: bool) -> None:
    """Hold a newer text of the spec against ours: 0 the same but for white space, 1 something is to be read again."""
    from runner.gate import gate_command

    sys.exit(gate_command(text, as_json))


COMMANDS = (rules, explain, selftest, gate)
