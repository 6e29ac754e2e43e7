"""§2, what the header and the tensors that are there make an engine compute.

Law: a small model is the plain one with tensors or fields more or less; what it computes must be what it should, every row of
it. Where the text lets an engine refuse, other logits are what it may not give.
"""

from __future__ import annotations

from cmfspec.contract.protocol import Family
from cmfspec.contract.rule import DERIVED, ENGINE, FAMILY, LITERAL, rule
from cmfspec.contract.subject import Subject
from conformance.draws import sampled_from
from conformance.running import TEXT, TOLERANCE, computed
from golden.files import File

PLAIN = File("model:plain")
MANDATORY = "`norm_style` 对引擎而言是强制的"
BY_TENSORS = "能力分派由**张量存在与否驱动**"
ATTENTION = "model.layers.0.self_attn."


@rule(
    "HDR-014",
    section="2",
    tier=LITERAL,
    binds=ENGINE,
    quote=MANDATORY,
    draw={"file": sampled_from((File("model:plain:-norm_style"), PLAIN.edited("header.arch.norm_style", None)))},
)
def an_engine_does_not_guess_the_style_of_norms(subject: Subject, file: File) -> None:
    """Without it a forward is silent garbage in every norm."""
    subject.needs_family("llama")
    subject.logits(PLAIN, TEXT).must_be(computed(PLAIN))
    subject.logits(file, TEXT).must_refuse()


@rule(
    "HDR-030",
    section="2",
    tier=LITERAL,
    binds=ENGINE,
    quote=MANDATORY,
    draw={"style": sampled_from(("layer", "", "Qwen", "rms", 1))},
)
def a_style_of_norms_that_the_text_lacks_stops_an_engine(subject: Subject, style: str | int) -> None:
    """There are two; what is neither is not the first of them."""
    subject.needs_family("llama")
    text = TEXT[::-1]
    subject.logits(PLAIN, text).must_be(computed(PLAIN, text))
    subject.logits(PLAIN.edited("header.arch.norm_style", style), text).must_refuse()


@rule(
    "HDR-015",
    section="2",
    tier=LITERAL,
    binds=ENGINE,
    quote='"qwen": x̂·w | "gemma": x̂·(1+w)',
    draw={"style": sampled_from(("qwen", "gemma")), "eps": sampled_from((1e-6, 1e-3, 0.25))},
)
def a_norm_is_the_root_of_the_mean_square_and_eps(subject: Subject, style: str, eps: float) -> None:
    """eps under the root, then ·w or ·(1+w), in every norm of the forward."""
    subject.needs_family("llama")
    file = PLAIN.edited("header.arch.norm_style", style).edited("header.arch.rms_norm_eps", eps)
    subject.logits(file, TEXT).must_be(computed(file))


@rule(
    "HDR-018",
    section="2",
    tier=LITERAL,
    binds=ENGINE,
    quote=BY_TENSORS,
    draw={
        "name": sampled_from(("zzz", "", "gemma3", "模型")),
        "without": sampled_from(
            (
                "model.layers.1.mlp.up_proj.weight",
                "model.layers.0.self_attn.o_proj.weight",
                "model.layers.1.input_layernorm.weight",
                "model.embed_tokens.weight",
                "model.norm.weight",
            )
        ),
    },
)
def the_tensors_say_what_is_computed_and_no_name_does(subject: Subject, name: str, without: str) -> None:
    """Under any name the same tensors are the same model; where one is missing, nothing takes its place."""
    subject.needs_family("llama")
    subject.logits(PLAIN.edited("header.arch.arch_name", name), TEXT).must_be(computed(PLAIN))
    subject.logits(File(f"model:plain:-{without}"), TEXT).must_refuse()


@rule(
    "HDR-019",
    section="2",
    tier=LITERAL,
    binds=ENGINE,
    quote="q/k 偏置",
    draw={
        "file": sampled_from(
            File(name)
            for name in (
                "model:bias",
                *(f"model:bias:-{ATTENTION}{role}_proj.bias" for role in "qkv"),
                f"model:bias:-{ATTENTION}q_proj.bias:-{ATTENTION}k_proj.bias",
            )
        )
    },
)
def a_bias_counts_where_it_is_there(subject: Subject, file: File) -> None:
    """Each by itself: the others of its layer may be missing."""
    subject.needs_family("qwen2")
    subject.logits(file, TEXT).must_be(computed(file))


@rule(
    "HDR-020",
    section="2",
    tier=LITERAL,
    binds=ENGINE,
    quote="qk 归一化",
    draw={
        "file": sampled_from(
            File(name)
            for name in ("model:qk_norm", *(f"model:qk_norm:-{ATTENTION}{role}_norm.weight" for role in "qk"))
        )
    },
)
def queries_and_keys_are_normed_where_their_norms_are_there(subject: Subject, file: File) -> None:
    """Per head, before the rotation; each by itself."""
    subject.needs_family("qwen3")
    subject.logits(file, TEXT).must_be(computed(file))


@rule(
    "HDR-021",
    section="2",
    tier=FAMILY,
    binds=ENGINE,
    quote="由投影宽度决定的输出门",
    draw={"length": sampled_from((1, 4, 8))},
)
def a_query_projection_of_twice_the_width_gates_the_output(subject: Subject, length: int) -> None:
    """Per head its queries and then its gate; σ(gate) before o_proj."""
    subject.needs_family("qwen3_5")
    file = File("model:gated")
    subject.logits(file, TEXT[:length]).must_be(computed(file)[:length])


@rule(
    "HDR-022",
    section="2",
    tier=DERIVED,
    binds=ENGINE,
    quote='"tie_word_embeddings": false',
    draw={"file": sampled_from((File("model:tied"), PLAIN.edited("header.arch.tie_word_embeddings", True)))},
)
def the_embedding_is_the_head_only_where_it_may_be(subject: Subject, file: File) -> None:
    """lm_head where it is there; else the embedding if they are tied; else nothing is."""
    subject.needs_family("llama")
    subject.logits(file, TEXT).must_be(computed(file))
    subject.logits(File("model:plain:-lm_head.weight"), TEXT).must_refuse()


@rule(
    "HDR-029",
    section="2",
    tier=DERIVED,
    binds=ENGINE,
    quote="而非通过匹配模型名称",
    draw={
        "family": sampled_from(("llama", "qwen3_5_mtp")),
        "tags": sampled_from(
            (["FullAttention", "LinearAttention"], ["zzz", "zzz"], ["LinearAttention", "LinearAttention"], ["", "full"])
        ),
    },
)
def what_a_layer_is_does_not_follow_from_its_tag(subject: Subject, family: Family, tags: list[str]) -> None:
    """The same logits, or a refusal: a wrong tag gives no other model."""
    subject.needs_family(family)
    file = File(f"oracle:{family}")
    want = computed(file)
    subject.logits(file, TEXT).must_be(want, TOLERANCE[family])
    subject.logits(file.edited("header.arch.layer_types", tags), TEXT).must_be_or_refuse(want, TOLERANCE[family])
