"""What numba has no word for, in LLVM's own: loads at any address.

Law: no instruction of one processor is named here; LLVM picks those.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ARG001 (numba fixes the arguments of a code generator)

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_U64 = ir.IntType(64)


def _at(context, builder, kind, array, index):
    """The address of an element."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def load_u64(typing, data, at):
    """(u8[:], i64) -> the little-endian u64 at that byte."""

    def generate(context, builder, signature, arguments):
        address = _at(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, _U64.as_pointer()), align=1)

    return types.uint64(data, types.int64), generate
