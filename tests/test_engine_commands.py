"""`cmfspec logits`, `ppl` and `generate` as their users meet them."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cmfspec
from cmfspec.engine import load
from cmfspec.engine.perplexity import Likelihood, likelihood
from cmfspec.errors import Unanswerable
from cmfspec.format.build import render
from runner.cli import cli
from tests.oracle import answers, blueprint, edited, model
from tests.shared import INTEROP, needs_interop

TEXTUAL, MASKED, SKILLED = (INTEROP / "python" / f"{name}.cmf" for name in ("qwen2-F32", "qwen3-masks", "qwen3-skills"))
PIPELINE, DRAFTING = (INTEROP / "rust" / f"{name}.cmf" for name in ("lumina-q4t", "qwen3_5_mtp-f16"))


def run(*words: object, expect: int = 0, text: str | None = None) -> Result:
    """A command with these words."""
    result = CliRunner().invoke(cli, [str(word) for word in words], input=text)
    assert result.exit_code == expect, (result.exit_code, result.output, result.exception)
    return result


def engine(path: Path) -> Any:
    """The model in a file."""
    return load(cmfspec.open(path))


@pytest.fixture
def vocabless(tmp_path: Path) -> Path:
    """A model without a tokenizer."""
    path = tmp_path / "model.cmf"
    path.write_bytes(render(blueprint("llama")))
    return path


# --- logits ------------------------------------------------------------------------------------------------------------


def test_logits_are_written_as_an_array(vocabless: Path, tmp_path: Path) -> None:
    """All rows or the last, to a file or to stdout."""
    ids = answers("llama")["token_ids"][0].tolist()
    words = ("logits", vocabless, "--tokens", ",".join(map(str, ids)), "-o")
    assert "float32 [24, 128]" in run(*words, tmp_path / "out.npy").stderr
    want = model("llama").logits(ids)
    assert np.array_equal(np.load(tmp_path / "out.npy"), want)
    last = np.load(io.BytesIO(run(*words, "-", "--rows", "last").stdout_bytes))
    assert last.dtype == np.float32
    assert np.array_equal(last, model("llama").logits(ids, rows="last"))


@needs_interop
def test_logits_are_under_the_task_and_the_skill_that_are_named(tmp_path: Path) -> None:
    """And a blend has its weights beside the ids."""
    out = tmp_path / "out.npy"
    run("logits", MASKED, "--tokens", "3,5,9", "-o", out, "--task", "ffn")
    assert np.array_equal(np.load(out), engine(MASKED).logits([3, 5, 9], task="ffn"))
    run("logits", SKILLED, "--tokens", "3,5,9", "-o", out, "--skill", "alpha")
    assert np.array_equal(np.load(out), engine(SKILLED).logits([3, 5, 9], skill="alpha"))
    run("logits", SKILLED, "--tokens", "3,5,9", "-o", out, "--skill", "alpha=0.25", "--skill", "beta=0.75")
    assert np.array_equal(np.load(out), engine(SKILLED).logits([3, 5, 9], skill={"alpha": 0.25, "beta": 0.75}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tokens", ""), "item 1 is ''"),
        (("--tokens", "3,x"), "item 2 is 'x'"),
        (("--tokens", "3,-1"), "item 2 is '-1'"),
        (("--tokens", "3,٣"), "item 2"),
        (("--tokens", "3," + "9" * 30), "item 2"),
        (("--tokens", "3,500"), "tokens[1]: found 500, wanted from 0 to 127"),
        (("--tokens", ",".join("3" * 257)), "257 positions"),
        (("--tokens", "3", "--task", "nope"), "task: found 'nope', wanted dense"),
        (("--tokens", "3", "--skill", "nope"), "skill: found 'nope'"),
        (("--tokens", "3", "--skill", "a", "--skill", "b=1"), "--skill a: several skills are a blend"),
        (("--tokens", "3", "--skill", "a=x", "--skill", "b=1"), "--skill a=x"),
        (("--tokens", "3", "--task", "\x1b[2J"), "\\x1b[2J"),
    ],
)
def test_a_request_without_an_answer_is_usage(
    words: tuple[str, ...], said: str, vocabless: Path, tmp_path: Path
) -> None:
    """2, with what was found and what was wanted; nothing is written."""
    result = run("logits", vocabless, "-o", tmp_path / "out.npy", *words, expect=2)
    assert said in result.stderr
    assert "\x1b" not in result.output
    assert not (tmp_path / "out.npy").exists()


@needs_interop
@pytest.mark.parametrize("verb", ["logits", "ppl", "generate"])
def test_a_file_that_cannot_run_is_refused(verb: str, tmp_path: Path) -> None:
    """1, with why; also one that can't be opened. stdout stays empty."""
    more = ("-o", "-") if verb == "logits" else ()
    for path, said in ((PIPELINE, "PIPE-008"), (tmp_path / "none.cmf", "VAL-013")):
        result = run(verb, path, "--tokens", "3,5,9", *more, expect=1)
        assert said in result.stderr
        assert not result.stdout


# --- ppl ---------------------------------------------------------------------------------------------------------------


def test_perplexity_is_the_oracles(vocabless: Path) -> None:
    """In one window; the mean over all tokens but the first."""
    for row in range(2):
        ids = ",".join(map(str, answers("llama")["token_ids"][row]))
        said = json.loads(run("ppl", vocabless, "--tokens", ids, "--json").stdout)
        assert said["nll"] / said["tokens"] == pytest.approx(answers("llama")["nll"][row], rel=1e-6)
        assert said["ppl"] == pytest.approx(math.exp(answers("llama")["nll"][row]), rel=1e-5)
        assert (said["tokens"], said["window"], said["stride"]) == (23, 24, 12)


@pytest.mark.parametrize(("window", "stride"), [(24, 1), (2, 1), (7, 3), (7, 6), (10, 5), (16, 15)])
def test_each_token_is_predicted_once_whatever_the_windows(window: int, stride: int) -> None:
    """Against a window by window count by hand."""
    ids = [int(token) for token in answers("llama")["token_ids"][0]]
    found = likelihood(model("llama"), ids, window, stride)
    total, counted = 0.0, {0}
    for begin in range(0, len(ids), stride):
        piece = ids[begin : begin + window]
        logits = model("llama").logits(piece).astype(np.float64)
        for at in range(1, len(piece)):
            if begin + at not in counted:
                counted.add(begin + at)
                row = logits[at - 1] - logits[at - 1].max()
                total += float(np.log(np.exp(row).sum()) - row[piece[at]])
    assert len(counted) == len(ids)
    assert (found.count, found.window, found.stride) == (len(ids) - 1, window, stride)
    assert found.nll == pytest.approx(total, rel=1e-6)


def test_rows_of_logits_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number changes nothing."""
    ids = answers("llama")["token_ids"][0]
    whole = likelihood(model("llama"), ids)
    monkeypatch.setattr("cmfspec.engine.perplexity.ROWS", 5)
    assert likelihood(model("llama"), ids).nll == pytest.approx(whole.nll, rel=1e-6)


def test_a_perplexity_past_any_float_is_infinite() -> None:
    """Not an exception."""
    assert Likelihood(1e9, 2, 2, 1).perplexity == math.inf


@pytest.mark.parametrize(
    ("ids", "window", "stride"),
    [([3], None, None), ([], None, None), ([3, 5, 9], 1, 1), ([3, 5, 9], 3, 3), ([3, 5, 9], 3, 0), ([3, 5, 9], 257, 1)],
)
def test_a_window_holds_two_tokens_and_no_gap(ids: list[int], window: int | None, stride: int | None) -> None:
    """Or some tokens would never be predicted."""
    with pytest.raises(Unanswerable):
        likelihood(model("llama"), ids, window, stride)


@needs_interop
def test_a_text_is_read_by_the_files_own_tokenizer(tmp_path: Path) -> None:
    """From a file or from stdin."""
    from tokenizers import Tokenizer

    text = "hello world, what is a text?\nLine two."
    ids = Tokenizer.from_buffer(bytes(cmfspec.open(TEXTUAL).view.part("vocab"))).encode(text).ids
    (tmp_path / "text").write_text(text, "utf-8")
    want = likelihood(engine(TEXTUAL), ids, 8, 4)
    for given, stdin in ((tmp_path / "text", None), ("-", text)):
        result = run("ppl", TEXTUAL, "--text", given, "--window", 8, "--stride", 4, text=stdin)
        assert (
            f"PPL {want.perplexity:.6g} (NLL {want.nll:.6g} over {len(ids) - 1} tokens, window 8, stride 4)"
            in result.stdout
        )


@needs_interop
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of the two"),
        (("--text", "x", "--tokens", "3"), "one of the two"),
        (("--text", "/nowhere/text"), "No such file"),
        (("--text", "/"), "directory"),
        (("--tokens", "3"), "at least two"),
    ],
)
def test_a_text_that_cannot_be_read_is_usage(words: tuple[str, ...], said: str) -> None:
    """2, and why."""
    assert said in run("ppl", TEXTUAL, *words, expect=2).stderr


@needs_interop
def test_a_text_that_is_no_utf8_is_usage(tmp_path: Path) -> None:
    """With the line and the bytes."""
    (tmp_path / "text").write_bytes(b"one\ntwo\nthr\xff\xfee")
    assert "line 3: found bytes ff fe" in run("ppl", TEXTUAL, "--text", tmp_path / "text", expect=2).stderr


@pytest.mark.parametrize("vocab", [b"", b"garbage", b"{}", b'{"model": {"type": "BPE"}}', bytes(100), b"[" * 50000])
def test_a_section_that_is_no_tokenizer_is_refused(vocab: bytes, tmp_path: Path) -> None:
    """1 for garbage, 2 for none; ids still do."""
    path = tmp_path / "model.cmf"
    path.write_bytes(render(replace(blueprint("llama"), vocab=vocab)))
    result = run("generate", path, "--prompt", "hello", expect=1 if vocab else 2)
    assert ("TOK-003" if vocab else "no tokenizer in the file") in result.stderr
    assert run("generate", path, "--tokens", "3,5,9", "--max-new", 2).stdout


# --- generate ----------------------------------------------------------------------------------------------------------


def test_ids_go_on_in_ids(vocabless: Path) -> None:
    """The oracle's greedy tokens; rates to stderr."""
    row, want = answers("llama")["token_ids"][0], answers("llama")["greedy"][0].tolist()
    result = run("generate", vocabless, "--tokens", ",".join(map(str, row)), "--max-new", len(want))
    assert [int(word) for word in result.stdout.split()] == want
    assert "24 tokens of prompt, 16 new" in result.stderr
    assert "tokens/s" in result.stderr


@needs_interop
def test_a_prompt_goes_on_in_text() -> None:
    """In the end the text is what the tokenizer makes of all new ids at once."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(bytes(cmfspec.open(TEXTUAL).view.part("vocab")))
    new = list(engine(TEXTUAL).generate(tokenizer.encode("hello wor").ids, 20))
    result = run("generate", TEXTUAL, "--prompt", "hello wor", "--max-new", 20)
    assert result.stdout == f"{tokenizer.decode(new)}\n"


def test_half_a_character_waits_for_its_other_half() -> None:
    """And what never becomes whole is shown at the end."""
    from cmfspec.engine.text import pieces

    class Bytes:
        """A tokenizer whose tokens are bytes."""

        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode("utf-8", "replace")

    text: Any = Bytes()
    assert list(pieces(text, "aé€".encode())) == ["a", "é", "€"]
    assert list(pieces(text, b"a\xe2\x82")) == ["a", "\ufffd"]
    assert list(pieces(text, [])) == []


@needs_interop
def test_chance_has_a_seed() -> None:
    """The same seed, the same text."""
    words = ("generate", TEXTUAL, "--prompt", "hello", "--max-new", 12, "--temperature", 2, "--top-p", 0.9)
    outputs = {run(*words, "--seed", seed).stdout for seed in (1, 1, 1)}
    assert len(outputs) == 1
    assert len({run(*words, "--seed", seed).stdout for seed in range(4)}) > 1


@needs_interop
def test_drafts_change_no_token() -> None:
    """And are counted."""
    plain = run("generate", DRAFTING, "--tokens", "3,5,9", "--max-new", 10)
    drafted = run("generate", DRAFTING, "--tokens", "3,5,9", "--max-new", 10, "--mtp")
    assert plain.stdout == drafted.stdout
    assert "drafts accepted" in drafted.stderr
    assert "drafts" not in plain.stderr


@needs_interop
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of the two"),
        (("--prompt", ""), "found none, wanted at least one"),
        (("--prompt", "a", "--temperature", "-1"), "sampling"),
        (("--prompt", "a", "--temperature", "nan"), "sampling"),
        (("--prompt", "a", "--top-p", "0"), "sampling"),
        (("--prompt", "a", "--seed", "-1"), "sampling"),
        (("--prompt", "a", "--mtp"), "a head of one layer that drafts"),
        (("--prompt", "a", "--max-new", "-1"), "--max-new"),
    ],
)
def test_a_way_to_generate_that_means_nothing_is_usage(words: tuple[str, ...], said: str) -> None:
    """2, and why."""
    result = run("generate", TEXTUAL, *words, expect=2)
    assert said in result.stderr
    assert not result.stdout


def test_a_models_text_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """Escape sequences that it generates are shown, and lines are lines."""
    words = {f"w{i}": i for i in range(128)}
    vocab = {"\x1b[2Jgone": 0, "line\n": 1, **{word: i for word, i in words.items() if i > 1}}
    tokenizer = {"version": "1.0", "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w2"}}
    plan = edited(blueprint("llama"), {"lm_head.weight": np.zeros((128, 64), np.float32)})  # all equal: token 0
    path = tmp_path / "model.cmf"
    path.write_bytes(render(replace(plan, vocab=json.dumps(tokenizer).encode())))
    result = run("generate", path, "--prompt", "w3", "--max-new", 2)
    assert "\x1b" not in result.output
    assert result.stdout.startswith("\\x1b[2Jgone")


def test_a_reader_that_goes_away_ends_it_quietly(vocabless: Path) -> None:
    """`| head` closes the pipe: 3, and no traceback."""
    words = [sys.executable, "-m", "cmfspec", "generate", str(vocabless), "--tokens", "3,5,9", "--max-new", "200"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(120) == 3
    assert b"Traceback" not in said
    assert b"Exception ignored" not in said
