"""Commands that hunt for files, and that trade them with other fuzzers.

Law: declarations only; a command imports its work when it is used.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from runner.verbs.options import jobs, json_flag, targets


@click.command()
@targets
@click.option("--time", "duration", default="10m", show_default=True, metavar="TIME", help="How long: 90s, 10m, 2h.")
@click.option("--executions", type=click.IntRange(min=1), metavar="N", help="At most this many files.")
@jobs("Workers, each with its own process (default: one a core).")
@click.option(
    "--out", default="cmfspec-fuzz", show_default=True, metavar="DIR", help="The campaign: to go on, name it again."
)
@click.option("--seed", type=int, default=0, show_default=True, help="What the mutations follow from.")
@click.option("--max-finds", type=click.IntRange(min=1), metavar="N", help="Stop when there are so many.")
@click.option(
    "--without", multiple=True, metavar="FIELD", help="Leave a field to havoc: data_len, dir.count, nbytes, …"
)
@json_flag
def fuzz(**options: Any) -> None:
    """Hunt for files that an implementation misjudges, by what our reader says of them.

    Each find is deduplicated, made smaller and kept in the campaign's folder. Without --impl or --argv the embedded
    reference is fuzzed. 0 nothing was found, 1 something was.
    """
    from runner.fuzzing import fuzz_command

    sys.exit(fuzz_command(**options))


@click.group()
def corpus() -> None:
    """Seeds for other fuzzers, their finds, and finds that become stored cases."""


@corpus.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False))
@click.option("--campaign", type=click.Path(exists=True, file_okay=False), metavar="DIR", help="And what this one has.")
@click.option("--dict", "dictionary_file", type=click.Path(dir_okay=False), metavar="FILE", help="A dictionary, too.")
def corpus_export(**options: Any) -> None:
    """Write the shipped seeds into a folder, for libFuzzer or AFL++."""
    from runner.corpuscmd import export_command

    sys.exit(export_command(**options))


@corpus.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--out", default="cmfspec-fuzz", show_default=True, metavar="DIR", help="The campaign that they go into.")
def corpus_import(**options: Any) -> None:
    """Take what another fuzzer has kept or found into a campaign, as far as it is new."""
    from runner.corpuscmd import import_command

    sys.exit(import_command(**options))


@corpus.command("promote")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--rule", metavar="ID", help="In place of the one that the file breaks.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
def corpus_promote(**options: Any) -> None:
    """Make a file a stored case of the rule that it breaks; of ENV-022 if it breaks none that takes it."""
    from runner.corpuscmd import promote_command

    sys.exit(promote_command(**options))


COMMANDS = (fuzz, corpus)
