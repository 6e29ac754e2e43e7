"""§9, a model with a skill: where the skill has a tensor it takes the place of the backbone's."""

from __future__ import annotations

from cmfspec.contract.rule import DERIVED, ENGINE, LITERAL, rule
from cmfspec.contract.subject import Subject
from conformance.draws import sampled_from
from conformance.running import TEXT, computed
from golden.files import File

PLAIN = "model:plain"
UP, DOWN, Q = (f"model.layers.{{}}.{name}.weight" for name in ("mlp.up_proj", "mlp.down_proj", "self_attn.q_proj"))
CHANGED = {"a": (UP, DOWN), "a2": (Q,)}  # of the first layer, by the second's


def _changes(prefix: str, identity: str) -> list[str]:
    return [f"{prefix}{name.format(0)}={name.format(1)}" for name in CHANGED[identity]]


SKILLED = File(
    ":".join([PLAIN, *(change for identity in CHANGED for change in _changes(f"skill.{identity}.", identity))])
).edited("header.skills", [{"id": identity, "layers": [0]} for identity in CHANGED])
RESOLVES = "skill.{active}.{name}"


@rule("SKILL-003", section="9", tier=LITERAL, binds=ENGINE, quote=RESOLVES, draw={"skill": sampled_from(("a", "a2"))})
def a_skills_tensor_stands_in_for_the_backbones(subject: Subject, skill: str) -> None:
    """One or the other, never their sum; without a skill the backbone; another skill's tensors don't count."""
    subject.needs_under("skill")
    subject.needs_family("llama")
    subject.logits(SKILLED, TEXT, skill=skill).must_be(computed(File(":".join([PLAIN, *_changes("", skill)]))))
    subject.logits(SKILLED, TEXT).must_be(computed(File(PLAIN)))


@rule(
    "SKILL-019",
    section="9",
    tier=DERIVED,
    binds=ENGINE,
    quote=RESOLVES,
    draw={"skill": sampled_from(("zzz", "A", "a3", "skill"))},
)
def a_skill_that_the_file_lacks_is_refused(subject: Subject, skill: str) -> None:
    """The backbone is no answer to it."""
    subject.needs_under("skill")
    subject.needs_family("llama")
    text = TEXT[::-1]
    subject.logits(SKILLED, text, skill="a").must_be(computed(File(":".join([PLAIN, *_changes("", "a")])), text))
    subject.logits(SKILLED, text, skill=skill).must_refuse()
