"""What is asked of an engine, over the wire: the answers are held to their shape and to being finite before all else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import cmfspec
from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.outcome import ErrorReply, NotApplicable, Outcome, WrongReject, WrongValue
from cmfspec.contract.outcome import Protocol as BrokenProtocol
from cmfspec.contract.protocol import Hello, Likelihood, Logits, Reply, Request, decode_reply, encode_reply
from cmfspec.contract.reference import reference
from cmfspec.contract.rule import CATALOGUE, load_catalogue
from cmfspec.contract.subject import Subject
from cmfspec.engine import load
from cmfspec.errors import Refusal
from cmfspec.layout import IMPLEMENTED_FEATURES
from golden.files import File
from golden.models import KINDS, VOCAB, answers
from runner.adapters.python.wrapper import Wrapped, wrapped
from tests import readers, readers_engine

load_catalogue()
PLAIN, TOKENS = File("model:plain"), [3, 5, 9, 1]
RIGHT = reference()
Lie = Callable[[Request, Any], Any]


LINKS: list[InProcess] = []


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    """Their folders are deleted at the end."""
    yield
    while LINKS:
        LINKS.pop().close()


def subject(handle: Any = RIGHT) -> Subject:
    """Asked in this process."""
    LINKS.append(InProcess(handle))
    return Subject(LINKS[-1])


def lying(lie: Lie) -> Subject:
    """The reference, but for what it leaves in `out`."""

    def handle(request: Request) -> Reply:
        reply = RIGHT(request)
        if request.op == "logits" and reply.status == "ok":
            assert request.out is not None
            shape = reply.value.shape
            path = Path(request.out)
            told = lie(request, np.frombuffer(path.read_bytes(), "<f4").reshape(shape).copy())
            path.write_bytes(np.ascontiguousarray(told, "<f4").tobytes())
            return msgspec.structs.replace(reply, value=Logits([*told.shape]))
        return reply

    return subject(handle)


WANT = load(cmfspec.open(PLAIN.content())).logits(TOKENS)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"nan"}))
def test_a_small_model_computes_however_it_is_asked(kind: str) -> None:
    """In one call or in several, all rows or the last; what follows is the highest, and the likelihood that of the logits."""
    asked, file = subject(), File(f"model:{kind}")
    whole = asked.logits(file, TOKENS).of_shape(4, VOCAB)
    asked.logits(file, TOKENS, split=[2, 1, 1]).must_be(whole)
    asked.logits(file, TOKENS, rows="last").must_be(whole[-1:])
    asked.generate(file, TOKENS, 1).must_be([int(whole[-1].argmax())])
    asked.generate(file, TOKENS, 3, stop=[int(whole[-1].argmax())]).must_be([])
    rows = whole[:-1].astype(np.float64)
    lost = np.log(np.exp(rows).sum(axis=1)) - rows[range(3), TOKENS[1:]]
    asked.likelihood(file, TOKENS, 32, 16).must_be(float(lost.sum()), 3)


def test_a_model_of_the_oracle_computes_what_the_oracle_says() -> None:
    """Over the wire as in the engine's own tests."""
    said, file = answers("llama"), File("oracle:llama")
    ids = said["token_ids"][0].tolist()
    subject().logits(file, ids).must_be(said["logits"][0])
    subject().generate(file, ids, 16).must_be(said["greedy"][0].tolist())


LIES: dict[str, Lie] = {
    "zeros": lambda _, right: np.zeros_like(right),
    "uniform": lambda _, right: np.full_like(right, right.mean()),
    "not a number": lambda _, right: right * np.nan,
    "one infinity": lambda _, right: np.where(np.arange(right.size).reshape(right.shape) == 5, np.inf, right),
    "the last row everywhere": lambda _, right: np.broadcast_to(right[-1], right.shape),
    "the last row only": lambda _, right: right[-1:],
    "the rows in reverse": lambda _, right: right[::-1],
    "a row late": lambda _, right: np.roll(right, 1, axis=0),
    "probabilities": lambda _, right: np.exp(right) / np.exp(right).sum(axis=1, keepdims=True),
    "a little off": lambda _, right: right + np.float32(1e-3),
    "another vocabulary": lambda _, right: right[:, :-1],
    "sideways": lambda _, right: right.T,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_logits_is_not_believed(lie: str) -> None:
    """A wrong value, whatever the tolerance would say of it."""
    with pytest.raises(WrongValue):
        lying(LIES[lie]).logits(PLAIN, TOKENS).must_be(WANT)


def test_what_is_not_finite_is_within_no_tolerance() -> None:
    """Not even where the same is wanted."""
    nothing = np.full_like(WANT, np.nan)
    with pytest.raises(WrongValue, match="finite"):
        lying(lambda _, right: right * np.nan).logits(PLAIN, TOKENS).must_be(nothing, np.inf)


@pytest.mark.parametrize(
    ("handle", "outcome"),
    [
        (lambda _: Reply("ok", Logits([4, VOCAB])), BrokenProtocol),
        (lambda _: Reply("refused", None, "Other", "no"), WrongReject),
        (lambda _: Reply("unsupported"), ErrorReply),
        (lambda _: Reply("error", None, "", "no"), ErrorReply),
    ],
    ids=["nothing written", "refused", "unsupported", "error"],
)
def test_no_logits_where_some_are_due_is_a_failure(handle: Any, outcome: type[Outcome]) -> None:
    """Each by its name."""
    with pytest.raises(outcome):
        subject(lambda r: handle(r) if r.op == "logits" else RIGHT(r)).logits(PLAIN, TOKENS).must_be(WANT)


@pytest.mark.parametrize("tokens", [[], [VOCAB], [-1], [0, 2**31], [1] * 33], ids=str)
def test_tokens_that_the_model_lacks_are_refused(tokens: list[int]) -> None:
    """None, outside the vocabulary, past the context."""
    subject().logits(PLAIN, tokens).must_refuse()


def test_a_wrong_continuation_and_a_wrong_likelihood_are_told_apart_from_right_ones() -> None:
    """One token too few, another token, another count, no number."""
    asked = subject()
    right = asked.generate(PLAIN, TOKENS, 3).reply.value.tokens
    for wrong in (right[:2], [*right, 1], [right[0], (right[1] + 1) % VOCAB, right[2]]):
        with pytest.raises(WrongValue):
            asked.generate(PLAIN, TOKENS, 3).must_be(wrong)
    likelihood = asked.likelihood(PLAIN, TOKENS, 32, 16)
    likelihood.must_be(likelihood.reply.value.nll, 3)
    for nll, count in ((likelihood.reply.value.nll, 4), (likelihood.reply.value.nll * 1.01, 3), (0.0, 3)):
        with pytest.raises(WrongValue):
            likelihood.must_be(nll, count)
    infinite = replace(likelihood, reply=Reply("ok", Likelihood(float("inf"), 3)))
    with pytest.raises(WrongValue):
        infinite.must_be(float("inf"), 3)


def test_what_is_not_declared_is_not_asked() -> None:
    """An operation, a family of models; a hello that says nothing of families runs all of the text's."""

    def modest(request: Request) -> Reply:
        reply = RIGHT(request)
        if isinstance(reply.value, Hello):
            reply.value.operations.remove("generate")
            reply.value.families[:] = ["llama"]
        return reply

    asked = subject(modest)
    asked.needs_family("llama")
    with pytest.raises(NotApplicable, match="generate"):
        asked.generate(PLAIN, TOKENS, 1)
    with pytest.raises(NotApplicable, match="qwen2_moe"):
        asked.needs_family("llama", "qwen2_moe")
    old = b'{"id":1,"ok":{"protocol":1,"name":"r","version":"","operations":[],"features":[],"dtypes":[]}}'
    assert "qwen3_5" in decode_reply(old, Request(1, "hello", "")).value.families
    assert encode_reply(1, Reply("ok", Logits([2, 3]))) == b'{"id":1,"ok":{"shape":[2,3]}}\n'


def test_an_engine_that_rounds_activations_is_in_a_class_of_its_own() -> None:
    """ENG-003: as likely within 0.05 a token where hello says so, and held to each logit where it doesn't."""

    def rounding(activations: str, error: float) -> Subject:
        def handle(request: Request) -> Reply:
            reply = RIGHT(request)
            if isinstance(reply.value, Hello):
                return msgspec.structs.replace(
                    reply, value=msgspec.structs.replace(reply.value, activations=activations)
                )
            if request.op == "logits" and reply.status == "ok":
                path = Path(request.out or "")
                logits = np.frombuffer(path.read_bytes(), "<f4") * np.float32(1 + error)
                path.write_bytes(logits.astype("<f4").tobytes())
            return reply

        return subject(handle)

    check = CATALOGUE["ENG-003"].check
    check(rounding("f32", 0), dtype="q8_row")
    check(rounding("int8", 0.01), dtype="q8_row")
    for activations, error in (("f32", 0.01), ("int8", 1.0)):
        with pytest.raises(WrongValue):
            check(rounding(activations, error), dtype="q8_row")


def test_what_an_engine_does_not_run_under_is_not_asked() -> None:
    """Masks and skills: a rule about them is not applicable."""

    def bare(request: Request) -> Reply:
        reply = RIGHT(request)
        if isinstance(reply.value, Hello):
            reply.value.under.clear()
        return reply

    for identity, arguments in (("MASK-018", {"text": TOKENS}), ("SKILL-019", {"skill": "zzz"})):
        CATALOGUE[identity].check(subject(), **arguments)
        with pytest.raises(NotApplicable, match="under a"):
            CATALOGUE[identity].check(subject(bare), **arguments)


def test_a_python_class_with_these_methods_is_asked() -> None:
    """And one without them isn't."""

    def wrap(reader: Any) -> Subject:
        return subject(wrapped(Wrapped("it", reader, (Refusal,), IMPLEMENTED_FEATURES, (0,))))

    asked = wrap(readers_engine.Engine)
    assert asked.hello.operations[-4:] == ["logits", "generate", "ppl", "bye"]
    asked.logits(PLAIN, TOKENS, split=[1, 3]).must_be(WANT)
    asked.logits(PLAIN, TOKENS, rows="last").must_be(WANT[-1:])
    asked.generate(PLAIN, TOKENS, 1).must_be([int(WANT[-1].argmax())])
    asked.likelihood(PLAIN, TOKENS, 32, 16).must_be(subject().likelihood(PLAIN, TOKENS, 32, 16).reply.value.nll, 3)
    with pytest.raises(WrongValue):
        wrap(readers_engine.Zeros).logits(PLAIN, TOKENS).must_be(WANT)
    assert "logits" not in wrap(readers.Ours).hello.operations
