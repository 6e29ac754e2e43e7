"""§5 and §11.1, a model under a mask: it computes what the model computes that the mask leaves."""

from __future__ import annotations

from cmfspec.contract.rule import DERIVED, ENGINE, FAMILY, LITERAL, rule
from cmfspec.contract.subject import Subject
from conformance.draws import sampled_from
from conformance.running import TEXT, computed
from golden.files import File
from golden.masked import TASK

TEXTS = ([*TEXT], [38, 38, 2, 7], [11, 30, 4, 25, 19, 0])
ROUTABLE = "选择只在可路由集合上进行，路由器 softmax 在其上重新归一化"
NORMALISED, TOP_K = "header.arch.moe.norm_topk_prob", "header.arch.moe.top_k"


def _as_cut(subject: Subject, what: str, text: list[int], **fields: bool | int) -> None:
    """Under its mask the file computes what is left without one."""
    file, left = File(f"masked:{what}"), File(f"cut:{what}")
    for name, value in fields.items():
        file, left = (f.edited(f"header.arch.moe.{name}", value) for f in (file, left))
    subject.logits(file, text, task=TASK).must_be(computed(left, tuple(text)))


@rule("MASK-016", section="5", tier=FAMILY, binds=ENGINE, quote="layer_gates", draw={"text": sampled_from(TEXTS)})
def a_layer_whose_gate_is_shut_is_passed_over(subject: Subject, text: list[int]) -> None:
    """The residual stream goes by."""
    subject.needs_under("task")
    subject.needs_family("llama")
    _as_cut(subject, "gates", text)


@rule("MASK-017", section="5", tier=DERIVED, binds=ENGINE, quote="head bitfields", draw={"text": sampled_from(TEXTS)})
def a_head_whose_bit_is_0_adds_nothing(subject: Subject, text: list[int]) -> None:
    """As if its columns of o_proj were 0."""
    subject.needs_under("task")
    subject.needs_family("llama")
    _as_cut(subject, "heads", text)


@rule("MASK-018", section="5", tier=LITERAL, binds=ENGINE, quote="置位→ 活跃", draw={"text": sampled_from(TEXTS)})
def a_neuron_whose_bit_is_0_adds_nothing(subject: Subject, text: list[int]) -> None:
    """As if its column of down_proj were 0; each layer has its own."""
    subject.needs_under("task")
    subject.needs_family("llama")
    _as_cut(subject, "ffn", text)


@rule(
    "MASK-013",
    section="5",
    tier=LITERAL,
    binds=ENGINE,
    quote=ROUTABLE,
    draw={"experts": sampled_from(("134", "024", "1234")), "text": sampled_from(TEXTS)},
)
def an_expert_whose_bit_is_0_is_never_chosen(subject: Subject, experts: str, text: list[int]) -> None:
    """The choice is among the others."""
    subject.needs_under("task")
    subject.needs_family("qwen3_moe")
    _as_cut(subject, experts, text)


@rule(
    "MOE-015",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote=ROUTABLE,
    draw={"experts": sampled_from(("134", "024")), "text": sampled_from(TEXTS)},
)
def the_softmax_is_over_the_experts_that_can_be_chosen(subject: Subject, experts: str, text: list[int]) -> None:
    """Even where the chosen are not renormalised."""
    subject.needs_under("task")
    subject.needs_family("qwen2_moe")
    _as_cut(subject, experts, text, norm_topk_prob=False)


@rule(
    "MOE-016",
    section="11.1",
    tier=LITERAL,
    binds=ENGINE,
    quote="选择语义不变（§2.2）：softmax 在保留集合上重新归一化",
    draw={"experts": sampled_from(("1", "3", "24")), "text": sampled_from(TEXTS)},
)
def no_more_are_chosen_than_a_mask_leaves(subject: Subject, experts: str, text: list[int]) -> None:
    """Three are asked for, and fewer can be chosen."""
    subject.needs_under("task")
    subject.needs_family("qwen3_moe")
    _as_cut(subject, experts, text, top_k=3)


@rule(
    "MASK-031",
    section="5",
    tier=DERIVED,
    binds=ENGINE,
    quote="任务掩码 =",
    draw={"what": sampled_from(("ffn", "heads", "gates"))},
)
def a_mask_leaves_no_trace_behind(subject: Subject, what: str) -> None:
    """Masked, dense, masked, dense, in one process: twice the same two answers."""
    subject.needs_under("task")
    subject.needs_family("llama")
    file = File(f"masked:{what}")
    for _ in range(2):
        subject.logits(file, TEXT, task=TASK).must_be(computed(File(f"cut:{what}")))
        subject.logits(file, TEXT, task="dense").must_be(computed(File("model:plain")))


@rule(
    "MASK-034",
    section="5",
    tier=DERIVED,
    binds=ENGINE,
    quote="任务掩码 =",
    draw={"task": sampled_from(("nope", "Kept", "kept ", "kep"))},
)
def a_task_that_the_file_lacks_is_refused(subject: Subject, task: str) -> None:
    """The dense model is no answer to it."""
    subject.needs_under("task")
    subject.needs_family("llama")
    file, text = File("masked:ffn"), TEXT[::-1]
    subject.logits(file, text, task=TASK).must_be(computed(File("cut:ffn"), text))
    subject.logits(file, text, task=task).must_refuse()
