"""The adapters that come with the suite are real implementations, and pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from cmfspec.contract.rule import CATALOGUE, ENGINE, WRITER, load_catalogue
from runner.cli import cli
from tests.adapters import built

load_catalogue()
HERE = Path(sys.executable).parent


def judged(tmp_path: Path, *options: str) -> tuple[int, dict[str, object]]:
    """(exit code, footer) of a run."""
    stream = tmp_path / "results.jsonl"
    result = CliRunner().invoke(cli, ["run", *options, "--json", str(stream), "--out", str(tmp_path / "out")])
    return result.exit_code, json.loads(stream.read_text().splitlines()[-1])


def test_the_c_reader_is_conformant(tmp_path: Path) -> None:
    """Written from the text alone: where it and our reader agree, the case stands."""
    code, footer = judged(tmp_path, "--impl", str(built("c")))
    assert code == 0
    assert footer["conformant"] is True
    writers = [rule for rule in CATALOGUE.values() if rule.binds == WRITER]
    engines = [rule for rule in CATALOGUE.values() if rule.binds == ENGINE]
    beyond = [
        rule
        for rule in engines
        if rule.norm.area in ("MOE", "MASK", "SKILL") or rule.id in ("ENG-002", "ENG-004", "HDR-021")
    ]
    assert footer["rules"]["not_applicable"] == len(writers) + len(beyond)  # type: ignore[index]
    assert len(beyond) < len(engines) - 8  # it computes too


def test_our_own_reader_over_the_pipe_is_conformant(tmp_path: Path) -> None:
    """The first self-test."""
    code, footer = judged(tmp_path, "--impl", f"{HERE / 'cmfspec'} serve")
    assert (code, footer["conformant"]) == (0, True)


def test_the_c_reader_as_a_command_passes_what_a_command_can_be_asked(tmp_path: Path) -> None:
    """Each question one process; cases are capped, and the footer says that it is not the whole."""
    script = tmp_path / "once"
    script.write_text(
        "#!/bin/sh\n"
        "op=$1; file=$2; index=$3; out=$4\n"
        'printf \'{"id":1,"op":"%s","file":"%s","index":%s,"as":"f32","out":"%s"}\\n\' "$op" "$file" "${index:-0}" "$out" |\n'
        f'"{built("c")}" | grep -q -e \'"ok":{{\' -e \'"sound":true\' || exit 1\n'
    )
    script.chmod(0o755)
    code, footer = judged(
        tmp_path, "--argv", f"open={script} open {{file}}", "--argv", f"tensor={script} tensor {{file}} {{index}} {{out}}",
        "--cap", "2", "-k", "VAL-00*",
    )  # fmt: skip
    assert code == 0
    assert footer["complete"] is False
    assert footer["conformant"] is None
    assert footer["rules"]["passed"] >= 8  # type: ignore[index]
