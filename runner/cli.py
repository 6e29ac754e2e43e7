"""The command line: verbs only; each does its work in a module of its own, imported when it is used.

Law: 0 yes, 1 no (a graded case failed, a file is refused or damaged), 2 usage, 3 the run itself broke. Results go to stdout,
progress and remarks to stderr, colours only to a terminal.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

import cmfspec
from runner.exits import EXIT_BROKEN

PROFILES = ("smoke", "certify", "soak")
FORMATS = ("text", "junit", "sarif", "markdown", "github")
SHELLS = ("bash", "zsh", "fish")
# Those of cmfspec.tools.pack, which imports too much for --help.
QUANTS = (
    "f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block", "q4t", "q4_tiled", "q4tp", "vbit", "vbit_ro", "q1", "q1s", "q1t",
)  # fmt: skip

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cmfspec.__version__, prog_name="cmfspec")
def cli() -> None:
    """The executable spec of CMF v2: judge a reader, verify, inspect and make a file, look up a rule.

    Exit codes: 0 yes, 1 no, 2 usage, 3 the run itself broke.
    """


def _rule_ids(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from cmfspec.contract.rule import norms

    return [identity for identity in norms() if identity.startswith(incomplete.upper())]


def _tiers(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from cmfspec.contract.rule import TIERS

    return [tier for tier in TIERS if tier.startswith(incomplete.upper())]


def _targets(function: Callable[..., Any], many: bool = False) -> Callable[..., Any]:
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


def _many_targets(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name implementations."""
    return _targets(function, many=True)


def main() -> None:
    """Run the command line; an exception of our own is a broken run, never «no»."""
    try:
        cli(prog_name="cmfspec")
    except Exception:  # exit 1 would say that a case failed
        traceback.print_exc()
        print("cmfspec: the run itself broke; nothing above is a verdict", file=sys.stderr)
        sys.exit(EXIT_BROKEN)


@cli.command()
@_many_targets
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
    shell_complete=_rule_ids,
    help="Only rules or cases whose id or name contains this, or matches this glob.",
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="TIER",
    shell_complete=_tiers,
    help="Only rules of this tier (LITERAL, DERIVED, FAMILY, SHOULD, OBSERVATION).",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Workers, each with its own process (default: one a core)."
)
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


@cli.command()
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


@cli.command()
@_many_targets
def doctor(**options: Any) -> None:
    """Ask an adapter hello, ping, open and one tensor, and say what is wrong with it."""
    from runner.run import doctor_command

    sys.exit(doctor_command(**options))


@cli.command()
@_targets
@click.option("-o", "output", metavar="FILE", help="Where the certificate goes, - for stdout.")
@click.option("--key", type=click.Path(dir_okay=False), metavar="FILE", help="Sign it: Ed25519, PEM or hex.")
@click.option("--new-key", type=click.Path(dir_okay=False), metavar="FILE", help="Make such a key, and nothing else.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Workers of the first run (default: one a core).")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the second run's order.")
def certify(**options: Any) -> None:
    """Judge an implementation by every case, twice, and write a certificate.

    A certificate states the score, good or bad; exit 0 only if it is «conformant».
    """
    from runner.certify import certify_command

    sys.exit(certify_command(**options))


@cli.group()
def certificate() -> None:
    """Check what `certify` has written."""


@certificate.command("verify")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@_targets
@click.option("--pubkey", metavar="KEY", help="The key that must have signed it: a PEM file, or 64 hex digits.")
@click.option("--replay", is_flag=True, help="Judge the implementation again: the same files, the same outcomes.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Workers of the replay (default: one a core).")
@json_flag
def certificate_verify(path: str, **options: Any) -> None:
    """Does a certificate hold, whose is it, and does it state «conformant»?"""
    from runner.recheck import verify_command

    sys.exit(verify_command(path, **options))


@cli.command()
def serve() -> None:
    """Be an adapter: answer with our own reader on stdin and stdout."""
    from cmfspec.contract.reference import reference
    from cmfspec.contract.sdk import serve as answer

    answer(reference())


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@_targets
@json_flag
def repro(folder: str, **options: Any) -> None:
    """Ask the case of a folder that `run` has left once more: 0 it passes, 1 it fails, 3 it was not judged.

    Without --impl or --argv the embedded reference is asked.
    """
    from runner.repro import repro_command

    sys.exit(repro_command(folder, **options))


@cli.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@_targets
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


@cli.command()
@_targets
@click.option("--time", "duration", default="10m", show_default=True, metavar="TIME", help="How long: 90s, 10m, 2h.")
@click.option("--executions", type=click.IntRange(min=1), metavar="N", help="At most this many files.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Workers, each with its own process (default: one a core)."
)
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


@cli.group()
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


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@json_flag
def verify(file: str, as_json: bool) -> None:
    """Check a file and every hash in it: 0 sound, 1 refused or damaged."""
    from runner.filecmds import verify_command

    sys.exit(verify_command(file, as_json))


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@json_flag
def inspect(file: str, as_json: bool) -> None:
    """Show what is in a file: envelope, sections, architecture, tensors."""
    from runner.filecmds import inspect_command

    sys.exit(inspect_command(file, as_json))


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("name", required=False)
@click.option(
    "--index", type=int, metavar="I", help="The tensor's place in the directory, from 0, in place of its name."
)
@click.option("-o", "--out", required=True, metavar="FILE", help="Where to write, - for stdout.")
@click.option("--raw", is_flag=True, help="Write the payload's bytes as they lie in the file.")
def tensor(**options: Any) -> None:
    """Decode one tensor into a .npy: float32 of its shape (u8: its bytes). 0 written, 1 refused."""
    from runner.tensorcmd import tensor_command

    sys.exit(tensor_command(**options))


def _runs(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say under what a model runs."""
    task = click.option("--task", metavar="TASK", help="Under this mask of the file, or dense.")
    skill = click.option(
        "--skill", "skills", multiple=True, metavar="SKILL", help="With this skill; several, each SKILL=WEIGHT, blend."
    )
    return task(skill(function))


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--tokens", required=True, metavar="IDS", help="Ids, such as 3,5,9.")
@click.option("-o", "--out", required=True, metavar="FILE", help="Where to write, - for stdout.")
@click.option("--rows", type=click.Choice(("all", "last")), default="all", show_default=True, help="Of which tokens.")
@_runs
def logits(**options: Any) -> None:
    """Run a model on token ids: float32 [tokens, vocabulary] as a .npy. 0 written, 1 refused."""
    from runner.enginecmds import logits_command

    sys.exit(logits_command(**options))


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--text", metavar="FILE", help="A text in UTF-8, - for stdin; the file's own tokenizer reads it.")
@click.option("--tokens", metavar="IDS", help="Ids, such as 3,5,9, in place of a text.")
@click.option("--window", type=int, metavar="N", help="Tokens in a window (default: the model's whole context).")
@click.option("--stride", type=int, metavar="N", help="Tokens from window to window (default: half of one).")
@_runs
@json_flag
def ppl(**options: Any) -> None:
    """Perplexity of a model on a text: each token but the first is predicted once. 0 done, 1 refused."""
    from runner.enginecmds import ppl_command

    sys.exit(ppl_command(**options))


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--prompt", metavar="TEXT", help="The text to go on from; the file's own tokenizer reads it.")
@click.option("--tokens", metavar="IDS", help="Ids, such as 3,5,9, in place of a text; ids come out.")
@click.option("--max-new", type=click.IntRange(min=0), default=128, show_default=True, metavar="N", help="New tokens.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 takes the highest logit.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Draw from the likeliest that reach this.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws.")
@click.option("--mtp", is_flag=True, help="Draft with the model's own head: the same tokens, in fewer steps.")
@_runs
def generate(**options: Any) -> None:
    """Go on from a prompt, to a stop id of the file or --max-new. 0 done, 1 refused."""
    from runner.enginecmds import generate_command

    sys.exit(generate_command(**options))


@cli.command()
@click.argument("source", type=click.Path())
@click.option("-o", "--out", required=True, metavar="FILE", help="The file to write.")
@click.option("--quant", required=True, type=click.Choice(QUANTS), help="The encoding of matrices.")
@click.option(
    "--shard-max-gb",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GB",
    help="Begin another shard where one's tensors, as float32, would pass this.",
)
@click.option("--text-only", is_flag=True, help="Leave out what the model has besides its text model (vision, audio).")
def pack(**options: Any) -> None:
    """Make a .cmf of a Hugging Face folder (config.json, safetensors, tokenizer.json).

    Vectors and small tensors are f16, routers and gates too where matrices are quantised; a matrix whose rows don't have
    whole groups of 32 is q8_2f where the encoding wants them. What the format has no field for is refused by name.
    0 written, 1 the source is refused, 3 the machine can't; then nothing has appeared.
    """
    from runner.packcmd import pack_command

    sys.exit(pack_command(**options))


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-o", "--out", required=True, metavar="FILE", help="The file to write.")
@click.option("--quant", required=True, type=click.Choice(QUANTS), help="The encoding of matrices.")
def requant(**options: Any) -> None:
    """Write a .cmf in another encoding, everything else as it is: decode, encode. 0 written, 1 the file is refused."""
    from runner.packcmd import requant_command

    sys.exit(requant_command(**options))


@cli.command()
@click.option("--area", metavar="AREA", help="Only this area (ENV, FEAT, VAL, …).")
@json_flag
def rules(area: str | None, as_json: bool) -> None:
    """List every rule of the spec: tested, or untested and why."""
    from runner.rulecmds import rules_command

    sys.exit(rules_command(area, as_json))


@cli.command()
@click.argument("identity", metavar="ID", shell_complete=_rule_ids)
@json_flag
def explain(identity: str, as_json: bool) -> None:
    """Explain a rule: the text, how it is tested, how an ambiguity is resolved."""
    from runner.rulecmds import explain_command

    sys.exit(explain_command(identity, as_json))


@cli.command()
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Processes (default: one a core).")
@click.option("--write", type=click.Path(dir_okay=False), metavar="FILE", help="Put the numbers into this text.")
@click.option("--check", type=click.Path(dir_okay=False), metavar="FILE", help="Fail if this text has other numbers.")
@json_flag
def selftest(**options: Any) -> None:
    """Measure the suite itself: which rules are tested, and does each find its deliberately wrong readers?"""
    from runner.measure import selftest_command

    sys.exit(selftest_command(**options))


@cli.command()
@click.argument("text", metavar="NEW.md", type=click.Path(exists=True, dir_okay=False))
@json_flag
def gate(text: str, as_json: bool) -> None:
    """Hold a newer text of the spec against ours: 0 the same but for white space, 1 something is to be read again."""
    from runner.gate import gate_command

    sys.exit(gate_command(text, as_json))


@cli.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the shell's completion script: `eval "$(cmfspec completion bash)"`."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(cli, {}, "cmfspec", "_CMFSPEC_COMPLETE").source())
