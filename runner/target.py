"""Whom to judge: from the options that name implementations to links.

Law: a target can be named again on a command line (`command`), and the files that it consists of are known by their
SHA-256, so that one run is not taken for the continuation of another.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from cmfspec.codecs import CODECS
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.link import Link
from cmfspec.contract.protocol import Hello
from cmfspec.contract.reference import reference
from cmfspec.layout import IMPLEMENTED_FEATURES
from runner.command import Command, files_of
from runner.driver import Limits, Process

ARGV_CAP = 12  # cases of a rule that a command which starts anew for each question is asked
ARTIFACTS = 64  # files that are hashed
LARGEST = 1 << 30  # bytes of one


@dataclass(frozen=True)
class Target:
    """Whom to judge. name: for people; command: the options that name it again; new_link: makes a link to it; files: those
    that its command line names."""

    name: str
    command: str
    new_link: Callable[[], Link]
    outside: bool
    spawns: bool = False
    files: tuple[str, ...] = ()

    @property
    def rerun(self) -> str:
        """The command that asks one case again, with `{case}` in it."""
        return f"cmfspec run {self.command} -k {{case}}".replace("  ", " ")


def targets_of(options: dict[str, Any]) -> tuple[Target, ...]:
    """The implementations that the options name, at least one, each once. Raises click.UsageError."""
    named, argv = options.pop("impl"), options.pop("argv")
    impls = (named,) if isinstance(named, str) else tuple(named or ())
    refuse, features, dtypes = options.pop("refuse_exit"), options.pop("feature"), options.pop("dtype")
    limits = _limits(options.pop("timeout_scale"), options.pop("mem_limit"))
    if impls and argv:
        raise click.UsageError("--impl and --argv name two implementations; give one of them")
    if impls:
        twice = next((impl for impl in impls if impls.count(impl) > 1), None)
        if twice is not None:
            raise click.UsageError(f"--impl {twice!r} is given twice")
        return tuple(_adapter(impl, limits) for impl in impls)
    if argv:
        templates = dict(_template(entry) for entry in argv)
        settings: dict[str, Any] = {
            "refuse_exit": set(refuse) or {1},
            "features": features or IMPLEMENTED_FEATURES,
            "dtypes": dtypes or tuple(CODECS),
        }
        command = " ".join(f"--argv {shlex.quote(entry)}" for entry in argv)
        try:
            Command(templates, limits, **settings).close()
        except ValueError as error:
            raise click.UsageError(f"--argv: {error}") from None
        return (Target(command, command, lambda: Command(templates, limits, **settings), outside=True, spawns=True),)
    return (Target("the embedded reference", "", lambda: InProcess(reference()), outside=False),)


def target_of(options: dict[str, Any]) -> Target:
    """The one implementation that the options name. Raises click.UsageError."""
    targets = targets_of(options)
    if len(targets) > 1:
        raise click.UsageError("--impl: only one implementation here")
    return targets[0]


def artifacts(target: Target, hello: Hello | None) -> dict[str, str]:
    """Path to SHA-256 of the files that the command line and the hello name. What is no regular file, or is too large, is
    left out: a hello may name anything."""
    named = dict.fromkeys((*target.files, *(hello.artifacts if hello else ())))
    return {path: digest for path in [*named][:ARTIFACTS] if (digest := _sha256(path))}


def _adapter(impl: str, limits: Limits) -> Target:
    try:
        words = shlex.split(impl)
    except ValueError as error:
        raise click.UsageError(f"--impl {impl!r}: {error}") from None
    if not words:
        raise click.UsageError("--impl names no command")
    files = tuple(files_of([words]))
    return Target(impl, f"--impl {shlex.quote(impl)}", lambda: Process(words, limits), outside=True, files=files)


def _template(entry: str) -> tuple[str, str]:
    op, equals, command = entry.partition("=")
    if not equals:
        raise click.UsageError(f"--argv {entry!r}: wanted OP=CMD, such as open='./r {{file}}'")
    return op.strip(), command


def _limits(scale: float, memory: str) -> Limits:
    if memory.lower() == "none":
        return Limits(seconds=Limits.seconds * scale, memory=None)
    if not memory.isdecimal():
        raise click.UsageError(f"--mem-limit {memory!r}: wanted a number of MiB, or none")
    return Limits(seconds=Limits.seconds * scale, memory=int(memory) << 20)


def _sha256(path: str) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return None
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None
