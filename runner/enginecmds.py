"""`cmfspec logits`, `ppl`, `generate` and `route`: a model, for whoever has its file in hand.

Law: 0 done, 1 the file is refused, 2 the request has no answer, 3 the output can't be written. What was asked for goes to
stdout or to the file that is named; remarks, refusals and rates go to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import cmfspec
from cmfspec.engine import Drafts, Model, load
from cmfspec.engine.perplexity import likelihood
from cmfspec.engine.routing import route
from cmfspec.engine.text import pieces, tokenizer_of
from cmfspec.errors import Refusal, Unanswerable
from cmfspec.format.container import Container
from runner.exits import EXIT_BROKEN, EXIT_FAILED
from runner.filecmds import refused, show_faults
from runner.tensorcmd import output_path, replacing
from runner.terminal import safe

KEPT = "\n\t\u200c\u200d"  # not printable, and harmless: joiners are part of words and of emoji


def logits_command(file: str, tokens: str, out: str, rows: Any, task: str | None, skills: tuple[str, ...]) -> int:
    """`cmfspec logits`: the exit code."""
    target, ids, stdout = output_path(out, file), _ids(tokens), sys.stdout.buffer

    def work(_: Container, model: Model) -> int:
        found = model.logits(ids, rows=rows, task=task, skill=_skill(skills))
        stream = io.BytesIO()
        np.save(stream, found, allow_pickle=False)
        try:
            if target is None:
                stdout.write(stream.getvalue())
                stdout.flush()
            else:
                with replacing(target) as written:
                    written.write(stream.getvalue())
        except OSError as error:
            print(f"{safe(out)}: {error.strerror or error}")
            return EXIT_BROKEN
        print(f"{safe(file)}: float32 {list(found.shape)}, highest of the last row: {int(found[-1].argmax())}")
        return 0

    return _with_model(file, work)


def ppl_command(
    file: str,
    text: str | None,
    tokens: str | None,
    window: int | None,
    stride: int | None,
    task: str | None,
    skills: tuple[str, ...],
    as_json: bool,
) -> int:
    """`cmfspec ppl`: the exit code."""
    if (text is None) == (tokens is None):
        raise click.UsageError("give the text with --text, or its ids with --tokens: one of the two")
    words = None if text is None else _read(text)
    given = None if tokens is None else _ids(tokens)
    stdout = sys.stdout

    def work(opened: Container, model: Model) -> int:
        ids = tokenizer_of(opened).encode(words).ids if words is not None else given or []
        found = likelihood(model, ids, window, stride, task, _skill(skills))
        ppl = found.perplexity
        if as_json:
            ways = {"nll": found.nll, "tokens": found.count, "window": found.window, "stride": found.stride}
            json.dump({"file": file, "ppl": ppl if math.isfinite(ppl) else None, **ways}, stdout)
            print(file=stdout)
        else:
            how = f"NLL {found.nll:.6g} over {found.count:,} tokens, window {found.window}, stride {found.stride}"
            print(f"{safe(file)}: PPL {ppl:.6g} ({how})", file=stdout)
        return 0

    return _with_model(file, work)


def route_command(file: str, text: str | None, tokens: str | None, task: str | None, as_json: bool) -> int:
    """`cmfspec route`: the exit code."""
    if (text is None) == (tokens is None):
        raise click.UsageError("give the text with --text, or its ids with --tokens: one of the two")
    words = None if text is None else _read(text)
    given = None if tokens is None else _ids(tokens)
    stdout = sys.stdout

    def work(opened: Container, model: Model) -> int:
        ids = tokenizer_of(opened).encode(words).ids if words is not None else given or []
        found = route(model, ids, task)
        if as_json:
            ranked = [{"skill": identity, "energy": energy} for identity, energy in found]
            json.dump({"file": file, "skills": ranked}, stdout)
            print(file=stdout)
        else:
            for identity, energy in found:
                print(f"{energy:.6f}  {safe(identity)}", file=stdout)
        return 0

    return _with_model(file, work)


def generate_command(
    file: str,
    prompt: str | None,
    tokens: str | None,
    max_new: int,
    temperature: float,
    top_p: float,
    seed: int,
    mtp: bool,
    task: str | None,
    skills: tuple[str, ...],
) -> int:
    """`cmfspec generate`: the exit code. Text for a prompt, ids for ids."""
    if (prompt is None) == (tokens is None):
        raise click.UsageError("give the text with --prompt, or its ids with --tokens: one of the two")
    given = None if tokens is None else _ids(tokens)
    stdout = sys.stdout

    def work(opened: Container, model: Model) -> int:
        tokenizer = tokenizer_of(opened) if prompt is not None else None
        ids = tokenizer.encode(prompt).ids if tokenizer else given or []
        drafts = Drafts() if mtp else None
        times = [time.perf_counter()]
        options = {"temperature": temperature, "top_p": top_p, "seed": seed, "mtp": drafts, "task": task}
        new = _timed(model.generate(ids, max_new, skill=_skill(skills), **options), times)  # type: ignore[arg-type]
        texts = pieces(tokenizer, new) if tokenizer else (f"{token} " for token in new)
        try:
            for piece in texts:
                _say(stdout, piece)
            _say(stdout, "\n")
        except BrokenPipeError:  # whoever read it has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())  # or Python's own last flush complains
            return EXIT_BROKEN
        print(_rates(len(ids), times, drafts))
        return 0

    return _with_model(file, work)


def _with_model(file: str, work: Callable[[Container, Model], int]) -> int:
    """Open, load and work; whatever is printed meanwhile is a remark. Raises click.UsageError for a request in vain."""
    with contextlib.redirect_stdout(sys.stderr), _remarks():
        try:
            opened = cmfspec.open(file)
        except Refusal:
            return refused(file, as_json=False)
        try:
            return work(opened, load(opened))
        except Unanswerable as error:
            fault = error.fault
            raise click.UsageError(safe(f"{fault.field}: found {fault.found}, wanted {fault.wanted}")) from None
        except Refusal as error:
            show_faults(safe(file), [error.fault])
            return EXIT_FAILED


@contextlib.contextmanager
def _remarks() -> Iterator[None]:
    """What the engine warns of goes to stderr, a line each."""
    log, listener = logging.getLogger("cmfspec"), logging.StreamHandler(sys.stderr)
    listener.setFormatter(logging.Formatter("cmfspec: warning: %(message)s"))
    log.addHandler(listener)
    try:
        yield
    finally:
        log.removeHandler(listener)


def _ids(tokens: str) -> list[int]:
    """`3,5,9`. Raises click.UsageError."""
    found = []
    for place, word in enumerate(tokens.split(",")):
        if not (word.strip().isascii() and word.strip().isdecimal() and len(word) < 20):
            raise click.UsageError(f"--tokens: item {place + 1} is {safe(word[:40])!r}, wanted ids such as 3,5,9")
        found.append(int(word))
    return found


def _skill(skills: tuple[str, ...]) -> str | dict[str, float] | None:
    """One id, or several `ID=WEIGHT`. Raises click.UsageError."""
    if len(skills) < 2:
        return skills[0] if skills else None
    blend: dict[str, float] = {}
    for one in skills:
        identity, _, weight = one.rpartition("=")
        try:
            blend[identity] = float(weight)
        except ValueError:
            identity = ""
        if not identity:
            raise click.UsageError(f"--skill {safe(one)}: several skills are a blend, each ID=WEIGHT")
    return blend


def _read(text: str) -> str:
    """The text of a file, - for stdin. Raises click.UsageError."""
    try:
        raw = sys.stdin.buffer.read() if text == "-" else Path(text).read_bytes()
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        found = raw[error.start : error.start + 4].hex(" ")
        raise click.UsageError(f"--text {safe(text)}, line {line}: found bytes {found}, wanted UTF-8") from None
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--text {safe(text)}: {getattr(error, 'strerror', None) or error}") from None


def _timed(tokens: Iterator[int], times: list[float]) -> Iterator[int]:
    for token in tokens:
        times.append(time.perf_counter())
        yield token


def _say(stdout: Any, piece: str) -> None:
    """A piece of a model's text: lines are lines, escape sequences are shown."""
    text = "".join(char if char in KEPT else safe(char) for char in piece)
    encoding = stdout.encoding or "utf-8"
    stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stdout.flush()


def _rates(prompt: int, times: list[float], drafts: Drafts | None) -> str:
    """In words: tokens a second, the first one apart, since it waits for the prompt."""
    new = len(times) - 1
    said = f"{prompt:,} tokens of prompt, {new:,} new"
    if new:
        said += f"; the first after {times[1] - times[0]:.2f} s"
    if new > 1:
        said += f", then {(new - 1) / max(times[-1] - times[1], 1e-9):.1f} tokens/s"
    if drafts is not None:
        said += f"; {drafts.accepted} of {drafts.proposed} drafts accepted"
    return said
