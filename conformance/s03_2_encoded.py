"""§3.1 and §3.2, what an encoder has to keep: payloads of given weights, held to the laws of `conformance.encoding`.

Law: bounds and invariants, never bytes. An encoder that uses another encoding than it was asked for says so; only vectors
and very small tensors are a reason.
"""

from __future__ import annotations

from cmfspec.codecs import CODECS, plan
from cmfspec.contract.rule import LITERAL, OBSERVATION, SHOULD, WRITER, rule, untested
from cmfspec.contract.subject import Subject
from conformance.draws import Draw, sampled_from
from conformance.encoded import Encoded
from conformance.encoding import LAWS, judge
from conformance.payloads import BUDGET
from conformance.weights import PROBES

SMALL = "f16"
_LAWS = {law.id: law for law in LAWS}
_PROBES = {probe.name: probe for probe in PROBES}


def _asks(identity: str) -> Draw:
    """`encoding: probe` for all that a law has something to say about."""
    law = _LAWS[identity]
    return sampled_from(
        f"{name}: {probe.name}"
        for name in law.encodings
        for probe in PROBES
        if not probe.options and not probe.refused
        if plan("", probe.weights.shape, name) == name and law.asks(Encoded(name, probe.weights, b""))
    )


def _held(subject: Subject, ask: str, identity: str) -> None:
    """The payload of these weights keeps the law."""
    name, _, probe = ask.partition(": ")
    weights = _PROBES[probe].weights
    encoded = subject.encode(name, weights, BUDGET if name.startswith("vbit") else None)
    encoded.must_be_in(name)
    judge(name, weights, encoded.payload, laws=[identity])


@rule(
    "DT-006",
    section="3.2",
    tier=LITERAL,
    binds=WRITER,
    quote="一维张量以及元素数 < 32 的张量始终为 `f16`",
    draw={
        "ask": sampled_from(
            f"{codec.name}: {probe}"
            for codec in CODECS.values()
            for probe in ("vector", "few")
            if codec.weight and codec.name != "f32"
        )
    },
    cases=40,
)
def vectors_and_small_tensors_are_f16(subject: Subject, ask: str) -> None:
    """Norms keep their precision, whatever the matrices get; refusing to encode them otherwise is as good. Asked of those
    that write files too: a bare encoder is told what to do, and does it."""
    subject.needs("write")
    name, _, probe = ask.partition(": ")
    weights = _PROBES[probe].weights
    encoded = subject.encode(name, weights)
    if encoded.accepted:
        encoded.must_be_in(SMALL)
        judge(SMALL, weights, encoded.payload)


@rule(
    "Q-Q8ROW-003",
    section="3.2",
    tier=LITERAL,
    binds=WRITER,
    quote="`scale[o] = absmax(row_o)/127`",
    draw={"ask": _asks("Q-Q8ROW-003")},
)
def a_row_scale_is_its_largest_weight_over_127(subject: Subject, ask: str) -> None:
    """As a half, and the quants are of that half: rounded first, divided by afterwards."""
    _held(subject, ask, "Q-Q8ROW-003")


@rule(
    "Q-Q82F-003",
    section="3.2",
    tier=SHOULD,
    binds=WRITER,
    quote="`[int8][f16 row-scale][f16 col-field]`",
    draw={"ask": _asks("Q-Q82F-003")},
)
def two_fields_lose_no_more_than_half_a_step(subject: Subject, ask: str) -> None:
    """However the fields were found."""
    _held(subject, ask, "Q-Q82F-003")


@rule(
    "Q-Q4B-003",
    section="3.2",
    tier=LITERAL,
    binds=WRITER,
    quote="`scale = absmax(group)/7`",
    draw={"ask": _asks("Q-Q4B-003")},
)
def a_group_scale_is_its_largest_weight_over_7(subject: Subject, ask: str) -> None:
    """For q4_block, and for q4_tiled, which has the same values."""
    _held(subject, ask, "Q-Q4B-003")


@rule(
    "Q-Q4B-004",
    section="3.2",
    tier=SHOULD,
    binds=WRITER,
    quote="在展平张量上按 32 分组，零填充",
    draw={"ask": _asks("Q-Q4B-004")},
)
def what_fills_the_last_group_is_zero(subject: Subject, ask: str) -> None:
    """Nibble 8."""
    _held(subject, ask, "Q-Q4B-004")


@rule(
    "Q-Q4TP-005",
    section="3.2",
    tier=LITERAL,
    binds=WRITER,
    quote="`lo`/`step` 取自该行 log-scale 的精确 min/max",
    draw={"ask": _asks("Q-Q4TP-005")},
)
def a_ladder_reaches_from_the_quietest_group_to_the_loudest(subject: Subject, ask: str) -> None:
    """So that no code is ever out of range."""
    _held(subject, ask, "Q-Q4TP-005")


@rule(
    "Q-Q4TP-006",
    section="3.2",
    tier=LITERAL,
    binds=WRITER,
    quote="编码器**必须**先把 `lo`/`step` 舍入到 f16 再选码",
    draw={"ask": _asks("Q-Q4TP-006")},
)
def codes_are_chosen_on_the_stored_ladder(subject: Subject, ask: str) -> None:
    """lo and step are rounded first; the nearest rung then, or one that loses no more."""
    _held(subject, ask, "Q-Q4TP-006")


@rule("Q-Q4TP-007", section="3.2", tier=LITERAL, binds=WRITER, quote="并按重建后的", draw={"ask": _asks("Q-Q4TP-007")})
def nibbles_are_of_the_scale_that_a_reader_rebuilds(subject: Subject, ask: str) -> None:
    """Else writer and reader disagree, and nobody sees it."""
    _held(subject, ask, "Q-Q4TP-007")


@rule(
    "Q-VBIT-007",
    section="3.2",
    tier=LITERAL,
    binds=WRITER,
    quote="位宽 b ∈ {3,4,5,6,8}，下限 3（claim 13）",
    draw={"ask": _asks("Q-VBIT-007")},
)
def no_row_has_fewer_than_three_bits(subject: Subject, ask: str) -> None:
    """Not even one of zeros."""
    _held(subject, ask, "Q-VBIT-007")


@rule(
    "Q-VBIT-008",
    section="3.2",
    tier=SHOULD,
    binds=WRITER,
    quote="在 log2 行幅度上朝张量的平均预算做注水",
    draw={"ask": _asks("Q-VBIT-008")},
)
def louder_rows_get_more_bits(subject: Subject, ask: str) -> None:
    """And all together as many as they were given."""
    _held(subject, ask, "Q-VBIT-008")


@rule(
    "Q-GEN-003", section="3.2", tier=SHOULD, binds=WRITER, quote="量化布局", draw={"ask": _asks("Q-GEN-003")}, cases=60
)
def what_is_lost_is_bounded(subject: Subject, ask: str) -> None:
    """Encoded and decoded, each weight is as near as its encoding can be."""
    _held(subject, ask, "Q-GEN-003")


@rule(
    "Q-GEN-004",
    section="3.2",
    tier=OBSERVATION,
    binds=WRITER,
    quote="量化布局",
    draw={
        "ask": sampled_from(
            f"{name}: {probe.name}" for name in _LAWS["Q-GEN-004"].encodings for probe in PROBES if probe.refused
        )
    },
)
def weights_that_are_no_numbers_or_too_large(subject: Subject, ask: str) -> None:
    """One would like a refusal: what is written so is found only when the model runs."""
    name, _, probe = ask.partition(": ")
    subject.encode(name, _PROBES[probe].weights).observe()


FAMILY = "`encode` is asked about one tensor: a budget that a family of experts shares does not show"
untested("Q-VBIT-009", quote="预算在**家族内共享**", because=FAMILY)
untested(
    "Q-VBIT-010", quote="在标定时收集的路由器选择频率", because="`encode` is not told how often an expert was chosen"
)
untested("Q-VBITRO-003", quote="`vbit` + 文件内行偏移表", because="shows only in a tensor of more than 4 GiB")
