"""`cmfspec pack` and `cmfspec requant`: files to files, with a bar on a terminal.

Law: 0 written, 1 the source is refused, 2 usage, 3 the machine can't (a full disk, a file that can't be read). Whatever is
not 0 has left the output's place as it was. What was written goes to stdout, the rest to stderr.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from cmfspec.errors import Refusal
from cmfspec.tools.pack import Progress, Report, pack, silent
from cmfspec.tools.requant import requant
from cmfspec.tools.unpackable import Unpackable, Unwritable
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.filecmds import show_faults
from runner.terminal import safe

GIGA = 1e9


def pack_command(source: str, out: str, quant: str, shard_max_gb: float | None, text_only: bool) -> int:
    """`cmfspec pack`: the exit code."""
    if not Path(source).is_dir():
        raise click.UsageError(f"{safe(source)}: no directory")
    limit = int(shard_max_gb * GIGA) if shard_max_gb else None
    return _done(out, lambda progress: pack(source, out, quant, limit, text_only, progress))


def requant_command(file: str, out: str, quant: str) -> int:
    """`cmfspec requant`: the exit code."""
    return _done(out, lambda progress: requant(file, out, quant, progress), file)


def _done(out: str, work: Callable[[Progress], Report], file: str = "") -> int:
    try:
        with _bar() as progress:
            report = work(progress)
    except Unwritable as error:
        raise click.UsageError(safe(str(error))) from None
    except Unpackable as error:
        print(f"refused: {safe(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    except Refusal as refusal:
        with contextlib.redirect_stdout(sys.stderr):
            show_faults(file, [refusal.fault])
        return EXIT_FAILED
    except OSError as error:
        print(f"{safe(str(error.filename or out))}: {error.strerror or error}; nothing was written", file=sys.stderr)
        return EXIT_BROKEN
    for remark in report.remarks:
        print(safe(remark), file=sys.stderr)
    for path in report.files:
        print(safe(f"{path}: {path.stat().st_size:,} bytes"))
    counts = sorted(report.counts.items(), key=lambda one: -one[1][1])
    print("  " + ", ".join(f"{tensors} {dtype} ({nbytes:,} bytes)" for dtype, (tensors, nbytes) in counts))
    return 0


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda name, so_far, total: bar.update(
            task, completed=so_far, total=total, description=escape(safe(name))
        )
