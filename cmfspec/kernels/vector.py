"""What numba has no word for, in LLVM's own: 32 weights of a payload at once, put into an array or multiplied with one.

Law: the weights are those of the formula, operation by operation; the products are added up in 32 lanes, then halves of
those, so the order is part of this text and of nothing else. No instruction of one processor is named: LLVM picks those.

A *run* is `count` groups of 32 weights that follow each other; `KINDS` says how each kind of run lies in a payload.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ARG001 (numba fixes the arguments of a code generator, the table those of a kind)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cmfspec.layout import GROUP

U8, U16, U32, U64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
LANES = range(GROUP)


def _vector(kind, values):
    values = list(values)
    return ir.Constant(ir.VectorType(kind, len(values)), values)


def _same(kind, value):
    return _vector(kind, [value] * GROUP)


def _of(kind):
    return ir.VectorType(kind, GROUP)


def _load(b, address, kind):
    """From any address."""
    return b.load(b.bitcast(address, kind.as_pointer()), align=1)


def _splat(b, value):
    one = ir.VectorType(value.type, 1)
    lane = b.insert_element(ir.Constant(one, ir.Undefined), value, ir.Constant(U32, 0))
    return b.shuffle_vector(lane, ir.Constant(one, ir.Undefined), _vector(U32, [0] * GROUP))


def _pick(b, vector, lanes):
    """Lane by lane, `vector[lanes[i]]`."""
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), _vector(U32, lanes))


def _widened(b, halves, wide, as_float):
    """Halves, as integers, to floats of the same value; all bits of a NaN are kept. `wide` makes a constant of their type,
    `as_float` is the type of the result."""
    exponent = wide(112 << 23)
    sign = b.shl(b.and_(halves, wide(0x8000)), wide(16))
    rest = b.and_(halves, wide(0x7FFF))
    normal = b.add(b.shl(rest, wide(13)), exponent)
    large = b.add(normal, exponent)
    tiny = b.bitcast(b.fmul(b.uitofp(rest, as_float), _power(as_float)), normal.type)
    found = b.select(b.icmp_unsigned("<", rest, wide(0x0400)), tiny, normal)
    found = b.select(b.icmp_unsigned(">=", rest, wide(0x7C00)), large, found)
    return b.bitcast(b.or_(found, sign), as_float)


def _power(kind):
    """2^-24, the unit of the smallest halves."""
    return ir.Constant(kind, 2.0**-24) if kind == F32 else _same(F32, 2.0**-24)


def _half(b, address):
    """The half at that address."""
    return _widened(b, b.zext(_load(b, address, U16), U32), lambda value: ir.Constant(U32, value), F32)


# --- 32 weights of each kind: (builder, where their bytes lie, their scale, 32 floats of a field) -> <32 x float> ------


def _scaled(b, integers, scale):
    return b.fmul(b.sitofp(integers, _of(F32)), _splat(b, scale))


def _eights(b, data, scale, field):
    return _scaled(b, _load(b, data, _of(U8)), scale)


def _eights_of_a_field(b, data, scale, field):
    return b.fmul(_eights(b, data, scale, field), _load(b, field, _of(F32)))


def _nibbles(b, data, scale, field):
    packed = _load(b, data, ir.VectorType(U8, GROUP // 2))
    low, high = b.and_(packed, _vector(U8, [15] * 16)), b.lshr(packed, _vector(U8, [4] * 16))
    quants = b.shuffle_vector(low, high, _vector(U32, (lane // 2 + GROUP // 2 * (lane % 2) for lane in LANES)))
    return _scaled(b, b.sub(quants, _same(U8, 8)), scale)


def _bits(b, data, scale, field):
    signs = b.bitcast(_load(b, data, U32), _of(ir.IntType(1)))
    return b.fmul(b.select(signs, _same(F32, 1.0), _same(F32, -1.0)), _splat(b, scale))


def _digits(b, data, scale, field):
    """Digit j of a byte is q(j) - 3·q(j + 1), where q(j) is byte // 3^j, exact as 2·byte · ⌈2^15 / 3^j⌉ // 2^16: the upper
    half of a product of 16 bits, for which processors have a word. The byte before the digits, of the scale, is loaded too,
    since eight are one load and seven are many."""
    packed = _load(b, b.gep(data, [ir.Constant(U64, -1)]), ir.VectorType(U8, 8))
    byte = b.zext(_pick(b, packed, (lane // 5 + 1 for lane in LANES)), _of(U16))
    twice = b.zext(b.add(byte, byte), _of(U32))

    def quotient(power):
        upper = b.mul(twice, _vector(U32, (-(-(1 << 15) // 3 ** power(lane)) for lane in LANES)))
        return b.trunc(b.lshr(upper, _same(U32, 16)), _of(U16))

    below, above = quotient(lambda lane: lane % 5), quotient(lambda lane: lane % 5 + 1)
    digit = b.sub(below, b.mul(above, _same(U16, 3)))
    weight = b.select(b.icmp_unsigned("==", digit, _same(U16, 1)), _splat(b, scale), _same(F32, 0.0))
    negative = b.fmul(ir.Constant(F32, -1.0), scale)
    return b.select(b.icmp_unsigned("==", digit, _same(U16, 2)), _splat(b, negative), weight)


def _codes(width):
    """Codes of `width` bits, the high bit first: each lies within two bytes."""

    def weights(b, data, scale, field):
        packed = _load(b, data, ir.VectorType(U8, 4 * width))
        first = [lane * width // 8 for lane in LANES]
        second = [min(byte + 1, 4 * width - 1) for byte in first]
        high, low = (b.zext(_pick(b, packed, lanes), _of(U16)) for lanes in (first, second))
        both = b.or_(b.shl(high, _same(U16, 8)), low)
        code = b.lshr(both, _vector(U16, (16 - width - lane * width % 8 for lane in LANES)))
        code = b.and_(code, _same(U16, 2**width - 1))
        return _scaled(b, b.sub(code, _same(U16, 2 ** (width - 1) - 1)), scale)

    return weights


def _floats(b, data, scale, field):
    return _load(b, data, _of(F32))


def _halves(b, data, scale, field):
    wide = b.zext(_load(b, data, _of(U16)), _of(U32))
    return _widened(b, wide, lambda value: _same(U32, value), _of(F32))


def _upper_halves(b, data, scale, field):
    wide = b.zext(_load(b, data, _of(U16)), _of(U32))
    return b.bitcast(b.shl(wide, _same(U32, 16)), _of(F32))


@dataclass(frozen=True)
class Kind:
    """How a run lies. weights: of a group; stride: bytes from group to group; lead: bytes before a group's weights;
    scale: bytes from one half to the next, 0 for one of all groups, None where the field holds a float for each group."""

    weights: Any
    stride: int
    lead: int = 0
    scale: int | None = 0


KINDS = {
    "f32": Kind(_floats, 128),
    "f16": Kind(_halves, 64),
    "bf16": Kind(_upper_halves, 64),
    "q8_row": Kind(_eights, 32),
    "q8_2f": Kind(_eights_of_a_field, 32),
    "q4_block": Kind(_nibbles, 16, scale=2),
    "q4_tiled": Kind(_nibbles, 18, lead=2, scale=18),
    "q4tp": Kind(_nibbles, 16, scale=None),
    "q1": Kind(_bits, 6, lead=2, scale=6),
    "q1t": Kind(_digits, 9, lead=2, scale=9),
    **{f"vbit{width}": Kind(_codes(width), 4 * width, scale=2) for width in (3, 4, 5, 6, 8)},
}
UNSCALED = (_floats, _halves, _upper_halves)
LINE, AHEAD = 64, 8192  # bytes: of a cache line; from a group to what is fetched, past the page where a processor stops
READ, KEEP, DATA = 0, 3, 1  # what llvm.prefetch is told
NUMBERS = {name: number for number, name in enumerate(KINDS)}


# --- loops over a run --------------------------------------------------------------------------------------------------


def _pointer(context, builder, kind, array, index):
    """The address of an element."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _soon(b, address):
    """Memory there will be read, so it may be fetched; it need not be there."""
    kind = ir.FunctionType(ir.VoidType(), [U8.as_pointer(), U32, U32, U32])
    fetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0i8")
    b.call(fetch, [address, *(ir.Constant(U32, value) for value in (READ, KEEP, DATA))])


def _each_group(b, count, kind, data, scales, field, use):
    """`use(group number, weights)` in a loop over the groups of a run of that kind."""
    with cgutils.for_range(b, count) as loop:
        group = loop.index
        at = b.gep(data, [b.add(b.mul(group, ir.Constant(U64, kind.stride)), ir.Constant(U64, kind.lead))])
        for line in range(kind.stride // LINE):  # of short groups, the arithmetic is what takes time
            _soon(b, b.gep(at, [ir.Constant(U64, AHEAD + LINE * line)]))
        if kind.weights in UNSCALED:
            scale = None
        elif kind.scale is None:
            scale = b.load(b.gep(field, [group]))
        else:
            scale = _half(b, b.gep(scales, [b.mul(group, ir.Constant(U64, kind.scale))]))
        use(group, kind.weights(b, at, scale, b.gep(field, [b.mul(group, ir.Constant(U64, GROUP))])))


def _switch(b, number, make):
    """`make(kind)` for the kind of that number."""
    end = b.append_basic_block("end")
    switch = b.switch(number, end)
    for name, kind in KINDS.items():
        block = b.append_basic_block(name)
        switch.add_case(ir.Constant(U64, NUMBERS[name]), block)
        b.position_at_end(block)
        make(kind)
        b.branch(end)
    b.position_at_end(end)


def _add_up(b, lanes):
    """Halves on halves."""
    size = GROUP
    while size > 1:
        size //= 2
        low, high = (_pick(b, lanes, range(start, start + size)) for start in (0, size))
        lanes = b.fadd(low, high)
    return b.extract_element(lanes, ir.Constant(U32, 0))


def _more(b, total, weights, address):
    """total += weights · the 32 floats there, in one rounding where the processor has that."""
    kind = ir.FunctionType(_of(F32), [_of(F32)] * 3)
    fused = cgutils.get_or_insert_function(b.module, kind, f"llvm.fmuladd.v{GROUP}f32")
    b.store(b.call(fused, [weights, _load(b, address, _of(F32)), b.load(total)]), total)


def _zeros(b):
    total = cgutils.alloca_once(b, _of(F32))
    b.store(_same(F32, 0.0), total)
    return total


@intrinsic
def put(typing, kind, data, at, scale_at, field, field_at, out, to, count):
    """Decode a run. kind: its number; data u8[:], its first byte, that of its first scale; field f32[:], from where;
    out f32[:], to where; count: groups."""

    def generate(context, b, signature, given):
        number, data, at, scale_at, field, field_at, out, to, count = given
        arrays = signature.args
        start, scales = (_pointer(context, b, arrays[1], data, place) for place in (at, scale_at))
        column = _pointer(context, b, arrays[4], field, field_at)
        target = _pointer(context, b, arrays[6], out, to)

        def store(group, weights):
            place = b.gep(target, [b.mul(group, ir.Constant(U64, GROUP))])
            b.store(weights, b.bitcast(place, _of(F32).as_pointer()), align=4)

        _switch(b, number, lambda kind: _each_group(b, count, kind, start, scales, column, store))
        return context.get_dummy_value()

    wide = types.int64
    return types.void(wide, data, wide, wide, field, wide, out, wide, wide), generate


@intrinsic
def dot(typing, kind, data, at, scale_at, field, field_at, x, count):
    """The sum of a run's weights times x f32[:], the rest as for `put`: f32."""

    def generate(context, b, signature, given):
        number, data, at, scale_at, field, field_at, x, count = given
        arrays = signature.args
        start, scales = (_pointer(context, b, arrays[1], data, place) for place in (at, scale_at))
        column = _pointer(context, b, arrays[4], field, field_at)
        factors = _pointer(context, b, arrays[6], x, ir.Constant(U64, 0))
        total = _zeros(b)

        def add(group, weights):
            _more(b, total, weights, b.gep(factors, [b.mul(group, ir.Constant(U64, GROUP))]))

        _switch(b, number, lambda kind: _each_group(b, count, kind, start, scales, column, add))
        return _add_up(b, b.load(total))

    wide = types.int64
    return types.float32(wide, data, wide, wide, field, wide, x, wide), generate


@intrinsic
def dot_floats(typing, weights, x, at, count):
    """The same, in the same order, of `count` groups of weights f32[:] and of x f32[:] from `at` on."""

    def generate(context, b, signature, given):
        weights, x, at, count = given
        here = _pointer(context, b, signature.args[0], weights, ir.Constant(U64, 0))
        there = _pointer(context, b, signature.args[1], x, at)
        total = _zeros(b)
        with cgutils.for_range(b, count) as loop:
            place = b.mul(loop.index, ir.Constant(U64, GROUP))
            _more(b, total, _load(b, b.gep(here, [place]), _of(F32)), b.gep(there, [place]))
        return _add_up(b, b.load(total))

    return types.float32(weights, x, types.int64, types.int64), generate


@intrinsic
def load_u64(typing, data, at):
    """(u8[:], i64) -> the little-endian u64 at that byte."""

    def generate(context, b, signature, given):
        return _load(b, _pointer(context, b, signature.args[0], *given), U64)

    return types.uint64(data, types.int64), generate
