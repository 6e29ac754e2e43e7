"""Weights to payloads: `ENCODERS` by name, `encode`, and `plan`, which says what encoding a tensor gets (§3.2).

Law: what `encode` returns decodes to the weights within the bounds of `cmfspec.contract.compare`; what it can't hold is a
named refusal. Vectors and tensors of fewer than 32 elements are always f16; an encoding that wants whole groups in a row
gives way to q8_2f where there are none; raw bytes (u8) are no weights and stay what they are.
"""

from __future__ import annotations

import inspect
from typing import Any

from cmfspec.codecs import encode_plain, encode_q1, encode_q4, encode_q8, encode_vbit, plain, q1, q4, q8, vbit
from cmfspec.codecs.encode_q1 import MAX_COLUMNS
from cmfspec.codecs.encoder import Encode, checked
from cmfspec.layout import GROUP

ENCODERS: dict[str, Encode] = {
    name: function
    for family in (encode_plain, encode_q8, encode_q4, encode_vbit, encode_q1)
    for name, function in family.ENCODERS.items()
}
_CODECS = {codec.name: codec for family in (plain, q8, q4, vbit, q1) for codec in family.CODECS}

SMALL, RAGGED, RAW = "f16", "q8_2f", "u8"
# What routes, gates or mixes is small, and an error in it changes which weights are used at all.
DELICATE = (
    ".mlp.gate.weight",
    ".mlp.shared_expert_gate.weight",
    ".linear_attn.conv1d.weight",
    ".linear_attn.in_proj_a.weight",
    ".linear_attn.in_proj_b.weight",
)


def encode(name: str, weights: Any, *, tensor: str = "tensor", **options: Any) -> bytes:
    """The payload of these weights.

    name: an encoding of §3.1 that holds weights; weights: float32, of the tensor's shape; tensor: its name, for messages.
    options: q4tp: search; vbit, vbit_ro: bits, amplify, widths (see encode_vbit); q1: diffuse; q1s: keep, diffuse;
        q1t: keep. The same weights and options give the same bytes.
    Raises CannotEncode for NaN, an infinity or a scale past the largest half; ValueError for a name, a type, a shape or an
    option that the encoding doesn't have.
    """
    function = ENCODERS.get(name)
    if function is None:
        raise ValueError(f"{tensor}: no encoding of weights is called {name!r}")
    known = _options(function)
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(f"{name} has no option {unknown[0]!r}, but {sorted(known) or 'none'}")
    array = checked(weights, tensor)
    wanted = _CODECS[name].shape_fault(array.ndim, array.shape[-1] if array.ndim else 1)
    if wanted:
        raise ValueError(f"{tensor}: {name} of {list(array.shape)}, wanted {wanted}")
    return function(array, tensor, **options)


def _options(function: Encode) -> set[str]:
    parameters = list(inspect.signature(function).parameters.values())[2:]
    return {parameter.name for parameter in parameters}


def plan(name: str, shape: tuple[int, ...], wanted: str) -> str:
    """The encoding that a tensor gets where `wanted` is asked for.

    name: the tensor's; shape: its dimensions; wanted: the name of an encoding. Raises ValueError for another.
    """
    if wanted not in _CODECS:
        raise ValueError(f"no encoding is called {wanted!r}")
    if wanted == RAW:
        return RAW
    total = 1
    for dim in shape:
        total *= dim
    codec = _CODECS[wanted]
    quantises = wanted not in encode_plain.ENCODERS
    if len(shape) < 2 or total < GROUP or (quantises and name.endswith(DELICATE)):
        return SMALL
    if codec.matrix and len(shape) != 2:
        return SMALL
    if codec.shape_fault(len(shape), shape[-1]) or (wanted == "q1t" and shape[-1] > MAX_COLUMNS):
        return RAGGED
    return wanted
