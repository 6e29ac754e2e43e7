"""The rotary embedding of a configuration, old style and new, as the header has it.

Law: old files have `rope_theta`, `partial_rotary_factor` and `rope_scaling`, new ones `rope_parameters`, flat or one per kind
of layer. The header has `rope_theta`, `partial_rotary_factor`, and `yarn` or `rope_freq_factors` (divisors of the
frequencies, which is all that linear and llama3 scaling are); sliding layers with a base of their own have
`rope_local_base_freq` and `local_partial_rotary_factor`. A scaling that depends on the text's length is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cmfspec.tools.settings import Settings
from cmfspec.tools.unpackable import shown

MROPE = ("mrope_section", "mrope_interleaved")  # for text, the three positions of a token are one
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def rope(settings: Settings, arch: dict[str, Any]) -> None:
    """Add the fields to `arch`, which has its dimensions and layers already. Raises Unpackable."""
    new, old = settings.optional("rope_parameters"), settings.optional("rope_scaling")
    if new is not None and old is not None:
        raise settings.bad("rope_scaling", shown(old), "nothing, beside rope_parameters")
    for key, node in (("rope_parameters", new), ("rope_scaling", old)):
        if node is not None and not isinstance(node, dict):
            raise settings.bad(key, shown(node), "an object or null")
    theta, partial = settings.optional("rope_theta"), settings.optional("partial_rotary_factor")
    base = {"rope_theta": theta, "partial_rotary_factor": 1.0 if partial is None else partial}
    local_base = settings.optional("rope_local_base_freq")
    nested = new is not None and any(isinstance(value, dict) for value in new.values())
    where = "rope_parameters" if new is not None else "rope_scaling"
    local = {"rope_theta": local_base} if local_base is not None else None
    if nested:
        kinds = settings.below(where, new or {})
        wide, local = kinds.optional(GLOBAL), kinds.optional(LOCAL)
        for key, value in ({GLOBAL: wide, LOCAL: local} | kinds.unread()).items():
            if key not in (GLOBAL, LOCAL) or not (isinstance(value, dict) or (value is None and key == LOCAL)):
                raise kinds.bad(key, shown(value), f"objects for {GLOBAL} and {LOCAL}")
        new, where = wide, f"rope_parameters.{GLOBAL}"
    given = new if new is not None else old
    _global(settings.below(where, {**base, **(given or {})}), arch)
    if local is not None and "SlidingAttention" in arch["layer_types"]:
        _local(settings.below(f"rope_parameters.{LOCAL}", {"partial_rotary_factor": 1.0, **local}), arch)


def _kind(rope: Settings) -> str:
    found = [name for key in ("rope_type", "type") if (name := rope.optional(key)) is not None]
    if any(not isinstance(name, str) or name not in SCALINGS or name != found[0] for name in found):
        key = "rope_type" if "rope_type" in rope else "type"
        raise rope.bad(key, shown(found), f"one of {', '.join(SCALINGS)}")
    return found[0] if found else "default"


def _global(rope: Settings, arch: dict[str, Any]) -> None:
    scaling = SCALINGS[_kind(rope)]
    arch["rope_theta"] = rope.number("rope_theta")
    arch["partial_rotary_factor"] = _fraction(rope)
    scaling(rope, arch)
    _nothing_left(rope)


def _local(rope: Settings, arch: dict[str, Any]) -> None:
    if (kind := _kind(rope)) != "default":
        raise rope.bad("rope_type", shown(kind), "default: the header has no scaling of sliding layers")
    arch["rope_local_base_freq"] = rope.number("rope_theta")
    arch["local_partial_rotary_factor"] = _fraction(rope)
    _nothing_left(rope)


def _fraction(rope: Settings) -> float:
    value = rope.number("partial_rotary_factor")
    if value > 1:
        raise rope.bad("partial_rotary_factor", value, "at most 1")
    return value


def _nothing_left(rope: Settings) -> None:
    for key in MROPE:
        rope.optional(key)
    for key, value in rope.unread().items():
        raise rope.bad(key, shown(value), "a key that the header has a field for, or that changes nothing")


def _default(_: Settings, __: dict[str, Any]) -> None:
    """Frequencies as they are."""


def _linear(rope: Settings, arch: dict[str, Any]) -> None:
    """Every frequency divided by the factor."""
    arch["rope_freq_factors"] = [rope.number("factor")] * (_rotary(arch) // 2)


def _llama3(rope: Settings, arch: dict[str, Any]) -> None:
    """Long waves divided by the factor, short ones left, those between interpolated."""
    factor, low, high = (rope.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    context = rope.number("original_max_position_embeddings")
    if low == high:
        raise rope.bad("high_freq_factor", high, "another number than low_freq_factor")
    rotary = _rotary(arch)

    def divisor(pair: int) -> float:
        wave = 2 * math.pi * arch["rope_theta"] ** (2 * pair / rotary)
        if wave < context / high:
            return 1.0
        if wave > context / low:
            return factor
        smooth = (context / wave - low) / (high - low)
        return float(1 / ((1 - smooth) / factor + smooth))

    arch["rope_freq_factors"] = [divisor(pair) for pair in range(rotary // 2)]


def _yarn(rope: Settings, arch: dict[str, Any]) -> None:
    """The header's default of attention_factor is 1, so what transformers would compute is written out."""
    factor = rope.number("factor")
    mscale, all_dim = (rope.optional(key) for key in ("mscale", "mscale_all_dim"))
    scaled = [rope.number(key) if rope.peek(key) else 0.0 for key in ("mscale", "mscale_all_dim")]
    told = rope.number("attention_factor") if rope.optional("attention_factor") is not None else None
    ratio = _mscale(factor, scaled[0]) / _mscale(factor, scaled[1]) if mscale and all_dim else _mscale(factor, 1.0)
    yarn = arch["yarn"] = {
        "factor": factor,
        "original_max_position_embeddings": rope.integer(
            "original_max_position_embeddings", arch["max_position_embeddings"]
        ),
        "beta_fast": rope.number("beta_fast", 32.0),
        "beta_slow": rope.number("beta_slow", 1.0),
        "attention_factor": ratio if told is None else told,
    }
    if scaled[1]:
        yarn["mscale_all_dim"] = scaled[1]
    if not rope.flag("truncate", True):
        yarn["truncate"] = False


def _mscale(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _rotary(arch: dict[str, Any]) -> int:
    return int(arch["head_dim"] * arch["partial_rotary_factor"])


SCALINGS: dict[str, Callable[[Settings, dict[str, Any]], None]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
