"""An engine as a whole: its logits, how it goes on, how likely it finds a text, and models in every encoding.

Law: on the models of the oracle it is Hugging Face that says what is right (golden/oracle); a model in another encoding
computes what its decoded weights compute.
"""

from __future__ import annotations

from cmfspec.codecs import CODECS, ENCODERS
from cmfspec.contract.compare import nll
from cmfspec.contract.protocol import Family
from cmfspec.contract.rule import ENGINE, FAMILY, rule
from cmfspec.contract.subject import Subject
from cmfspec.format.blueprint import canonical, to_json
from cmfspec.layout import DTYPE_IDS
from conformance.draws import sampled_from
from conformance.running import TEXT, TOLERANCE, computed
from golden.files import File
from golden.models import answers, decoded

RUNS = "已知家族的新模型可以在零引擎改动的情况下加载"
LOSSY = tuple(name for name in ENCODERS if name != "f32" and CODECS[DTYPE_IDS[name]].weight)
GREEDY = 16  # tokens that the oracle went on by


@rule(
    "ENG-001",
    section="2",
    tier=FAMILY,
    binds=ENGINE,
    quote=RUNS,
    draw={
        "family": sampled_from(TOLERANCE),
        "row": sampled_from((0, 1)),
        "split": sampled_from((None, [1] * 24, [9, 2, 13])),
    },
)
def logits_are_those_of_hugging_face(subject: Subject, family: Family, row: int, split: list[int] | None) -> None:
    """Every position, however many tokens each call takes; and no logits of a token that there isn't."""
    subject.needs_family(family)
    file, said = File(f"oracle:{family}"), answers(family)
    ids, want = said["token_ids"][row].tolist(), said["logits"][row]
    subject.logits(file, ids, split=split).must_be(want, TOLERANCE[family])
    subject.logits(file, ids, rows="last").must_be(want[-1:], TOLERANCE[family])
    subject.logits(file, [*ids[:2], want.shape[1]]).must_refuse()


@rule(
    "ENG-002",
    section="2",
    tier=FAMILY,
    binds=ENGINE,
    quote=RUNS,
    draw={"family": sampled_from(TOLERANCE), "row": sampled_from((0, 1)), "stop": sampled_from((None, 1, 6))},
)
def a_greedy_continuation_is_that_of_hugging_face(subject: Subject, family: Family, row: int, stop: int | None) -> None:
    """Token by token, as far as the number or a stop id says; the oracle's highest logit leads by 0.04 everywhere."""
    subject.needs_family(family)
    said = answers(family)
    want = said["greedy"][row].tolist()
    stops = [] if stop is None else [want[stop]]
    kept = want[: want.index(stops[0])] if stops else want
    subject.generate(File(f"oracle:{family}"), said["token_ids"][row].tolist(), GREEDY, stops).must_be(kept)


@rule(
    "ENG-003",
    section="3.2",
    tier=FAMILY,
    binds=ENGINE,
    quote="truth = per-tensor dtype in the directory",
    draw={"dtype": sampled_from(LOSSY)},
)
def a_quantised_model_computes_with_its_decoded_weights(subject: Subject, dtype: str) -> None:
    """As the same model in float32; or about as likely, where an engine says that it rounds activations."""
    subject.needs("logits")
    subject.needs_family("llama")
    subject.needs_dtype(DTYPE_IDS[dtype])
    file = File(f"quant:plain:{dtype}")
    want = computed(File(canonical(to_json(decoded(file.blueprint)))))
    answer = subject.logits(file, TEXT)
    if subject.hello.activations == "f32":
        answer.must_be(want)
    else:
        answer.must_be_as_likely(want, TEXT)


@rule(
    "ENG-004",
    section="2",
    tier=FAMILY,
    binds=ENGINE,
    quote=RUNS,
    draw={
        "family": sampled_from(TOLERANCE),
        "row": sampled_from((0, 1)),
        "window": sampled_from(([24, 12], [256, 1], [9, 4], [8, 7])),
    },
)
def a_text_is_as_likely_as_hugging_face_says(subject: Subject, family: Family, row: int, window: list[int]) -> None:
    """A sum over all tokens but the first, each counted once, by the first window that has it and one before it."""
    subject.needs_family(family)
    file, said, (width, stride) = File(f"oracle:{family}"), answers(family), window
    ids = said["token_ids"][row].tolist()
    whole = float(said["nll"][row]) * (len(ids) - 1)
    want = whole if width >= len(ids) else windowed(file, ids, width, stride)
    subject.likelihood(file, ids, width, stride).must_be(want, len(ids) - 1)


def windowed(file: File, ids: list[int], width: int, stride: int) -> float:
    """The sum by windows, of our engine's logits."""
    total, counted = 0.0, 1
    for begin in range(0, len(ids), stride):
        piece = ids[begin : begin + width]
        logits = computed(file, tuple(piece))
        first = counted - begin - 1
        total += nll(logits[first:], piece[first:])
        counted = begin + len(piece)
        if counted == len(ids):
            break
    return total
