"""`cmfspec gate`: no change of the text goes by unseen, and a change of white space is none."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cmfspec.contract.rule import CATALOGUE, UNTESTED, load_catalogue, spec_text
from cmfspec.spec import squeezed
from runner.cli import cli
from runner.gate import compare, difference, pieces

load_catalogue()
OURS = spec_text()
FEATURE = "读取器不认识的某一位"  # FEAT-001 quotes it


def gate(tmp_path: Path, text: str | bytes, *words: str) -> tuple[int, str]:
    """(exit code, output) for this new text."""
    path = tmp_path / "NEW.md"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    result = CliRunner().invoke(cli, ["gate", str(path), *words])
    return result.exit_code, result.output


def as_json(tmp_path: Path, text: str) -> dict[str, Any]:
    """What the gate says of a text that is not ours."""
    code, output = gate(tmp_path, text, "--json")
    assert code == 1
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.parametrize(
    "rewrite",
    [lambda t: t, lambda t: t.replace("\n", "\r\n"), lambda t: t.replace("。", "。\n  "), lambda t: t.replace("**", ""), lambda t: "\ufeff" + t],
    ids=["same", "crlf", "rewrapped", "no-emphasis", "bom"],
)  # fmt: skip
def test_white_space_and_emphasis_mean_nothing(tmp_path: Path, rewrite: Any) -> None:
    """0, and every quote stands."""
    code, output = gate(tmp_path, rewrite(OURS))
    assert code == 0
    assert f"all {len({**CATALOGUE, **UNTESTED})} quotes stand" in output


def test_a_changed_sentence_names_its_rules_and_its_new_words(tmp_path: Path) -> None:
    """The hint shows what went and what came."""
    new = OURS.replace(FEATURE, "读取器不认识的任何一位")
    found = as_json(tmp_path, new)
    row = next(row for row in found["revisit"] if row["id"] == "FEAT-001")
    assert all(FEATURE in other["quote"] for other in found["revisit"])
    assert (row["state"], row["section"]) == ("changed", "1.1")
    assert "[-某-]{+任何+}一位" in row["hint"]
    assert squeezed(row["closest"]) in squeezed(new)
    assert all("FEAT-001" in piece["quoted_by"] for piece in found["added"])
    code, output = gate(tmp_path, new)
    assert code == 1
    assert "to revisit: " in output
    assert "FEAT-001 §1.1 changed" in output
    assert "no rule quotes" not in output  # the rule that quoted the old sentence is to quote the new one


def test_a_sentence_that_is_gone_is_not_taken_for_another(tmp_path: Path) -> None:
    """No hint is better than a wrong one."""
    start = OURS.index("| 5   | `LOOP_MASKS`")
    found = as_json(tmp_path, OURS[:start] + OURS[OURS.index("\n", start) + 1 :])
    assert {row["id"]: row["state"] for row in found["revisit"]}["FEAT-010"] == "gone"


def test_new_text_is_listed_by_its_section_and_is_not_reviewed(tmp_path: Path) -> None:
    """Every quote stands, and still the answer is no."""
    new = OURS.replace("### 1.2 ", "读取器必须唱歌。\n\n### 1.2 ", 1)
    found = as_json(tmp_path, new)
    assert found["revisit"] == []
    assert found["added"] == [{"section": "1.1", "text": "读取器必须唱歌。", "quoted_by": []}]
    assert found["removed"] == []
    code, output = gate(tmp_path, new)
    assert code == 1
    assert "§1.1: new text that no rule quotes" in output


def test_a_sentence_in_another_section_has_moved(tmp_path: Path) -> None:
    """Where a rule stands is part of what it means."""
    sentence = next(line for line in OURS.splitlines() if FEATURE in line)
    second = OURS.splitlines()[OURS.splitlines().index(sentence) + 1]
    both = f"{sentence}\n{second}\n"
    found = as_json(tmp_path, OURS.replace(both, "") + f"\n## 99. 别处\n\n{both}")
    moved = {row["id"]: row for row in found["revisit"]}
    assert moved["FEAT-001"]["state"] == "moved"
    assert moved["FEAT-001"]["closest"] == "§99"


def test_the_same_sentences_in_another_order_are_not_the_same_text(tmp_path: Path) -> None:
    """Nothing is added, nothing gone, and yet it has to be read."""
    lines = OURS.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("| 3   | `DELTA_MASKS`"))
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    code, output = gate(tmp_path, "\n".join(lines))
    assert code == 1
    assert "another order" in output


def test_every_changed_character_is_seen() -> None:
    """Wherever it stands."""
    places = [match.start() for match in re.finditer(r"\S", OURS)][::997]
    assert len(places) > 10
    for at in places:
        if OURS[at] != "*":
            assert not compare(OURS, f"{OURS[:at]}\u2603{OURS[at + 1 :]}").same


def test_every_quote_is_found_in_its_pieces() -> None:
    """Cutting the text into sentences loses nothing of it."""
    whole = "".join(piece.bare for piece in pieces(OURS))
    for identity, rule in {**CATALOGUE, **UNTESTED}.items():
        assert squeezed(rule.quote.split("\n")[0][:12]) in whole, identity
    assert difference("abc", "abd") == "ab[-c-]{+d+}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "found nothing"), (b" \n\t\n", "found nothing"), (b"a\nb\xff", "line 2: found byte 0xff"),
        (b"x" * 2**20, "found more than"),
    ],
    ids=["empty", "blank", "no-utf-8", "huge"],
)  # fmt: skip
def test_what_is_no_text_is_a_usage_error(tmp_path: Path, content: bytes, said: str) -> None:
    """2, with the file and the place."""
    code, output = gate(tmp_path, content)
    assert code == 2
    assert said in output
    assert "NEW.md" in output


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe")
    assert CliRunner().invoke(cli, ["gate", str(tmp_path / "pipe")]).exit_code == 2
    assert CliRunner().invoke(cli, ["gate", str(tmp_path)]).exit_code == 2


@pytest.mark.parametrize(
    "content",
    [b"\x00" * 1000, "# \x1b[2Jgone\n读取器不认识的\x07".encode(), "。" * 30000, "```\n" * 999, "a\n" * 60000, "# h\n" * 20000],
    ids=["nul", "escapes", "stops", "fences", "lines", "headings"],
)  # fmt: skip
def test_a_hostile_text_is_only_another_text(tmp_path: Path, content: bytes | str) -> None:
    """1, soon, and the terminal obeys nothing of it."""
    code, output = gate(tmp_path, content)
    assert code == 1
    assert not {"\x1b", "\x07", "\x00"} & set(output)
    assert " gone" in output
