"""Real programs that die in the way of their language: each is a crash, shown with the line that names it.

Law: the uncaught exceptions of Python, Node and Java exit with 1, as a refusal does, and are none. A refusal of the same language,
in words that sound like a crash, stays a refusal. A language whose compiler is absent is skipped; `tests/test_command.py` has
texts of each that always run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from cmfspec.contract.outcome import Crash
from runner.driver import Command, Limits


class Language(NamedTuple):
    """source: a program that dies when its argument's file is empty, else refuses it; build, run: command lines with {src} and
    {exe}; quote: what the outcome shows of the death; memory: the limit, for sanitizers reserve much."""

    source: str
    build: str
    run: str
    quote: str
    memory: int | None = Limits.memory


C = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <assert.h>
#include <limits.h>
int main(int argc, char **argv) {{
    FILE *f = fopen(argv[argc - 1], "rb");
    int n = fgetc(f) == EOF ? argc : 0;
    if (!n) {{ fputs("r: panic: fatal error: this file is no CMF file\\n", stderr); return 1; }}
    {vice}
    return 0;
}}
"""
CPP = """#include <cstdio>
#include <stdexcept>
int main(int argc, char **argv) {
    FILE *f = std::fopen(argv[argc - 1], "rb");
    if (std::fgetc(f) != EOF) { std::fputs("r: uncaught trouble: no CMF file\\n", stderr); return 1; }
    throw std::runtime_error("bad file");
}
"""
RUST = """use std::{env, fs, process};
fn main() {
    let bytes = fs::read(env::args().last().unwrap()).unwrap();
    if !bytes.is_empty() { eprintln!("error: thread of the tale: panicked is no word"); process::exit(1); }
    println!("{}", bytes[bytes.len()]);
}
"""
GO = """package main
import ("fmt"; "os")
func main() {
    content, _ := os.ReadFile(os.Args[len(os.Args)-1])
    if len(content) > 0 { fmt.Fprintln(os.Stderr, "panic: no, only a refusal"); os.Exit(1) }
    fmt.Println(content[len(content)])
}
"""
JAVA = """import java.nio.file.*;
public class Main {
    public static void main(String[] words) throws Exception {
        byte[] content = Files.readAllBytes(Path.of(words[words.length - 1]));
        if (content.length > 0) { System.err.println("error: BoundsException in dir"); System.exit(1); }
        System.out.println(content[content.length]);
    }
}
"""
NODE = """const content = require("fs").readFileSync(process.argv.at(-1));
if (content.length > 0) { console.error("RangeError: no, a refusal"); process.exit(1); }
content.nowhere.at(0);
"""
PYTHON = """import sys
content = open(sys.argv[-1], "rb").read()
if content:
    sys.exit("ValueError: said by a refusal")
content[0]
"""
LANGUAGES = {
    "gcc-asan": Language(
        C.format(vice="char *p = malloc(n); free(p); memset(p, n, 1); printf(\"%d\", *p);"),
        "gcc -g -fsanitize=address -o {exe} {src}.c", "{exe}", "ERROR: AddressSanitizer: heap-use-after-free", None,
    ),
    "gcc-ubsan": Language(
        C.format(vice="int big = INT_MAX - 1 + n; printf(\"%d\", big + n);"),
        "gcc -g -fsanitize=undefined -fno-sanitize-recover=all -o {exe} {src}.c", "{exe}",
        "runtime error: signed integer overflow", None,
    ),
    "gcc-assert": Language(
        C.format(vice="assert(n == 0);"), "gcc -o {exe} {src}.c", "{exe}", "Assertion `n == 0' failed."
    ),
    "gcc-double-free": Language(
        C.format(vice="char *p = malloc(n); char *volatile q = p; free(p); free(q);"),
        "gcc -w -O0 -o {exe} {src}.c", "{exe}", "free(): double free",
    ),
    "g++-throw": Language(CPP, "g++ -o {exe} {src}.cc", "{exe}", "terminate called after throwing an instance of"),
    "rustc": Language(RUST, "rustc -o {exe} {src}.rs", "{exe}", "panicked at"),
    "go": Language(GO, "go build -o {exe} {src}.go", "{exe}", "panic: runtime error: index out of range"),
    "java": Language(JAVA, "javac -d {dir} {src}.java", "java -cp {dir} Main", 'Exception in thread "main"'),
    "node": Language(NODE, "", "node {src}.js", "TypeError: Cannot read properties of undefined"),
    "node-error": Language(
        NODE.replace("content.nowhere.at(0)", 'throw new Error("bad file")'), "", "node {src}.js", "Error: bad file"
    ),
    "node-promise": Language(
        NODE.replace("content.nowhere.at(0)", "Promise.reject(5)"), "", "node {src}.js", "UnhandledPromiseRejection"
    ),
    "node-text": Language(
        NODE.replace("content.nowhere.at(0)", 'throw "bad file"'), "", "node {src}.js", "bad file"
    ),
    "python-group": Language(
        PYTHON.replace("content[0]", "raise ExceptionGroup('bad', [ValueError('file')])"),
        "", f"{sys.executable} -I -S {{src}}.py", "ExceptionGroup: bad (1 sub-exception)",
    ),
    "python": Language(PYTHON, "", f"{sys.executable} -I -S {{src}}.py", "IndexError: index out of range"),
}  # fmt: skip


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Language:
    """The language's program, built; `run` is how to run it."""
    language = LANGUAGES[request.param]
    places = {"dir": str(tmp_path), "src": str(tmp_path / "Main"), "exe": str(tmp_path / "program")}
    build, run = (text.format(**places).split() for text in (language.build, language.run))
    for words in filter(None, (build, run)):
        if not shutil.which(words[0]) and words[0] != places["exe"]:
            pytest.skip(f"no {words[0]}")
    ending = next(word for word in (*build, *run) if word.startswith(f"{places['src']}.")).rpartition(".")[2]
    (tmp_path / f"Main.{ending}").write_text(language.source)
    if build:
        made = subprocess.run(build, capture_output=True, text=True, env={**os.environ, "GOCACHE": f"{tmp_path}/cache"})
        if made.returncode and "sanitize" in language.build and "cannot find" in made.stderr:
            pytest.skip(f"no library for {language.build}")
        assert made.returncode == 0, made.stderr
    return language._replace(run=" ".join(run))


@pytest.mark.parametrize("program", LANGUAGES, indirect=True)
def test_a_death_is_a_crash_with_its_line_and_a_refusal_is_not(program: Language) -> None:
    with closing(Command({"open": f"{program.run} {{file}}"}, Limits(memory=program.memory))) as reader:
        with pytest.raises(Crash) as caught:
            reader.ask("open", reader.place(b""))
        assert program.quote in caught.value.got
        reply = reader.ask("open", reader.place(b"not empty"))
        assert reply.status == "refused"
