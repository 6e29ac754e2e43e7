"""Commands that judge an implementation, or tell what was judged.

Law: declarations only; a command imports its work when it is used.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from runner.verbs.options import jobs, json_flag, many_targets, rule_ids, targets, tiers_of

PROFILES = ("smoke", "certify", "soak")
FORMATS = ("text", "junit", "sarif", "markdown", "github")


@click.command()
@many_targets
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="certify",
    show_default=True,
    help="How much to ask.",
)
@click.option(
    "-k",
    "pattern",
    metavar="PATTERN",
    shell_complete=rule_ids,
    help="Only rules or cases whose id or name contains this, or matches this glob.",
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="TIER",
    shell_complete=tiers_of,
    help="Only rules of this tier (LITERAL, DERIVED, FAMILY, SHOULD, OBSERVATION).",
)
@jobs("Workers, each with its own process (default: one a core).")
@click.option("--cap", type=click.IntRange(min=0), help="At most this many cases of a rule (--argv: 12; 0 for all).")
@click.option("--sequence", metavar="FILE", help="Ask the cases that FILE names, in its order, in one process.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the soak profile.")
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Drawn examples of a rule in the soak profile.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the stream of JSON lines here, - for stdout.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="cmfspec-results",
    show_default=True,
    metavar="DIR",
    help="Where each failure leaves its folder, and the run its stream, last.jsonl.",
)
@click.option("-v", "--observations", is_flag=True, help="Also show what was seen where the text is silent.")
@click.option(
    "--waive", type=click.Path(), metavar="FILE", help="YAML: failures that are put up with, why, and until when."
)
@click.option("--update-waivers", is_flag=True, help="Cut from that file what fails the run: stale or expired waivers.")
@click.option(
    "--baseline", type=click.Path(), metavar="FILE", help="The stream of an earlier run: fail only on what is worse."
)
@click.option("--max-fail", type=click.IntRange(min=1), metavar="N", help="Stop after N failures that fail the run.")
@click.option("--last-failed", "last", is_flag=True, help="Only the cases that failed in the last run.")
@click.option(
    "--resume", is_flag=True, help="Go on with the stream of a run that did not end, by the same command line."
)
def run(**options: Any) -> None:
    """Judge an implementation by the rules of the spec.

    Without --impl or --argv the embedded reference is judged.
    """
    from runner.run import run_command

    sys.exit(run_command(**options))


@click.command()
@click.argument(
    "results", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True), metavar="RESULTS..."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="What to make of them."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write it here, not to stdout.")
@click.option("-v", "--observations", is_flag=True, help="Also show what was seen where the text is silent (text).")
def report(results: tuple[str, ...], form: str, output: str | None, observations: bool) -> None:
    """Make a report of streams that `run --json` wrote.

    The exit code is the worst that the streams tell of: 0, 1, or 3 for a run that did not end.
    """
    from runner.report import report_command

    sys.exit(report_command(results, form, output, observations))


@click.command()
@many_targets
def doctor(**options: Any) -> None:
    """Ask an adapter hello, ping, open and one tensor, and say what is wrong with it."""
    from runner.run import doctor_command

    sys.exit(doctor_command(**options))


@click.command()
@targets
@click.option("-o", "output", metavar="FILE", help="Where the certificate goes, - for stdout.")
@click.option("--key", type=click.Path(dir_okay=False), metavar="FILE", help="Sign it: Ed25519, PEM or hex.")
@click.option("--new-key", type=click.Path(dir_okay=False), metavar="FILE", help="Make such a key, and nothing else.")
@jobs("Workers of the first run (default: one a core).")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the second run's order.")
def certify(**options: Any) -> None:
    """Judge an implementation by every case, twice, and write a certificate.

    A certificate states the score, good or bad; exit 0 only if it is «conformant».
    """
    from runner.certify import certify_command

    sys.exit(certify_command(**options))


@click.group()
def certificate() -> None:
    """Check what `certify` has written."""


@certificate.command("verify")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@targets
@click.option("--pubkey", metavar="KEY", help="The key that must have signed it: a PEM file, or 64 hex digits.")
@click.option("--replay", is_flag=True, help="Judge the implementation again: the same files, the same outcomes.")
@jobs("Workers of the replay (default: one a core).")
@json_flag
def certificate_verify(path: str, **options: Any) -> None:
    """Does a certificate hold, whose is it, and does it state «conformant»?"""
    from runner.recheck import verify_command

    sys.exit(verify_command(path, **options))


@click.command()
def serve() -> None:
    """Be an adapter: answer with our own reader on stdin and stdout."""
    from cmfspec.contract.reference import reference
    from cmfspec.contract.sdk import serve as answer

    answer(reference())


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@targets
@json_flag
def repro(folder: str, **options: Any) -> None:
    """Ask the case of a folder that `run` has left once more: 0 it passes, 1 it fails, 3 it was not judged.

    Without --impl or --argv the embedded reference is asked.
    """
    from runner.repro import repro_command

    sys.exit(repro_command(folder, **options))


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@targets
@click.option("-o", "output", type=click.Path(dir_okay=False), metavar="OUT", help="Default: FILE with .min.cmf.")
@click.option("--trials", type=click.IntRange(min=1), help="How often to ask at most (200; 30 for hangs and crashes).")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="How long at most.")
@json_flag
def minimize(path: str, **options: Any) -> None:
    """Find a smaller file that an implementation misjudges in the same way, by what our reader says of it.

    0: it is written; 1: the file is not misjudged, and nothing is written.
    """
    from runner.minimizing import minimize_command

    sys.exit(minimize_command(path, **options))


COMMANDS = (run, report, doctor, certify, certificate, serve, repro, minimize)
