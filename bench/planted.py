"""Bugs planted in copies of the C adapter, to be found by `cmfspec fuzz` from the shipped seeds: `python -m bench.planted`.

Law: each bug is of a class of public reports and is one edit of a source file that must occur exactly once. The named
mutations of `fuzz/mutations` play no part in fuzzing; with `--strict` the structured ones of the bug's own fields are off
too. A find that the reader without the bug shows as well is no find. What is told is the median of some seeds of the time,
and the size of the minimal file; a bug that is not found in time is told as that.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent / "runner" / "adapters" / "c"
SOURCES = ("reader.c", "container.c", "payload.c", "json.c", "engine.c", "cmf.h", "Makefile")
ALIGNMENT = 4096


@dataclass(frozen=True)
class Bug:
    """name; reports: public ones of its class; source, old, new: the edit; without: fields that are left to havoc."""

    name: str
    reports: str
    source: str
    old: str
    new: str
    without: tuple[str, ...] = ()


BUGS: tuple[Bug, ...] = (
    Bug("shape-product-wraps", "llama.cpp#18674, candle#3714", "container.c",
        "if (*product > UINT64_MAX / shape[d]) return false;", "", ("shape0", "shape1", "ndim")),
    Bug("section-end-wraps", "llama.cpp#24759", "cmf.h",
        "return off <= size && len <= size - off;", "return off + len <= size;",
        tuple(f"{s}_{e}" for s in ("header", "dir", "data", "masks", "vocab", "index") for e in ("off", "len"))),
    Bug("ndim-unchecked", "ggml#709, gguf-tools#25", "container.c",
        'MUST(t->ndim <= 6, PARSE, "ndim above 6");', "", ("ndim",)),
    Bug("dtype-past-the-table", "ggml#709", "container.c",
        "MUST(t->dtype < DTYPES, PARSE", "MUST(t->dtype <= DTYPES, PARSE", ("dtype",)),
    Bug("zero-dimension-divides", "ggml#1517, llama.cpp#18586", "container.c",
        "for (unsigned d = 0; d < ndim && *product; d++) {",
        "volatile uint64_t most = UINT64_MAX;\n    for (unsigned d = 0; d < ndim; d++) {\n"
        "        if (*product > most / shape[d]) return false;", ("shape0", "shape1", "ndim")),
    Bug("alignment-unchecked", "candle#3876", "container.c",
        "MUST(le64(e + 0x30) % 4096 == 0", "MUST(le64(e + 0x30) % 64 == 0", ("data_off",)),
    Bug("name-length-unchecked", "ollama#17032", "container.c",
        'MUST(within(name_off, name_len, m->pool.len), BOUNDS, "a tensor\'s name is outside the pool");', "",
        ("name_off", "name_len")),
    Bug("count-drives-allocation", "ollama#17042, candle#3533", "container.c",
        "MUST(count <= (dir.len - DIR_HEAD) / RECORD,",
        'void *early = malloc(count * RECORD + 1);\n    MUST(early, FAULT, "out of memory");\n    free(early);\n'
        "    MUST(count <= (dir.len - DIR_HEAD) / RECORD,", ("dir.count",)),
    Bug("pool-upon-the-records", "ollama#17032", "container.c",
        "MUST(pool_off >= DIR_HEAD + RECORD * count && pool_off <= dir.len, BOUNDS", "MUST(pool_off <= dir.len, BOUNDS",
        ("dir.pool_off",)),
    Bug("clipped-slice", "ComfyUI#14989", "container.c",
        "MUST(within(off, len, m->file.len), BOUNDS, PAST_END[s]);",
        "if (!within(off, len, m->file.len)) len = off < m->file.len ? m->file.len - off : 0;",
        ("data_off", "data_len", "vocab_off", "vocab_len")),
    Bug("bytes-after-the-header", "modelaudit#1612, #1623", "json.c",
        'MUST(j->p == j->end, PARSE, "JSON: bytes after the value");', ""),
    Bug("duplicate-name", "llama.cpp#6836", "container.c",
        "MUST(compare_names(&index[i - 1], &index[i]) != 0, PARSE", "MUST(index, PARSE", ("name_off", "name_len")),
    Bug("names-compare-by-prefix", "mlx#943", "container.c",
        "return memcmp(x->at, y->at, x->len);", "return memcmp(x->at, y->at, x->len < 20 ? x->len : 20);"),
    Bug("empty-tensor-refused", "modelaudit#1607", "container.c",
        "MUST(t->off % 64 == 0, BOUNDS",
        'MUST(nbytes || t->ndim != 1, BOUNDS, "empty");\n    MUST(t->off % 64 == 0, BOUNDS', ("shape0", "nbytes")),
    Bug("size-not-by-shape", "mlx#3363, runai-model-streamer#121", "payload.c",
        "d->tail || t->data.len == head_size(d, t), BOUNDS",
        "d->tail || d->shape < MATRIX || t->data.len == head_size(d, t), BOUNDS",
        ("nbytes", "shape0", "shape1")),
    Bug("present-is-not-empty", "fastsafetensors#89", "container.c",
        "if (!hashes || *hashes == 'n') return;",
        'if (hashes && hashes[1] == \'}\') add(r, "section_hashes", "malformed", 0);\n'
        "    if (!hashes || *hashes == 'n') return;"),
    Bug("signed-length", "ollama#17032", "container.c",
        "MUST(within(t->off, nbytes, data.len), BOUNDS", "MUST((int64_t)(t->off + nbytes) <= (int64_t)data.len, BOUNDS",
        ("off", "nbytes")),
    Bug("narrow-offset", "llama.cpp#19856", "container.c",
        "off = le64(e + 0x10 + 16 * s), len", "off = le32(e + 0x10 + 16 * s), len",
        tuple(f"{s}_off" for s in ("header", "dir", "data", "masks", "vocab", "index"))),
    Bug("nibbles-swapped", "imp#567", "payload.c",
        "(nibbles[i / 2] >> i % 2 * 4 & 15)", "(nibbles[i / 2] >> (count == 32 ? i % 2 * 4 : 4 - i % 2 * 4) & 15)"),
    Bug("group-term-missing", "1bit-MONSTER#153", "payload.c",
        "half(scales + 2 * (at / GROUP))", "half(scales + 2 * (r * groups_a_row(t)))"),
    Bug("outlier-index-unchecked", "q1s, as llama.cpp#24759", "payload.c",
        "MUST(le32(overlay + 4 + 6 * k) < t->elements, BOUNDS",
        "MUST(le32(overlay + 4 + 6 * k) <= t->elements + count, BOUNDS"),
    Bug("row-pointers-unchecked", "row_ptr, as ollama#17042", "payload.c",
        'MUST(le32(pointers + 4 * r) <= le32(pointers + 4 * r + 4), PARSE, "row_ptr decreases");', "(void)pointers;"),
    Bug("width-seven", "GPTQModel#3058", "payload.c",
        "width >= 3 && width <= 8 && width != 7, PARSE", "width >= 3 && width <= 8, PARSE"),
    Bug("meta-length-unchecked", "ollama#17042 (G12)", "container.c",
        'MUST(meta.len <= s.len - MASKS_HEAD, BOUNDS, "the meta of masks is longer than the section");', "", ("meta_len",)),
    Bug("blob-length-unchecked", "arrow-rs#1231", "container.c",
        'MUST(within(field[0], field[1], section_len), BOUNDS, "a mask\'s blob is outside the section");',
        "(void)section_len;"),
    Bug("subnormal-scales", "flashinfer#2440", "payload.c",
        "for (exponent = 113; !(fraction & 0x400); exponent--) fraction <<= 1;", "return sign;"),
)  # fmt: skip


@dataclass(frozen=True)
class Hunt:
    """What came of one hunt. seconds, size: of the first find, None if there was none; outcome: of it."""

    bug: str
    seed: int
    seconds: float | None
    size: int | None
    outcome: str
    executions: int


def planted(bug: Bug, folder: Path) -> Path:
    """A copy of the adapter with the bug, built. Raises ValueError if the edit has not exactly one place."""
    for name in SOURCES:
        shutil.copy(HOME / name, folder / name)
    path = folder / bug.source
    text = path.read_text("utf-8")
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.source} has {text.count(bug.old)} places for the edit, wanted 1")
    path.write_text(text.replace(bug.old, bug.new), "utf-8")
    subprocess.run(["make", "-s", "WARN=-std=c11 -w"], cwd=folder, check=True)  # noqa: S607
    return folder / "cmfreader"


def hunt(bug: Bug, seed: int, time: str, jobs: int, strict: bool = False) -> Hunt:
    """Fuzz a copy until the first find, or until the time is over. Raises ValueError for a find that is not of the bug."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        reader, out = planted(bug, Path(name)), Path(name) / "out"
        command = [sys.executable, "-m", "cmfspec", "fuzz", "--impl", str(reader), "--time", time, "--max-finds", "1"]
        command += ["--seed", str(seed), "-j", str(jobs), "--out", str(out), "--json"]
        command += [word for field in bug.without if strict for word in ("--without", field)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or not done.stdout.strip():
            raise RuntimeError(f"{bug.name}: exit {done.returncode}: {done.stdout[-300:]}{done.stderr[-600:]}")
        told = json.loads(done.stdout)
        for find in told["finds"]:
            _must_be_of_the_bug(bug, Path(find["folder"]) / "file.cmf")
    first = min(told["finds"], key=lambda find: find["seconds"], default=None)
    if first is None:
        return Hunt(bug.name, seed, None, None, "", told["executions"])
    what = f"{first['outcome']} at {first['op']} {', '.join(first['rules'])}".strip()
    return Hunt(bug.name, seed, first["seconds"], first["size"], what, told["executions"])


def _must_be_of_the_bug(bug: Bug, file: Path) -> None:
    """The reader as it is does not misjudge the file."""
    command = [
        sys.executable,
        "-m",
        "cmfspec",
        "minimize",
        str(file),
        "--impl",
        str(HOME / "cmfreader"),
        "-o",
        f"{file}.min",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 1:
        said = f"{done.stdout[-300:]}{done.stderr[-600:]}"
        kept = shutil.copy(file, Path(tempfile.gettempdir()) / f"{bug.name}.cmf")
        raise ValueError(f"{bug.name}: the reader without the bug misjudges {kept}, too: {done.returncode} {said}")


def rows(hunts: list[Hunt]) -> Iterator[str]:
    """A line of Markdown for each bug."""
    yield "| bug | like | found | median | largest file | as |"
    yield "|---|---|--:|--:|--:|---|"
    reports = {bug.name: bug.reports for bug in BUGS}
    for name in dict.fromkeys(found.bug for found in hunts):
        its = [found for found in hunts if found.bug == name]
        times = sorted(found.seconds if found.seconds is not None else float("inf") for found in its)
        median = statistics.median_low(times)
        sizes = [found.size for found in its if found.size is not None]
        told = "·" if median == float("inf") else f"{median:.0f} s"
        largest = max(sizes, default=0)
        what = next((found.outcome for found in its if found.outcome), "")
        yield f"| {name} | {reports[name]} | {len(sizes)}/{len(its)} | {told} | {largest} | {what} |"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.planted", description=__doc__)
    parser.add_argument("-k", default="", help="only bugs whose name contains this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--time", default="5m", help="of each hunt")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--strict", action="store_true", help="leave the fields of a bug to havoc")
    given = parser.parse_args()
    bugs = [bug for bug in BUGS if given.k in bug.name]
    if not bugs or given.seeds < 1:
        parser.error("no bug, or no seed")
    subprocess.run(["make", "-s"], cwd=HOME, check=True)  # noqa: S607
    hunts: list[Hunt] = []
    for bug in bugs:
        for seed in range(1, given.seeds + 1):
            hunts.append(hunt(bug, seed, given.time, given.jobs, given.strict))
            print(hunts[-1], file=sys.stderr, flush=True)
    print("\n".join(rows(hunts)))
    medians = [statistics.median_low([h.seconds or float("inf") for h in hunts if h.bug == bug.name]) for bug in bugs]
    sys.exit(any(median == float("inf") for median in medians))


if __name__ == "__main__":
    main()
