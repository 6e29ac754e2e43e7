"""The command line: the group of all commands; `runner.verbs` declares them, and each imports its work when it is used.

Law: 0 yes, 1 no (a graded case failed, a file is refused or damaged), 2 usage, 3 the run itself broke. Results go to stdout,
progress and remarks to stderr, colours only to a terminal.
"""

from __future__ import annotations

import sys

import click

import cmfspec
from runner.exits import EXIT_BROKEN
from runner.verbs import files, fuzzing, judging, rules

SHELLS = ("bash", "zsh", "fish")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cmfspec.__version__, prog_name="cmfspec")
def cli() -> None:
    """The executable spec of CMF v2: judge a reader, verify, inspect and make a file, look up a rule.

    Exit codes: 0 yes, 1 no, 2 usage, 3 the run itself broke.
    """


def main() -> None:
    """Run the command line; an exception of our own is a broken run, never «no»."""
    try:
        cli(prog_name="cmfspec")
    except Exception:  # exit 1 would say that a case failed
        import traceback

        traceback.print_exc()
        print("cmfspec: the run itself broke; nothing above is a verdict", file=sys.stderr)
        sys.exit(EXIT_BROKEN)


@cli.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the shell's completion script: `eval "$(cmfspec completion bash)"`."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(cli, {}, "cmfspec", "_CMFSPEC_COMPLETE").source())


for command in (*judging.COMMANDS, *fuzzing.COMMANDS, *files.COMMANDS, *rules.COMMANDS):
    cli.add_command(command)
