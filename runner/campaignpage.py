"""What a fuzzing campaign found, for the page of findings: `python -m runner.campaignpage DIR` keeps it in docs/.

Law: as of the page: it says what was seen and no more. Each find has its minimal file, which the tests ask about again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from runner import finds

FUZZED = "fuzzed"  # in docs/
CAMPAIGN = "campaign.json"
KEPT = ("executions", "questions", "accepted", "unconfirmed", "seconds")


def store(campaign: Path, home: Path) -> int:
    """Keep the finds of a campaign and their files. Returns how many. Raises click.UsageError for what is no campaign."""
    state = finds.json_object(campaign / CAMPAIGN)
    found = sorted(finds.read(campaign), key=lambda find: (find.seconds, find.name))
    folder = home / FUZZED
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for find in found:
        shutil.copyfile(campaign / finds.FINDINGS / find.name / finds.FILE, folder / f"{find.name}.cmf")
    rows = [{**vars(find), "stderr": "", "file": f"{find.name}.cmf"} for find in found]
    kept = {"finds": rows, **{name: state.get(name) for name in KEPT}}
    (folder / CAMPAIGN).write_text(json.dumps(kept, indent=1) + "\n", "ascii", newline="\n")
    return len(found)


def read(home: Path) -> dict[str, Any]:
    """What is kept; no finds if nothing is."""
    path = home / FUZZED / CAMPAIGN
    return finds.json_object(path) if path.is_file() else {"finds": []}


def section(home: Path, text: Callable[[str], str]) -> Iterator[str]:
    """The part of the page. text: a stranger's words on one line."""
    kept = read(home)
    if not kept["finds"]:
        return
    minutes = kept["seconds"] / 60
    yield "## Found by fuzzing"
    yield ""
    yield f"`cmfspec fuzz` with the shipped seeds and nothing else, {minutes:.0f} minutes on two cores that others used too:"
    share = kept["accepted"] / kept["executions"]
    yield f"{kept['executions']} files, {share:.0%} of them valid, {kept['questions']} questions. Each find once, with its"
    yield "smallest file, in the order in which they came; the time is that of the first file that showed it."
    yield ""
    yield "| after | outcome | what the file breaks | what came | file |"
    yield "|--:|---|---|---|---|"
    for find in kept["finds"]:
        lied = find["outcome"] == "WRONG_ACCEPT" and not find["rules"]
        rules = ", ".join(find["rules"]) or (
            f"{', '.join(find['about'])}, past `open`" if lied else "nothing: it is valid"
        )
        clock = f"{int(find['seconds']) // 60}:{int(find['seconds']) % 60:02}"
        link = f"[{find['size']} bytes]({FUZZED}/{find['file']})"
        said = text(find["got"]).replace("|", "\\|")
        yield f"| {clock} | {find['outcome']} at {find['op']} | {rules} | {said} | {link} |"
    yield ""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m runner.campaignpage", description=__doc__)
    parser.add_argument("campaign", type=Path)
    home = Path(__file__).resolve().parent.parent / "docs"
    print(f"{store(parser.parse_args().campaign, home)} finds kept; `python -m runner.findings` writes the page")


if __name__ == "__main__":
    main()
