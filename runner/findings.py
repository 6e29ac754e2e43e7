"""`python -m runner.findings`: what a stored run saw, as a page, with the files that show it.

    python -m runner.findings store RESULTS.jsonl   keep the run and its reproducers in docs/, and write the page
    python -m runner.findings [--check]             write the page anew; --check: fail if it isn't what the run makes

Law: the page says what was seen, rule by rule, and no more. Where the text is silent, and where the implementation follows
a newer one, nothing is held against it. A file stands for each way in which a rule failed; it is small, and is replayed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cmfspec.contract.outcome import UNFAILED
from cmfspec.contract.rule import CATALOGUE, GRADED, OBSERVATION, Rule, load_catalogue
from runner import campaignpage
from runner.terminal import safe

DOCS = Path(__file__).resolve().parent.parent / "docs"
STREAM, PAGE, FILES, REPLAYS = "findings.jsonl", "findings.md", "findings", "findings/replays.json"
LARGEST = 16384  # bytes of a file that is kept
SHOWN = 200  # letters of what was got
ASKED = ("op", "index", "as")  # the members of a request that a replay repeats
CRASHES = ("CRASH", "RESOURCE", "ERROR")

Line = Mapping[str, Any]


def read(home: Path) -> list[Line]:
    """The lines of the stored run. Raises ValueError for one that was cut short."""
    lines = [json.loads(line) for line in (home / STREAM).read_text("utf-8").splitlines()]
    if not lines or lines[-1]["type"] != "footer":
        raise ValueError(f"{home / STREAM} has no last line: the run did not end")
    return lines


def failures(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Rule id to its failing cases, in the order of the catalogue."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line["type"] == "case" and line["outcome"] not in UNFAILED:
            found.setdefault(line["rule"], []).append(line)
    return {identity: found[identity] for identity in CATALOGUE if identity in found}


def ways(cases: Sequence[Line]) -> list[list[Line]]:
    """Cases of a rule that failed alike: same outcome, same operation, same words up to digits."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for case in cases:
        words = "".join("0" if letter.isdigit() else letter for letter in case["got"])
        key = (case["outcome"], words[:40] if case["outcome"] in CRASHES else words.split(",")[0][:24])
        groups.setdefault(key, []).append(case)
    return list(groups.values())


def store(results: Path, home: Path) -> None:
    """Keep the run, one reproducer for each way in which a rule failed, and what is to be asked about it."""
    lines = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    shutil.rmtree(home / FILES, ignore_errors=True)
    (home / FILES).mkdir(parents=True)
    kept: dict[str, str] = {}
    replays = []
    for cases in failures(lines).values():
        for way in ways(cases):
            folders = {case["case"]: Path(case["reproducer"]) for case in way if case["reproducer"]}
            sizes = {name: (folder / "file.cmf").stat().st_size for name, folder in folders.items()}
            if min(sizes.values(), default=LARGEST + 1) > LARGEST:
                continue
            case = next(case for case in way if sizes.get(case["case"]) == min(sizes.values()))
            folder = folders[case["case"]]
            kept[case["case"]] = name = f"{folder.name}.cmf"
            shutil.copyfile(folder / "file.cmf", home / FILES / name)
            request = json.loads((folder / "request.json").read_text("utf-8"))
            asked = {key: request[key] for key in ASKED if key in request}
            replays.append({"case": case["case"], "file": name, "asked": asked, **_said(folder / "reply.json")})
    for line in lines:
        if line["type"] == "case":
            line["reproducer"] = kept.get(line["case"], "") if line["reproducer"] else None
            line.pop("stderr", None)
    text = "".join(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n" for line in lines)
    (home / STREAM).write_text(text, "ascii", newline="\n")
    (home / REPLAYS).write_text(json.dumps(replays, indent=1) + "\n", "ascii", newline="\n")


def _said(reply: Path) -> dict[str, Any]:
    """The status of the reply, and its body for `ok`; no status where there was no reply."""
    try:
        message = json.loads(reply.read_text("utf-8"))
    except ValueError:
        return {"status": None}
    (status,) = {"ok", "refused", "error"} & message.keys()
    sound = message[status].get("sound") if status == "ok" else None
    return {"status": status, **({} if sound is None else {"sound": sound})}


def page(home: Path) -> str:
    """The page, in Markdown."""
    lines = read(home)
    head, foot = lines[0], lines[-1]
    return "".join(f"{line}\n" for line in (*_page(head, foot, lines), *_fuzzed(home)))


def _fuzzed(home: Path) -> Iterator[str]:
    """What a fuzzing campaign found beside the run, if one is kept."""
    found = [*campaignpage.section(home, _text)]
    yield from ("", *found[:-1]) if found else ()


def _page(head: Line, foot: Line, lines: Sequence[Line]) -> Iterator[str]:
    who = head["implementation"]
    failed = failures(lines)
    graded = {identity: cases for identity, cases in failed.items() if CATALOGUE[identity].tier in GRADED}
    rules = foot["rules"]
    yield f"# What {who['name']} {who['version']} does otherwise"
    yield ""
    yield f"Generated by `python -m runner.findings` from [{STREAM}]({STREAM}), a run of cmfspec {head['suite']}, profile"
    yield f"{head['profile']}, against {who['name']} {who['version']} ({who['language']}, {who['build']} build). It says"
    yield "what was seen and no more; where the text is silent or a newer one is followed, nothing is held against it."
    yield "A file stands for one way in which a rule failed, is as small as it could be made, and the tests replay it."
    yield ""
    counts = f"{rules['passed']} rules passed, {rules['failed']} failed ({len(graded)} of them graded)"
    yield f"{foot['cases']} cases: {counts}, {rules['beyond']} beyond this revision,"
    yield f"{rules['observed']} observed. Identity of the cases: `{head['cases_sha256'][:16]}`."
    yield ""
    yield "| rule | what it says | tier | failed | how |"
    yield "|---|---|---|---|---|"
    for identity, cases in failed.items():
        rule = CATALOGUE[identity]
        how = ", ".join(sorted({case["outcome"] for case in cases}))
        count = f"{len(cases)} of {_asked(lines, identity)}"
        yield f"| [{identity}](#{identity.lower()}) | {_cell(rule.name)} | {rule.tier} | {count} | {how} |"
    yield ""
    for identity, cases in failed.items():
        yield from _section(CATALOGUE[identity], cases, _asked(lines, identity))
    yield from _beyond(lines)
    yield from _observed(lines)


def _asked(lines: Sequence[Line], identity: str) -> int:
    return sum(line["type"] == "case" and line["rule"] == identity for line in lines)


def _section(rule: Rule, cases: Sequence[Line], asked: int) -> Iterator[str]:
    yield f"## {rule.id}"
    yield ""
    yield f"**{rule.name[0].upper()}{rule.name[1:]}.** {rule.why}"
    yield ""
    yield f"> {rule.quote}"
    yield ""
    tier = rule.tier if rule.tier in GRADED else f"{rule.tier}, not graded"
    yield f"§{rule.section}, {tier}. Failed in {len(cases)} of {asked} cases."
    ruling = rule.norm.ruling
    if ruling not in ("", "—"):
        yield f"Ruling: {ruling}."
    yield ""
    for way in ways(cases):
        shown = next((case for case in way if case["reproducer"]), way[0])
        link = f" [`{shown['reproducer']}`]({FILES}/{shown['reproducer']})" if shown["reproducer"] else ""
        times = f" ({len(way)} cases)" if len(way) > 1 else ""
        yield f"- {shown['outcome']}{times}: expected {_text(shown['expected'])}; got {_text(shown['got'])}.{link}"
    yield ""


def _beyond(lines: Sequence[Line]) -> Iterator[str]:
    seen: dict[str, set[str]] = {}
    for line in lines:
        if line["type"] == "case" and line["outcome"] == "BEYOND":
            seen.setdefault(line["rule"], set()).add(line["expected"])
    if seen:
        yield "## Beyond this revision of the text"
        yield ""
        yield "The reader declares these, so that rules about the unknown skip them."
        yield ""
        for identity, wanted in seen.items():
            yield f"- {identity}: {', '.join(sorted(wanted))}"
        yield ""


def _observed(lines: Sequence[Line]) -> Iterator[str]:
    yield "## Where the text is silent"
    yield ""
    yield "| rule | about | what it did |"
    yield "|---|---|---|"
    seen: dict[str, dict[str, int]] = {}
    for line in lines:
        if line["type"] == "case" and CATALOGUE[line["rule"]].tier == OBSERVATION and line["outcome"] == "OBSERVED":
            did = line["got"].split(",")[0]
            seen.setdefault(line["rule"], {})[did] = seen.get(line["rule"], {}).get(did, 0) + 1
    for identity in (identity for identity in CATALOGUE if identity in seen):
        did = "; ".join(f"{_text(text)} ({count})" for text, count in sorted(seen[identity].items()))
        yield f"| {identity} | {_cell(CATALOGUE[identity].name)} | {_cell(did)} |"


def _text(text: str) -> str:
    """A stranger's words on one line of Markdown."""
    words = " ".join(safe(text).split()).replace("`", "'")
    return f"`{words if len(words) <= SHOWN else words[: SHOWN - 3] + '...'}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m runner.findings", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["store"])
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page isn't what the run makes"
    )
    arguments = parser.parse_args()
    load_catalogue()
    if arguments.what:
        if not arguments.results:
            parser.error("store wants the results of a run")
        store(arguments.results, DOCS)
    text = page(DOCS)
    if arguments.check:
        sys.exit(text != (DOCS / PAGE).read_text("utf-8"))
    (DOCS / PAGE).write_text(text, "utf-8", newline="\n")


if __name__ == "__main__":
    main()
