"""What the last words on stderr say about a death.

Law: stderr is never a verdict on a file. It names the cause of a death that happened, and tells an uncaught exception
(which exits 1, as a refusal of a command does) from a refusal. A pattern quotes one line.
"""

from __future__ import annotations

import re

WIDTH = 300

MEMORY = (
    r"^.*\bbad_alloc\b.*$",
    r"^MemoryError\b.*$",
    r"^memory allocation of \d+ bytes failed.*$",
    r"^.*\b[Oo]ut of memory\b.*$",
    r"^.*Cannot allocate memory.*$",
    r"^.*OutOfMemory(?:Error|Exception)?\b.*$",
    r"^.*Sanitizer: (?:requested )?allocation.size.too.big.*$",
    r"^.*Sanitizer failed to allocate .*$",
)
"""Out of memory: C++, Python, Rust; Go, Node, ASan; strerror(ENOMEM); Java, .NET, Zig; ASan's own limit, its shadow."""

CRASHES = (
    r"^.*(?:ERROR|WARNING): \w+Sanitizer: .*$",
    r"^.+:\d+:\d+: runtime error: .*$",
    r"^.*UndefinedBehaviorSanitizer: .*$",
    r"^thread '.*' (?:\(\d+\) )?(?:panicked at .*|has overflowed its stack)$",
    r"^thread \d+ panic: .*$",
    r"^(?P<line>(?:panic|fatal error): .*)\n(?:.*\n){0,8}?(?:goroutine \d+ |runtime stack:).*$",
    r"^.*terminat(?:e called|ing due to|ing with) .*$",
    r"^.*: Assertion [`'].*' failed\.?$",
    r"^\*\*\* .+ \*\*\*: terminated$",
    r"^(?:double free|free\(\): |malloc\(\): |realloc\(\): |munmap_chunk\(\): |corrupted (?:size|double)).*$",
    r"^Exception in thread \".*\" .*$",
    r"^Error: (?:Could not find or load main class|Unable to access jarfile|A JNI error) .*$",
    r"^# A fatal error has been detected by the Java Runtime.*$",
    r"^Unhandled [Ee]xception.*$",
    r"^Fatal Python error: .*$",
    r"^Traceback \(most recent call last\):\n(?:(?:[ \t].*)?\n)*(?P<line>\S.*)$",
    r"^ +\+ Exception Group Traceback \(most recent call last\):\n(?: +\|   .*\n)* +\| (?P<line>\S.*)$",
    r"^  File \".*\", line \d+\n(?:    .*\n){0,3}(?P<line>(?:Syntax|Indentation|Tab)Error: .*)$",
    r"^.*Uncaught .*$",
    r"^(?P<line>(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b.*)\n(?:.*\n){0,8}?[ \t]+at .*$",
    r"^(?P<line>(?:Error\b|UnhandledPromiseRejection\b|[A-Z]\w* \[\w+\]).*)\n(?:.*\n){0,8}?[ \t]+at .*:\d+:\d+\)?$",
    r"^(?P<line>.*)\n\(Use `node --trace-uncaught .*$",
    r"^.*\.swift:\d+: Fatal error: .*$",
    r"^Fatal error: exception .*$",
)
"""Sanitizers; UBSan without its prefix; Rust, Zig, Go; C++, assert, glibc's checks; Java and its launcher, the
JVM, .NET; Python (its last line is the exception; a group; a script that doesn't parse); Deno and Node; a JavaScript or Java
stack trace, a plain `Error` of Node, a thrown text; Swift, OCaml. A word that a refusal may also use («fatal error», «panic»,
«Error») needs the stack trace that follows it."""

_MEMORY = tuple(re.compile(pattern, re.MULTILINE) for pattern in MEMORY)
_CRASHES = tuple(re.compile(pattern, re.MULTILINE) for pattern in CRASHES)


def memory_text(stderr: str) -> str:
    """The line that says that memory ran out, or nothing."""
    return _first(_MEMORY, stderr)


def crash_text(stderr: str) -> str:
    """The line that names a panic, an uncaught exception or a sanitizer's finding, or nothing."""
    return _first(_CRASHES, stderr)


def _first(patterns: tuple[re.Pattern[str], ...], stderr: str) -> str:
    text = stderr.replace("\r", "")
    for pattern in patterns:
        found = pattern.search(text)
        if found:
            return (found.groupdict().get("line") or found[0]).strip()[:WIDTH]
    return ""
