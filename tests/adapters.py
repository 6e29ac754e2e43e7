"""The adapters that come with the suite, built when a test first needs one.

Law: what is missing on this machine (a compiler, the registry) skips with a line that names it; whatever else goes wrong
while building fails.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent / "runner" / "adapters"
# What cargo says when it can't reach the registry; a lock file or a source that is wrong is none of these.
UNREACHABLE = ("Could not resolve", "Could not connect", "Failed to connect", "Couldn't connect", "network failure", "timed out")  # fmt: skip


@dataclass(frozen=True)
class Build:
    """How an adapter is built, in its folder. fetch: what needs the network, if anything; binary: what comes of it."""

    tool: str
    steps: tuple[tuple[str, ...], ...]
    binary: str
    fetch: tuple[str, ...] = ()


BUILDS = {
    "c": Build("cc", (("make", "-s"),), "cmfreader"),
    "rust": Build(
        "cargo",
        (("cargo", "build", "--quiet", "--release", "--locked", "--offline"),),
        "target/release/cmfreader-rust",
        fetch=("cargo", "fetch", "--quiet", "--locked"),
    ),
}


@cache
def built(name: str) -> Path:
    """The adapter's binary, made if it isn't up to date. Skips where it can't be built here."""
    build, folder = BUILDS[name], HOME / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    if not shutil.which(build.tool):
        pytest.skip(f"the {name} adapter: no {build.tool} on this machine")
    with _alone(folder):
        if build.fetch:
            _fetched(name, build.fetch, folder)
        for step in build.steps:
            subprocess.run(step, cwd=folder, check=True)
    return folder / build.binary


def _fetched(name: str, command: tuple[str, ...], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        cause = [line.strip() for line in done.stderr.splitlines() if any(said in line for said in UNREACHABLE)]
        if not cause:
            pytest.fail(f"{' '.join(command)}: {done.stderr}", pytrace=False)
        pytest.skip(f"the {name} adapter: the registry can't be reached: {cause[0]}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time builds in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
