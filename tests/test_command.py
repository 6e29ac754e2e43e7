"""A reader that is only a command, and commands that cannot be executed.

Law: the exit code is the answer, except where the last words on stderr are those of a crash.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cmfspec.contract.link import Link
from cmfspec.contract.outcome import Crash, NotApplicable, Outcome, Resource, Timeout
from cmfspec.contract.protocol import Opened, Verified
from runner.crashtext import crash_text, memory_text
from runner.driver import CannotStart, Command, Limits, Process

HOSTILE = Path(__file__).parent / "hostile"
PYTHON = (sys.executable, "-I", "-S")
MIB = 1 << 20
QUICK = Limits(seconds=0.4)
LONG = Limits(seconds=20.0)
TIGHT = Limits(seconds=10.0, scratch=4 * MIB)


CANNOT = [
    ("nowhere", None, 0, "No such file"),
    ("forbidden", b"#!/bin/sh\n", 0o644, "Permission denied"),
    ("no_program", b"\x00\x01\x02\x03", 0o755, "Exec format error"),
    ("no_interpreter", b"#!/no/such/thing\n", 0o755, "its interpreter is not"),
]


@pytest.mark.parametrize(("name", "content", "mode", "text"), CANNOT, ids=[row[0] for row in CANNOT])
def test_a_command_that_cannot_be_executed_is_no_outcome(
    tmp_path: Path, name: str, content: bytes | None, mode: int, text: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with closing(Process([str(path)])) as process, pytest.raises(CannotStart, match=text):
        process.ask("ping")
    with closing(Command({"open": f"{path} {{file}}"})) as command, pytest.raises(CannotStart, match=text):
        command.ask("open")
    assert not issubclass(CannotStart, Outcome)


def test_a_name_without_a_slash_is_looked_up_in_the_path() -> None:
    with closing(Process(["cmfspec-no-such-command"])) as process, pytest.raises(CannotStart):
        process.start()
    with closing(Process(["true"])) as process, pytest.raises(Crash):
        process.start()


def command(mode: str, **more: Any) -> Command:
    call = f"{' '.join(PYTHON)} {HOSTILE / 'verdict.py'} {mode}"
    templates = {
        "open": f"{call} {{file}}",
        "verify": f"{call} {{file}}",
        "tensor": f"{call} {{file}} {{index}} {{out}}",
    }
    return Command(templates, more.pop("limits", LONG), dtypes=[0, 1], **more)


def test_a_command_accepts_with_exit_0_and_refuses_with_exit_1() -> None:
    with closing(command("accept")) as reader:
        link: Link = reader
        file = link.place(b"file")
        assert link.hello.operations == ["hello", "ping", "bye", "open", "verify", "tensor"]
        assert (link.hello.kinds, link.hello.features, link.hello.dtypes) == (False, [0, 1, 2, 6], [0, 1])
        assert str(HOSTILE / "verdict.py") in link.hello.artifacts
        assert link.ask("open", file).value == Opened()
        assert link.ask("verify", file).value == Verified(sound=True)
        assert link.ask("tensor", file, index=3, form="f32", out=(out := link.new_out())).status == "ok"
        assert Path(out).read_bytes() == b"\x00\x00\x40\x40"
        assert link.ask("header", file, out=link.new_out()).status == "unsupported"
        assert [link.ask(op).status for op in ("ping", "bye")] == ["ok", "ok"]
        with pytest.raises(NotApplicable):
            link.ask("tensor", file, index=3, form="raw", out=link.new_out())
        link.settle()
        assert not os.path.exists(out)
    with closing(command("refuse")) as reader:
        reply = reader.ask("open", reader.place(b""))
        assert (reply.status, reply.kind, reply.message) == ("refused", "Other", "this is not a file for me")
        assert reader.ask("verify").value == Verified(sound=False)
        assert reader.transcript[-1][1] == "exited with 1"
    with closing(command("exit3", refuse_exit={3, 4})) as reader:
        assert reader.ask("open").status == "refused"


COMMANDS = [
    ("exit3", LONG, Crash, "exited with 3 to `open`"),
    ("raises", LONG, Crash, "exited with 1 to `open`: ValueError: boom"),
    ("segv", LONG, Crash, "killed by SIGSEGV"),
    ("hang", QUICK, Timeout, "within 0.4 s"),
    ("fill", TIGHT, Resource, "scratch folder"),
]


@pytest.mark.parametrize(("mode", "limits", "outcome", "text"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_command_that_does_anything_else_has_its_outcome(
    mode: str, limits: Limits, outcome: type[Outcome], text: str
) -> None:
    with closing(command(mode, limits=limits)) as reader:
        with pytest.raises(outcome, match=text) as caught:
            reader.ask("open", reader.place(b""))
        assert caught.value.stderr == reader.stderr_tail()


def test_a_command_may_say_much() -> None:
    with closing(command("chatter")) as reader:
        assert reader.ask("open").status == "ok"


def test_a_command_leaves_nobody_behind() -> None:
    with closing(command("stray")) as reader:
        file = reader.place(b"")
        assert reader.ask("open", file).status == "ok"
        assert not os.path.exists(f"/proc/{int(Path(file).read_text())}")


def test_a_template_is_words_and_no_shell() -> None:
    with closing(Command({"open": "test '{file}' = \"/a;b $HOME\""})) as reader:
        assert reader.ask("open", "/a;b $HOME").status == "ok"
    for templates in ({}, {"hash64": "sha256sum"}, {"open": ""}):
        with pytest.raises(ValueError, match=r"asked|empty"):
            Command(templates)


CRASHES = [
    ("thread 'main' (71) panicked at src/main.rs:2:5:\nbad index", "thread 'main' (71) panicked at src/main.rs:2:5:"),
    ("panic: bad index [5]\n\ngoroutine 1 [running]:\nmain.main()", "panic: bad index [5]"),
    ('Exception in thread "main" java.lang.StateException: x\n\tat A.main(A.java:3)', 'Exception in thread "main"'),
    ("/a.js:1\nthrow new Error('x')\n^\n\nTypeError: x is not\n    at f (/a.js:1:7)\n", "TypeError: x is not"),
    (
        "/a.js:1\nthrow new Error('x')\n^\n\nError: bad file\n    at Object.<anonymous> (/a.js:1:7)\n\nNode.js v20.20.2",
        "Error: bad file",
    ),
    ("\nFoo [Error]: x\n    at Object.<anonymous> (/a.js:1:35)\n", "Foo [Error]: x"),
    (
        "Error: Cannot find module 'x'\nRequire stack:\n- /a.js\n    at Module._load (node:internal/modules/cjs/loader:1038:27)",
        "Error: Cannot find module 'x'",
    ),
    ("/a.js:1\nthrow 'text';\n^\ntext\n(Use `node --trace-uncaught ...` to show where)", "text"),
    (
        "UnhandledPromiseRejection: This error\n    at processPromiseRejections (node:internal/process/promises:470:17)",
        "UnhandledPromiseRejection: This error",
    ),
    ('  File "/a.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax', "SyntaxError: invalid syntax"),
    (
        '  + Exception Group Traceback (most recent call last):\n  |   File "/b.py", line 1, in <module>\n'
        "  |     raise E\n  | ExceptionGroup: x (1 sub-exception)\n  +-+------ 1 ------\n    | ValueError: bad",
        "ExceptionGroup: x (1 sub-exception)",
    ),
    ("thread 'main' (90) has overflowed its stack\nfatal runtime error", "thread 'main' (90) has overflowed its stack"),
    ("Error: Could not find or load main class Nope", "Error: Could not find or load main class Nope"),
    ("fatal error: stack overflow\n\nruntime stack:\nruntime.throw({0x46b9f2?})", "fatal error: stack overflow"),
    ("==7==ERROR: LeakSanitizer: detected memory leaks", "==7==ERROR: LeakSanitizer: detected memory leaks"),
    ("Traceback (most recent call last):\n  File \"a\", line 1, in <module>\nKeyError: 'x'\n", "KeyError: 'x'"),
    ("a.c:3:9: runtime error: signed integer overflow", "a.c:3:9: runtime error: signed integer overflow"),
    ("r: a.c:3: main: Assertion `x' failed.", "r: a.c:3: main: Assertion `x' failed."),
    ("free(): invalid pointer", "free(): invalid pointer"),
    ("Unhandled exception. System.IndexOutOfRangeException: x", "Unhandled exception."),
]
REFUSALS = [
    "fatal error: bad magic",
    "panic: no",
    "error: BoundsError in dir",
    "r: runtime error: not a CMF file",
    "Uncaughtable",
    "Error: bad magic\n    at offset 4",
    'Error: "bad file"',
    "Error: no",
    '  File "a.cmf", line 1\nis no CMF file',
]
OUT_OF_MEMORY = [
    "fatal error: runtime: out of memory",
    "java.lang.OutOfMemoryError: Java heap space",
    "MemoryError",
    "memory allocation of 17 bytes failed",
    "r: mmap: Cannot allocate memory",
    "==7==ERROR: AddressSanitizer failed to allocate 0xdfff0001000 (15392894357504) bytes at address 2008fff7000",
]


def test_the_text_of_a_crash_is_recognised_and_a_refusal_is_not_taken_for_one() -> None:
    for text, quote in CRASHES:
        assert crash_text(f"loading\n{text}\n").startswith(quote)
    assert [crash_text(text + "\n") for text in REFUSALS] == [""] * len(REFUSALS)
    assert [memory_text(f"x\n{text}\ny") for text in OUT_OF_MEMORY] == OUT_OF_MEMORY


def test_no_text_makes_the_search_slow() -> None:
    """Each of these is the worst for one of the patterns; a quadratic one would take minutes."""
    for text in (
        "x" * 65536,
        "TypeError: \n" * 6000,
        "Traceback (most recent call last):\n" * 2000,
        "panic: \n" * 8000,
        "Error: \n" * 8000,
        "  + Exception Group Traceback (most recent call last):\n" * 1000,
        '  File "a", line 1\n' * 4000,
    ):
        assert crash_text(text) == memory_text(text) or text.startswith("Traceback")
