"""§2.2, mixtures of experts: who routes, who is chosen, and what their answers are worth."""

from __future__ import annotations

from cmfspec.contract.rule import ENGINE, LITERAL, NEWER_TEXT, OBSERVATION, READER, rule, untested
from cmfspec.contract.subject import Subject
from conformance.draws import sampled_from
from conformance.running import TEXT, computed
from golden.files import File

MOE = File("model:moe")
TOP_K, NORMALISED = "header.arch.moe.top_k", "header.arch.moe.norm_topk_prob"
SOFTMAX = "路由器 logits 做 softmax → top-k"
TEXTS = ([*TEXT], [9], [38, 38, 2, 7], [11, 30, 4, 25, 19, 0])
UNPACKED = "binds converters: no operation asks for a model of Hugging Face to be packed"


@rule(
    "MOE-003",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote="哪些层是 MoE，由目录中路由器的**存在与否**决定",
    draw={"file": sampled_from((MOE, File("model:moe_first")))},
)
def a_layer_has_experts_where_it_has_a_router(subject: Subject, file: File) -> None:
    """Layer by layer: a model may have both kinds."""
    subject.needs_family("qwen3_moe")
    subject.logits(file, TEXT).must_be(computed(file))


@rule(
    "MOE-004",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote=SOFTMAX,
    draw={"top_k": sampled_from((1, 2, 4)), "text": sampled_from(TEXTS)},
)
def the_softmax_is_over_all_experts(subject: Subject, top_k: int, text: list[int]) -> None:
    """Where the chosen are not renormalised, the others keep their share."""
    subject.needs_family("qwen2_moe")
    file = MOE.edited(NORMALISED, False).edited(TOP_K, top_k)
    subject.logits(file, text).must_be(computed(file, tuple(text)))


@rule(
    "MOE-005",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote="平局时：取较低索引，torch.topk 顺序",
    draw={"top_k": sampled_from((1, 2, 3)), "text": sampled_from(TEXTS)},
)
def among_equal_experts_the_lower_goes_first(subject: Subject, top_k: int, text: list[int]) -> None:
    """Four of five have the very same row in the router."""
    subject.needs_family("qwen3_moe")
    file = File("model:ties").edited(TOP_K, top_k)
    subject.logits(file, text).must_be(computed(file, tuple(text)))


@rule(
    "MOE-006",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote="`norm_topk_prob`，对所选的 k 个重归一化",
    draw={"top_k": sampled_from((1, 2, 4)), "text": sampled_from(TEXTS)},
)
def the_chosen_are_renormalised_where_the_file_says_so(subject: Subject, top_k: int, text: list[int]) -> None:
    """Their weights then sum to 1."""
    subject.needs_family("qwen3_moe")
    file = MOE.edited(TOP_K, top_k)
    subject.logits(file, text).must_be(computed(file, tuple(text)))


@rule(
    "MOE-007",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote="Σwₑ·FFNₑ(x)",
    draw={"text": sampled_from(TEXTS)},
)
def what_experts_say_is_summed_by_weight(subject: Subject, text: list[int]) -> None:
    """FFN = down(silu(gate·x) ⊙ up·x), of all experts at once, so that none can be passed over."""
    subject.needs_family("qwen3_moe")
    file = MOE.edited(TOP_K, 5)
    subject.logits(file, text).must_be(computed(file, tuple(text)))


@rule(
    "MOE-008",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote="专家总是以权重 `sigmoid(shared_expert_gate·x)` 加入",
    draw={"text": sampled_from(TEXTS)},
)
def a_shared_expert_is_always_added_by_its_gate(subject: Subject, text: list[int]) -> None:
    """Whoever else is chosen."""
    subject.needs_family("qwen2_moe")
    file = File("model:shared")
    subject.logits(file, text).must_be(computed(file, tuple(text)))


@rule(
    "MOE-010",
    section="2.2",
    tier=LITERAL,
    binds=READER,
    quote="单独的目录条目，各有**自己的** dtype",
    draw={
        "file": sampled_from(File(f"quant:moe:{dtypes}") for dtypes in ("f16:bf16", "bf16:f16:f16", "f16:f32:bf16:f32"))
    },
)
def each_expert_has_its_own_encoding(subject: Subject, file: File) -> None:
    """As any other entry of the directory has."""
    subject.must_say(file, file.tensors)


@rule(
    "MOE-013",
    section="2.2",
    tier=OBSERVATION,
    binds=ENGINE,
    quote=SOFTMAX,
    draw={"file": sampled_from((File("model:nan"),))},
)
def a_router_that_gives_no_number(subject: Subject, file: File) -> None:
    """Refused, or routed past: a crash would be neither."""
    subject.needs_family("qwen3_moe")
    subject.logits(file, TEXT).observe()


@rule(
    "MOE-014",
    section="2.2",
    tier=LITERAL,
    binds=ENGINE,
    quote=SOFTMAX,
    draw={"top_k": sampled_from((6, 8, 256))},
)
def no_more_experts_are_chosen_than_there_are(subject: Subject, top_k: int) -> None:
    """All of them, then."""
    subject.needs_family("qwen3_moe")
    file = MOE.edited(TOP_K, top_k)
    subject.logits(file, TEXT).must_be(computed(file))


untested("MOE-001", quote='"num_experts": 256', because=UNPACKED)
untested("MOE-002", quote="张量是使用 HF 名称的普通目录条目", because=UNPACKED)
untested("MOE-009", quote="写入器应当把一层的专家张量按角色", because=UNPACKED)
untested(
    "MOE-011",
    quote="专家在 mmap 中保持量化状态",
    because="which pages a process touches shows from outside on no system alike",
)
untested("MOE-012", quote=SOFTMAX, because=NEWER_TEXT)
