"""The wrong ways of twins that compute: a model with one thing changed.

Law: our own engine does the work; a fault is a field of `arch`, a tensor that isn't seen or is another, or what is done with
the answer. A file that the right engine refuses is mended first where a twin runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.contract.reference import Parts
from cmfspec.errors import Refusal
from cmfspec.format.container import Container
from cmfspec.format.view import View

if TYPE_CHECKING:
    from cmfspec.engine import Model

ROLES = ("q", "k", "v")


def computing(change: Callable[[Model], Any]) -> Parts:
    """Our engine with the model changed once it is loaded."""
    return Parts(model=lambda opened: change(loaded(opened)))


def loaded(opened: Container, **arch: Any) -> Model:
    """The model of a file, with these fields of its header for its own."""
    from cmfspec.engine import load

    if arch:
        header = {**opened.header, "arch": {**opened.header["arch"], **arch}}
        opened = Container(View(opened.view.buffer))
        opened.view.header = header
    return load(opened)


def refuse(what: str) -> None:
    from cmfspec.engine.arch import refuse

    refuse("", what, "what it is", "something else")


# --- fields ------------------------------------------------------------------------------------------------------------


def with_arch(change: Callable[[Any], Mapping[str, Any]]) -> Parts:
    return computing(lambda model: replace(model, arch=replace(model.arch, **change(model.arch))))


def with_moe(change: Callable[[Any], Mapping[str, Any]]) -> Parts:
    def changed(arch: Any) -> Mapping[str, Any]:
        return {"moe": arch.moe and replace(arch.moe, **change(arch.moe))}

    return with_arch(changed)


def style_by_default(*wrong: object) -> Parts:
    """Takes qwen for a style that is one of these, or for one that the text lacks if none is given."""

    def model(opened: Container) -> Any:
        style = opened.header["arch"].get("norm_style")
        absent = style is None
        guessed = absent if wrong else not absent and style not in ("qwen", "gemma")
        return loaded(opened, **({"norm_style": "qwen"} if guessed else {}))

    return Parts(model=model)


def known_names(opened: Container) -> Any:
    if opened.header["arch"]["arch_name"] not in ("llama", "qwen2_moe", "qwen3_5_text", "qwen3_5"):
        refuse("arch_name")
    return loaded(opened)


def zeros_for_missing(opened: Container) -> Any:
    try:
        return loaded(opened)
    except Refusal as refused:
        if refused.fault.rule != "HDR-018":
            raise
        vocab = opened.header["arch"]["vocab_size"]
        return SimpleNamespace(logits=lambda tokens, *_: np.zeros((len(tokens), vocab), np.float32))


def ties_anyway(opened: Container) -> Any:
    names = {tensor.name for tensor in opened}
    return loaded(opened, **({} if "lm_head.weight" in names else {"tie_word_embeddings": True}))


def layers_by_tag(opened: Container) -> Any:
    """A layer whose tag is another's is passed over."""
    names, given = {tensor.name for tensor in opened}, opened.header["arch"]["layer_types"]
    linear = [f"model.layers.{i}.linear_attn.in_proj_qkv.weight" in names for i in range(len(given))]
    right = ["LinearAttention" if is_linear else "FullAttention" for is_linear in linear]
    model = loaded(opened, layer_types=right)
    return replace(model, blocks=tuple(b for b, g, r in zip(model.blocks, given, right, strict=True) if g == r))


def last_layer_routes(opened: Container) -> Any:
    model = loaded(opened)
    routers = [model.weights.has(f"{block.layer.prefix}mlp.gate.weight") for block in model.blocks]
    if any(routers) and not routers[-1]:
        refuse("a router")
    return model


def no_large_k(opened: Container) -> Any:
    model = loaded(opened)
    if model.arch.moe and model.arch.moe.top_k > model.arch.moe.num_experts:
        refuse("top_k")
    return model


# --- tensors -----------------------------------------------------------------------------------------------------------


def unseen(model: Model, wrong: Callable[[str], bool]) -> Model:
    """The model without some of its tensors, which it then doesn't apply."""
    places = {name: place for name, place in model.weights.places.items() if not wrong(name)}
    return replace(model, weights=replace(model.weights, places=places))


def whole_sets_only(suffixes: Sequence[str]) -> Parts:
    """A layer's tensors of these endings count only if all are there."""

    def change(model: Model) -> Model:
        partial = [
            block.layer.prefix
            for block in model.blocks
            if not all(model.weights.has(f"{block.layer.prefix}self_attn.{suffix}") for suffix in suffixes)
        ]
        return unseen(model, lambda name: name.endswith(tuple(suffixes)) and name.startswith(tuple(partial)))

    return computing(change)


def without(suffix: str) -> Parts:
    return computing(lambda model: unseen(model, lambda name: name.endswith(suffix)))


def other_values(change: Callable[[Model, str, Any], Any]) -> Parts:
    """Tensors with other values. change: the model, a name, its values -> others, or None for the right ones."""

    def changed(model: Model) -> Model:
        for name, place in model.weights.places.items():
            other = change(model, name, model.weights.tensor(name))
            if other is not None:
                model.weights.cache[place] = other
        return model

    return computing(changed)


def interleaved(model: Model, name: str, values: Any) -> Any:
    """Rows so that pairs (2i, 2i + 1) are rotated."""
    hd, rows = model.arch.head_dim, values.shape[0]
    plain = rows in (hd * model.arch.num_attention_heads, hd * model.arch.num_kv_heads)
    if not name.endswith(("q_proj.weight", "k_proj.weight")) or not plain:
        return None
    return values.reshape(-1, hd // 2, 2, values.shape[1]).transpose(0, 2, 1, 3).reshape(values.shape)


def gate_in_blocks(model: Model, name: str, values: Any) -> Any:
    """All queries, then all gates: rows of a right file taken for that order."""
    hd, heads = model.arch.head_dim, model.arch.num_attention_heads
    if not name.endswith("q_proj.weight") or values.shape[0] != 2 * heads * hd:
        return None
    return values.reshape(2, heads, hd, -1).transpose(1, 0, 2, 3).reshape(values.shape)


def as_bf16(model: Model, name: str, values: Any) -> Any:
    """Weights that are no plain floats are kept in half their bits."""
    tensor = model.weights.container[model.weights.places[name]]
    if tensor.dtype_name in ("f32", "bf16"):
        return None
    return (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def higher_first(model: Model) -> Model:
    """Experts in reverse: the same model, but for ties."""
    places = dict(model.weights.places)
    for name, place in model.weights.places.items():
        stem, _, rest = name.partition(".mlp.experts.")
        router = f"{stem}.mlp.gate.weight"
        if rest and model.weights.has(router):
            number, _, role = rest.partition(".")
            other = model.weights.shape(router)[0] - 1 - int(number)
            places[f"{stem}.mlp.experts.{other}.{role}"] = place
        elif name.endswith("mlp.gate.weight"):
            model.weights.cache[place] = np.ascontiguousarray(model.weights.tensor(name)[::-1])
    return replace(model, weights=replace(model.weights, places=places))


def first_experts_encoding(opened: Container, index: int) -> Any:
    """Every expert of a layer is taken for one of the encoding that its first has."""
    stem, _, rest = opened[index].name.partition("experts.")
    right = opened.values(index)
    if not rest:
        return right
    first = opened[opened.index_of(f"{stem}experts.0.{rest.partition('.')[2]}")]
    return right if first.dtype == opened[index].dtype else np.zeros_like(right)


# --- answers -----------------------------------------------------------------------------------------------------------


def answering(**methods: Callable[..., Any]) -> Parts:
    """A model some of whose methods are others, each given the right model first."""

    def change(model: Model) -> Any:
        others = {
            name: lambda *given, _wrong=wrong, **how: _wrong(model, *given, **how) for name, wrong in methods.items()
        }
        right = {
            name: getattr(model, name) for name in ("logits", "generate", "start", "advance", "scores", "ids", "arch")
        }
        return SimpleNamespace(**{**right, **others})

    return computing(change)


def forgets(model: Model, tokens: Sequence[int], split: Any, rows: Any, *rest: Any) -> Any:
    """Each call begins the text anew."""
    at, found = 0, []
    for piece in split or [len(tokens)]:
        found.append(model.logits(tokens[at : at + piece], None, "all", *rest))
        at += piece
    return found[-1][-1:] if rows == "last" else np.concatenate(found)


def wraps(model: Model, tokens: Sequence[int], *rest: Any) -> Any:
    return model.logits([token % model.arch.vocab_size for token in tokens], *rest)


def first_for_last(model: Model, tokens: Sequence[int], split: Any, rows: Any, *rest: Any) -> Any:
    found = model.logits(tokens, split, "all", *rest)
    return found[:1] if rows == "last" else found


def says_the_stop(model: Model, tokens: Sequence[int], max_new: int, stop: Any, **how: Any) -> Iterator[int]:
    for token in model.generate(tokens, max_new, stop=[], **how):
        yield token
        if token in (stop or ()):
            return


def never_stops(model: Model, tokens: Sequence[int], max_new: int, stop: Any, **how: Any) -> Iterator[int]:
    return model.generate(tokens, max_new, stop=[], **how)


def mean_for_sum(model: Model, tokens: list[int], *how: Any) -> tuple[float, int]:
    nll, count = Parts().likelihood(model, tokens, *how)
    return nll / count, count


def one_window(model: Model, tokens: list[int], window: int, stride: int, *how: Any) -> tuple[float, int]:
    """Windows are passed over: the whole text is the context."""
    return Parts().likelihood(model, tokens, None, None, *how)


# --- under a mask or a skill ---------------------------------------------------------------------------------------------


def masked_otherwise(change: Callable[[Any, Any], Any]) -> Parts:
    """A run under another mask. change: the model, the mask -> the other."""

    def logits(model: Model, tokens: Sequence[int], split: Any, rows: Any, task: Any, skill: Any) -> Any:
        state = model.start(task, skill)
        mask = state.weights.mask
        weights = replace(state.weights, mask=mask and change(model, mask))
        hidden, _ = model.advance(replace(state, weights=weights), tokens)
        return model.scores(state, hidden[-1:] if rows == "last" else hidden)

    return answering(logits=logits)


def all_set(field: str) -> Parts:
    return masked_otherwise(lambda _, mask: replace(mask, **{field: np.ones_like(getattr(mask, field))}))


def asks_the_dead(model: Model, mask: Any) -> Any:
    """The router knows no mask; whoever it masks says nothing."""
    for name, place in model.weights.places.items():
        stem, _, rest = name.partition(".mlp.experts.")
        if rest.endswith("down_proj.weight"):
            layer, expert = int(stem.rpartition(".")[2]), int(rest.partition(".")[0])
            if not mask.experts[layer, expert]:
                model.weights.cache[place] = np.zeros_like(model.weights.tensor(name))
    return replace(mask, experts=None)


def never_fewer(model: Model, mask: Any) -> Any:
    if mask.experts is not None and model.arch.moe and mask.experts[-1].sum() < model.arch.moe.top_k:
        refuse("top_k")
    return mask


def dense_for(rule: str) -> Parts:
    """A task or a skill that isn't there is none at all."""

    def logits(model: Model, tokens: Sequence[int], split: Any, rows: Any, task: Any, skill: Any) -> Any:
        try:
            return model.logits(tokens, split, rows, task, skill)
        except Refusal as refused:
            if refused.fault.rule != rule:
                raise
            return model.logits(tokens, split, rows)

    return answering(logits=logits)


def sticky(opened: Container) -> Any:
    """Once a mask was on, it stays on."""
    model, seen = loaded(opened), opened.view.__dict__

    def logits(tokens: Sequence[int], split: Any, rows: Any, task: Any, skill: Any) -> Any:
        if task not in (None, "dense"):
            seen["stuck"] = task
        return model.logits(tokens, split, rows, seen.get("stuck", task), skill)

    return SimpleNamespace(logits=logits)


def sums(model: Model, tokens: Sequence[int], split: Any, rows: Any, task: Any, skill: Any) -> Any:
    """A skill's tensor is added to the backbone's."""
    places = model.weights.places
    for name in places:
        added = f"skill.{skill}.{name}"
        if added in places:
            model.weights.cache[places[added]] = model.weights.tensor(name) + model.weights.tensor(added)
    return model.logits(tokens, split, rows, task, skill)
