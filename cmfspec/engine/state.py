"""Where a text has got to, as a value that can be gone back to; and the keys and values of an attention layer in it.

Law: a `Past` is never changed by what is appended to it: both the old one and the new one stay true. They share one array as
long as nobody goes back, so that appending costs what is appended; whoever appends to an older `Past` gets a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmfspec.engine.weights import Weights

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

FIRST_ROOM = 64  # positions


@dataclass(frozen=True)
class State:
    """A point in a text, to go on from any number of times. past: each layer's; length: tokens so far."""

    weights: Weights
    past: tuple[Any, ...]
    length: int = 0


@dataclass
class _Store:
    """Arrays [heads, room, dim], and how many positions have been written by anybody."""

    keys: F32
    values: F32
    written: int


@dataclass(frozen=True)
class Past:
    """`length` positions of a store."""

    store: _Store
    length: int

    @property
    def keys(self) -> F32:
        """[heads, length, dim]."""
        return self.store.keys[:, : self.length]

    @property
    def values(self) -> F32:
        """[heads, length, dim]."""
        return self.store.values[:, : self.length]


def extended(past: Past | None, keys: F32, values: F32) -> Past:
    """`past` and then keys and values [n, heads, dim]."""
    keys, values = keys.transpose(1, 0, 2), values.transpose(1, 0, 2)
    length = past.length if past else 0
    total = length + keys.shape[1]
    if past and past.store.written == length and past.store.keys.shape[1] >= total:
        store = past.store
    else:
        room = max(FIRST_ROOM, 2 * total)
        store = _Store(_roomy(keys, room), _roomy(values, room), length)
        if past:
            store.keys[:, :length], store.values[:, :length] = past.keys, past.values
    store.keys[:, length:total], store.values[:, length:total] = keys, values
    store.written = total
    return Past(store, total)


def _roomy(like: F32, room: int) -> F32:
    return np.empty((like.shape[0], room, like.shape[2]), np.float32)
