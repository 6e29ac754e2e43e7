"""Commands for anybody with a file in hand: look into it, run it, make it.

Law: declarations only; a command imports its work when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from runner.verbs.options import file_argument, json_flag

# Those of cmfspec.tools.pack, which imports too much for --help.
QUANTS = (
    "f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block", "q4t", "q4_tiled", "q4tp", "vbit", "vbit_ro", "q1", "q1s", "q1t",
)  # fmt: skip


@click.command()
@file_argument
@click.option("--values", is_flag=True, help="Decode every tensor too: payloads that lie, weights that are not finite.")
@json_flag
def verify(file: str, values: bool, as_json: bool) -> None:
    """Check a file and every hash in it: 0 sound, 1 refused or damaged."""
    from runner.filecmds import verify_command

    sys.exit(verify_command(file, as_json, values))


@click.command()
@file_argument
@json_flag
def inspect(file: str, as_json: bool) -> None:
    """Show what is in a file: envelope, sections, architecture, tensors."""
    from runner.filecmds import inspect_command

    sys.exit(inspect_command(file, as_json))


@click.command()
@file_argument
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


@click.command()
@file_argument
@click.option("--tokens", required=True, metavar="IDS", help="Ids, such as 3,5,9.")
@click.option("-o", "--out", required=True, metavar="FILE", help="Where to write, - for stdout.")
@click.option("--rows", type=click.Choice(("all", "last")), default="all", show_default=True, help="Of which tokens.")
@_runs
def logits(**options: Any) -> None:
    """Run a model on token ids: float32 [tokens, vocabulary] as a .npy. 0 written, 1 refused."""
    from runner.enginecmds import logits_command

    sys.exit(logits_command(**options))


@click.command()
@file_argument
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


@click.command()
@file_argument
@click.option("--text", metavar="FILE", help="The prompt in UTF-8, - for stdin; the file's own tokenizer reads it.")
@click.option("--tokens", metavar="IDS", help="Ids, such as 3,5,9, in place of a text.")
@click.option("--task", metavar="TASK", help="Under this mask of the file, or dense.")
@json_flag
def route(**options: Any) -> None:
    """Which skill a prompt belongs to: every routable one and its E (§9), the best first. 0 done, 1 refused."""
    from runner.enginecmds import route_command

    sys.exit(route_command(**options))


@click.command()
@file_argument
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


@click.command()
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


@click.command()
@file_argument
@click.option("-o", "--out", required=True, metavar="FILE", help="The file to write.")
@click.option("--quant", required=True, type=click.Choice(QUANTS), help="The encoding of matrices.")
def requant(**options: Any) -> None:
    """Write a .cmf in another encoding, everything else as it is: decode, encode. 0 written, 1 the file is refused."""
    from runner.packcmd import requant_command

    sys.exit(requant_command(**options))


@click.command()
@json_flag
def warm(as_json: bool) -> None:
    """Compile all kernels now, so that no command has to. 0 they are kept, 3 they can't be.

    They are kept in $CMFSPEC_CACHE_DIR, else in $XDG_CACHE_HOME/cmfspec, else in ~/.cache/cmfspec.
    """
    from runner.warming import warm_command

    sys.exit(warm_command(as_json))


COMMANDS = (verify, inspect, tensor, logits, ppl, generate, route, pack, requant, warm)
