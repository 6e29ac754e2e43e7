"""Twins that compute wrongly (§2, §2.2, §5, §9)."""

from __future__ import annotations

from dataclasses import replace

from cmfspec.contract.reference import Parts
from conformance.twins import miscompute as wrong
from conformance.twins.twin import Twin

EVERYWHERE = "every forward has it: it shows wherever logits are compared"
GATED = "the small model of Qwen 3.5 has the gate too, and more than three rules ask it"
UNNORMALISED = "the small model of Qwen 2 does not renormalise, and three rules ask it too"
MIXTURES = "most rules about experts ask a model that renormalises"

TWINS: tuple[Twin, ...] = (
    Twin("forgets-between-calls", "ENG-001", "begins anew with each call", wrong.answering(logits=wrong.forgets)),
    Twin("token-modulo", "ENG-001", "takes a token past the vocabulary modulo it", wrong.answering(logits=wrong.wraps)),
    Twin("first-for-last", "ENG-001", "gives the first row for the last", wrong.answering(logits=wrong.first_for_last)),
    Twin(
        "interleaved-pairs", "ENG-001", "rotates pairs of neighbours", wrong.other_values(wrong.interleaved), EVERYWHERE
    ),
    Twin("says-the-stop", "ENG-002", "gives the stop id too", wrong.answering(generate=wrong.says_the_stop)),
    Twin("never-stops", "ENG-002", "does not look for stop ids", wrong.answering(generate=wrong.never_stops)),
    Twin("weights-in-bf16", "ENG-003", "keeps decoded weights in bfloat16", wrong.other_values(wrong.as_bf16)),
    Twin("mean-for-sum", "ENG-004", "answers with the mean", Parts(likelihood=wrong.mean_for_sum)),
    Twin("one-window", "ENG-004", "does not cut the text into windows", Parts(likelihood=wrong.one_window)),
    Twin("style-by-default", "HDR-014", "takes qwen where norm_style is absent", wrong.style_by_default(None)),
    Twin("any-style", "HDR-030", "takes qwen for a norm_style that it doesn't know", wrong.style_by_default()),
    Twin(
        "small-eps-only",
        "HDR-015",
        "uses no eps above 1e-4",
        wrong.with_arch(lambda arch: {"rms_norm_eps": min(arch.rms_norm_eps, 1e-4)}),
    ),
    Twin(
        "ten-times-eps",
        "HDR-015",
        "adds ten times eps",
        wrong.with_arch(lambda arch: {"rms_norm_eps": 10 * arch.rms_norm_eps}),
        EVERYWHERE,
    ),
    Twin("known-names", "HDR-018", "refuses an arch_name that it doesn't know", Parts(model=wrong.known_names)),
    Twin(
        "zeros-for-missing", "HDR-018", "answers zeros where a tensor is missing", Parts(model=wrong.zeros_for_missing)
    ),
    Twin(
        "all-biases-or-none",
        "HDR-019",
        "applies biases only if all three are there",
        wrong.whole_sets_only([f"{role}_proj.bias" for role in wrong.ROLES]),
    ),
    Twin(
        "both-norms-or-none",
        "HDR-020",
        "norms queries and keys only if both have a norm",
        wrong.whole_sets_only(["q_norm.weight", "k_norm.weight"]),
    ),
    Twin(
        "gate-in-blocks",
        "HDR-021",
        "takes all gates to follow all queries",
        wrong.other_values(wrong.gate_in_blocks),
        GATED,
    ),
    Twin("ties-anyway", "HDR-022", "takes the embedding for a head that is missing", Parts(model=wrong.ties_anyway)),
    Twin("layers-by-tag", "HDR-029", "passes over a layer with another's tag", Parts(model=wrong.layers_by_tag)),
    Twin("last-layer-routes", "MOE-003", "knows routers in the last layer only", Parts(model=wrong.last_layer_routes)),
    Twin(
        "softmax-of-the-chosen",
        "MOE-004",
        "takes the softmax over the chosen",
        wrong.with_moe(lambda _: {"norm_topk_prob": True}),
        UNNORMALISED,
    ),
    Twin("higher-first", "MOE-005", "chooses the higher index among equals", wrong.computing(wrong.higher_first)),
    Twin(
        "never-renormalises",
        "MOE-006",
        "renormalises nothing",
        wrong.with_moe(lambda _: {"norm_topk_prob": False}),
        MIXTURES,
    ),
    Twin("at-most-four", "MOE-007", "asks no more than four", wrong.with_moe(lambda moe: {"top_k": min(moe.top_k, 4)})),
    Twin("shared-ungated", "MOE-008", "adds the shared expert whole", wrong.without("shared_expert_gate.weight")),
    Twin(
        "first-experts-encoding",
        "MOE-010",
        "decodes all experts as the first is encoded",
        Parts(values=wrong.first_experts_encoding),
    ),
    Twin("no-large-k", "MOE-014", "refuses to choose more than there are", Parts(model=wrong.no_large_k)),
    Twin("gates-unseen", "MASK-016", "runs layers whose gate is shut", wrong.all_set("gates")),
    Twin("heads-unseen", "MASK-017", "counts heads whose bit is 0", wrong.all_set("heads")),
    Twin("neurons-unseen", "MASK-018", "counts neurons whose bit is 0", wrong.all_set("ffn")),
    Twin(
        "experts-unseen",
        "MASK-013",
        "chooses experts whose bit is 0",
        wrong.masked_otherwise(lambda _, mask: replace(mask, experts=None)),
    ),
    Twin(
        "asks-the-dead",
        "MOE-015",
        "routes to masked experts, who add nothing",
        wrong.masked_otherwise(wrong.asks_the_dead),
    ),
    Twin("never-fewer", "MOE-016", "refuses to choose fewer than top_k", wrong.masked_otherwise(wrong.never_fewer)),
    Twin("sticky-mask", "MASK-031", "keeps a mask on", Parts(model=wrong.sticky)),
    Twin("dense-for-any-task", "MASK-034", "takes an unknown task for none", wrong.dense_for("MASK-034")),
    Twin("sums-skills", "SKILL-003", "adds a skill's tensor to the backbone's", wrong.answering(logits=wrong.sums)),
    Twin("dense-for-any-skill", "SKILL-019", "takes an unknown skill for none", wrong.dense_for("SKILL-019")),
)
