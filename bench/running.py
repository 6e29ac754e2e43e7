"""The runner's rows: what judging costs beside talking, and beside starting the reader for each case.

Law: all three ways ask the C reader the same questions about the same files, on one core. Cases that measure memory
are left out, for they start the process anew and would be all that is seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.measure import Row, Ways
from cmfspec.contract.protocol import Hello, Reply
from cmfspec.contract.rule import Rule, load_catalogue
from golden.cases import Case
from runner.driver import Process
from runner.judge import Judge, ask
from runner.scratch import Scratch
from runner.select import select

C = Path(__file__).resolve().parent.parent / "runner" / "adapters" / "c"
PIECE = 5  # cases
Corpus = Sequence[tuple[Rule, Case]]
Asked = Sequence[Sequence[bytes]]  # the lines of each case


@cache
def c_reader() -> str:
    """The C reader, built."""
    subprocess.run([shutil.which("make") or "make", "-s", "-C", str(C)], check=True)
    return str(C / "cmfreader")


def no_compiler() -> str:
    """Why the C reader can't be built."""
    return "" if shutil.which("cc") and shutil.which("make") else "no C compiler"


class Recorder:
    """A link that leaves every file where it was put and notes each line that is asked. renewed: the case did that."""

    def __init__(self, process: Process, scratch: Scratch) -> None:
        self._process, self._scratch = process, scratch
        self.lines: list[bytes] = []
        self.renewed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    @property
    def hello(self) -> Hello:
        """As the process says."""
        return self._process.hello

    def place(self, content: bytes, hole: tuple[int, int] | None = None) -> str:
        """A file that stays."""
        return self._scratch.place(content, hole)

    def new_out(self) -> str:
        """A path that stays."""
        return self._scratch.new_out()

    def ask(self, op: str, file: str = "", **members: Any) -> Reply:
        """Ask, and note the line."""
        reply = self._process.ask(op, file, **members)
        self.lines.append(self._process.transcript[-1][0].encode() + b"\n")
        return reply

    def settle(self) -> None:
        """Nothing goes."""

    def renew(self) -> None:
        """Noted; the same process goes on."""
        self.renewed = True


def recorded(scratch: Scratch) -> tuple[Corpus, Asked]:
    """The cases of `certify` that need no fresh process, and the lines that each asks; the files lie in `scratch`."""
    load_catalogue()
    cases: list[tuple[Rule, Case]] = []
    asked: list[list[bytes]] = []
    with closing(Process([c_reader()])) as process:
        for rule, case in select("certify").cases:
            link = Recorder(process, scratch)
            ask(rule, case, link)
            if link.lines and not link.renewed:
                cases.append((rule, case))
                asked.append(link.lines)
    return cases, asked


def talk(process: subprocess.Popen[bytes], asked: Asked) -> None:
    """The barest loop: write a line, read a line."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("no pipes to the reader")
    to, come = process.stdin.fileno(), process.stdout.fileno()
    for lines in asked:
        for line in lines:
            os.write(to, line)
            while os.read(come, 1 << 16)[-1:] != b"\n":
                continue


def spawn(asked: Asked) -> None:
    """A process for each case."""
    for lines in asked:
        subprocess.run([c_reader()], input=b"".join(lines), stdout=subprocess.PIPE, check=True)


def judged(judge: Judge, corpus: Corpus) -> None:
    """What the runner does. Raises RuntimeError: what is timed must be right."""
    failed = [verdict.case.id for verdict in (judge.judge(*each) for each in corpus) if verdict.failed]
    if failed:
        raise RuntimeError(f"the C reader fails {failed}")


@contextmanager
def one_core() -> Iterator[None]:
    """Stay on one core, children too: else it is mostly measured where the scheduler wakes whom."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def judging(other: Callable[[Asked], object] | None) -> Iterator[Ways]:
    """Judge the corpus over one process, beside another way; None: the bare loop over a process of its own."""
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108
    with one_core(), closing(Scratch(shm, 1 << 34)) as scratch:
        corpus, asked = recorded(scratch)
        with (
            closing(Process([c_reader()])) as link,
            subprocess.Popen([c_reader()], stdin=-1, stdout=-1, bufsize=0) as bare,
        ):
            judge, way = Judge(link), other or partial(talk, bare)
            pieces = [slice(at, at + PIECE) for at in range(0, len(corpus), PIECE)]
            try:
                yield Ways(
                    [partial(judged, judge, corpus[piece]) for piece in pieces],
                    [partial(way, asked[piece]) for piece in pieces],
                    len(corpus),
                )
            finally:
                bare.kill()


OURS = "the cases of certify judged: files placed and checked, answers compared, limits watched"
ROWS = (
    Row(
        "runner-pipe", OURS, "the same lines written and read in a bare loop",
        "cases", 1 / 3, lambda: judging(None), no_compiler,
    ),
    Row(
        "runner-spawn", OURS, "the same reader started for each case, its lines piped in",
        "cases", 8.0, lambda: judging(spawn), no_compiler,
    ),
)  # fmt: skip
