"""What is written appears complete or not at all: killed at every step, with a full disk at every step, and beside others."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cmfspec
from cmfspec.tools import output
from cmfspec.tools.output import appearing, target_of
from cmfspec.tools.pack import pack
from cmfspec.tools.unpackable import Unwritable
from tests import models

TINY = {**models.CONFIG, "num_hidden_layers": 1, "tie_word_embeddings": True}
SHARDED, SHARDS = 60_000, 3  # bytes of a shard as float32, and how many that makes
OLD = b"what was there before"


class Stepping:
    """A file whose every operation is a step; a write is two, with half of its bytes between them."""

    def __init__(self, stream: Any, step: Callable[[], None]) -> None:
        self.stream, self.step = stream, step

    def __enter__(self) -> Stepping:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stream.close()

    def write(self, data: Any) -> None:
        view = memoryview(data)
        self.step()
        self.stream.write(view[: len(view) // 2])
        self.stream.flush()
        self.step()
        self.stream.write(view[len(view) // 2 :])
        self.stream.flush()

    def seek(self, at: int) -> None:
        self.stream.seek(at)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return int(self.stream.fileno())


def stepping(patch: Callable[[Any, str, Any], None], step: Callable[[], None]) -> None:
    """Have `step` called before each write, sync, rename and removal of an output."""
    fdopen, replace, unlink = os.fdopen, Path.replace, Path.unlink

    def opened(handle: int, mode: str, *rest: Any, **more: Any) -> Any:
        stream = fdopen(handle, mode, *rest, **more)
        return Stepping(stream, step) if "+" in mode else stream

    def before(function: Any) -> Any:
        def stepped(*given: Any, **more: Any) -> Any:
            step()
            return function(*given, **more)

        return stepped

    patch(output.os, "fdopen", opened)
    patch(output.os, "fsync", before(lambda _: None))  # a kill can't tell, and a real one takes its time
    patch(Path, "replace", before(replace))
    patch(Path, "unlink", before(unlink))


def main(source: str, out: str, sharded: str) -> None:
    """Kill a run at its first step, another at its second, and so on, until one gets through; print what each left, and
    what a whole run after it did. Forked from here, since a start costs more than a run."""
    folder, limit = Path(out).parent, SHARDED if sharded == "1" else None
    for steps in range(1, 10_000):
        for name in os.listdir(folder):
            os.unlink(folder / name)
        for name in names(out, limit):
            Path(name).write_bytes(OLD)
        status = forked(lambda: dying(source, out, limit, steps))  # noqa: B023
        left = {name: read(folder / name) for name in sorted(os.listdir(folder))}
        print(steps, status, left, flush=True)
        if status == 0:
            return
        again = forked(lambda: (stepping(setattr, lambda: None), pack(source, out, "f16", limit)))
        print("again", again, {name: read(folder / name) for name in sorted(os.listdir(folder))}, flush=True)


def names(out: str, limit: int | None) -> list[str]:
    """Old files in the places of the new ones."""
    return [f"{out[:-4]}-{no:05}-of-{SHARDS:05}.cmf" for no in range(1, SHARDS + 1)] if limit else [out]


def read(path: Path) -> str:
    """What a file is: old, a whole container, or something else."""
    content = path.read_bytes()
    if content == OLD:
        return "old"
    try:
        return "whole" if not list(cmfspec.verify(cmfspec.open(content))) else "damaged"
    except cmfspec.Refusal:
        return "none"


def dying(source: str, out: str, limit: int | None, steps: int) -> None:
    """A run that is killed before its n-th step."""
    left = [steps]

    def step() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), 9)

    stepping(setattr, step)
    pack(source, out, "f16", limit)


def forked(work: Callable[[], Any]) -> int:
    """The status of a child that does that work."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # it must not return into its parent's code
            print(error, file=sys.stderr, flush=True)
            os._exit(7)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("sharded", [False, True], ids=["one file", "shards"])
def test_a_run_that_is_killed_anywhere_leaves_the_old_or_the_new(sharded: bool, tmp_path: Path) -> None:
    """And parts, which the next run takes away."""
    source, out = models.folder(tmp_path / "source", TINY), tmp_path / "out" / "m.cmf"
    out.parent.mkdir()
    script = f"from tests.test_output import main; main({str(source)!r}, {str(out)!r}, {'01'[sharded]!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    finals = [Path(name).name for name in names(str(out), SHARDED if sharded else None)]
    kills = [(int(status), eval(left)) for word, status, left in lines if word != "again"]  # noqa: S307  our own words
    assert len(kills) > 30
    assert [status for status, _ in kills[:-1]] == [9] * (len(kills) - 1)
    assert kills[-1] == (0, dict.fromkeys(finals, "whole"))
    for _, left in kills[:-1]:
        assert all(name.startswith(".m.cmf.part") for name in set(left) - set(finals))
        kinds = [left.get(name, "gone") for name in finals]
        assert set(kinds) <= {"old", "whole", "gone"}
        assert len(set(kinds)) == 1 or kinds[0] == "gone", kinds
        assert sharded or kinds != ["gone"]
    assert any("whole" in left.values() for _, left in kills[:-1]) or not sharded
    for word, status, left in lines:
        if word == "again":
            assert (status, eval(left)) == ("0", dict.fromkeys(finals, "whole"))  # noqa: S307


@pytest.mark.parametrize("sharded", [False, True], ids=["one file", "shards"])
def test_a_disk_that_is_full_at_any_moment_leaves_no_part(
    sharded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's own reason leaves; what stood there stays, unless all that was left to do is a rename or a sync."""
    source, out = models.folder(tmp_path / "source", TINY), tmp_path / "out" / "m.cmf"
    out.parent.mkdir()
    limit = SHARDED if sharded else None
    finals = [Path(name) for name in names(str(out), limit)]
    outcomes = []
    while not outcomes or outcomes[-1] != "done":
        for final in finals:
            final.write_bytes(OLD)
        left = [len(outcomes) + 1]

        def step() -> None:
            left[0] -= 1  # noqa: B023
            if left[0] == 0:  # noqa: B023
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            stepping(patch.setattr, step)
            try:
                pack(source, str(out), "f16", limit)
                outcomes.append("done")
            except OSError as error:
                assert error.errno == errno.ENOSPC
                there = sorted(out.parent.iterdir())
                assert set(there) <= set(finals)
                kinds = [read(final) for final in there]
                assert set(kinds) <= {"old", "whole"}
                assert (len(kinds) == len(finals) and len(set(kinds)) == 1) or finals[0] not in there
                outcomes.append("old" if set(kinds) == {"old"} else "late")
    assert outcomes.count("old") > 30
    assert outcomes.count("late") <= len(finals) + 2
    assert [read(final) for final in finals] == ["whole"] * len(finals)


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    """The second is told so, and the first goes on."""
    main_ = tmp_path / "m.cmf"
    with appearing(main_, ["m.cmf"]) as (opener,), opener() as stream:
        stream.write(b"first")
        with pytest.raises(Unwritable, match="another run that writes it"), appearing(main_, ["m.cmf"]):
            pass
        with appearing(tmp_path / "other.cmf", ["other.cmf"]) as (second,), second() as other:
            other.write(b"other")
    assert main_.read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == ["m.cmf", "other.cmf"]


def test_what_others_have_put_there_stays(tmp_path: Path) -> None:
    """Only parts of this very output are taken away."""
    strangers = [".m.cmf.part-x", ".m.cmf.part.1", "m.cmf.part-1", ".n.cmf.part-1", ".m.cmf"]
    for name in [*strangers, ".m.cmf.part", ".m.cmf.part-1", ".m.cmf.part-22"]:
        (tmp_path / name).write_bytes(OLD)
    with appearing(tmp_path / "m.cmf", ["m.cmf"]) as (opener,), opener() as stream:
        stream.write(b"new")
    assert sorted(os.listdir(tmp_path)) == sorted([*strangers, "m.cmf"])
    assert (tmp_path / "m.cmf").read_bytes() == b"new"


def test_an_output_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """No folder, a folder, a pipe, a file of the source, a link to it, and no name at all."""
    own = tmp_path / "config.json"
    own.write_text("{}")
    (tmp_path / "link").symlink_to(own)
    os.mkfifo(tmp_path / "fifo")
    for where, said in (
        (tmp_path / "nowhere" / "m.cmf", "no directory"), (tmp_path, "not a regular file"), (tmp_path / "fifo", "not a regular file"),
        (own, "a file of the source"), (tmp_path / "link", "a file of the source"), ("a\0b", "null"),
    ):  # fmt: skip
        with pytest.raises(Unwritable, match=said):
            target_of(str(where), [own])
    assert target_of(str(tmp_path / "m.cmf"), [own]) == tmp_path / "m.cmf"
