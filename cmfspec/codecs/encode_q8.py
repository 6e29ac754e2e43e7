"""q8_row and q8_2f: eight bits a weight (§3.2).

Law: `scale[o] = absmax(row_o)/127`, rounded to a half before the row is divided by it. The second field of q8_2f is the
root mean square of each column: what is left after it, `w/col`, is encoded like q8_row. −128 is never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmfspec.codecs.encoder import TINY, Encode, absmax, quants, raw, scale, stored

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

TOP = np.float32(127)


def _rows(weights: F32, tensor: str) -> tuple[bytes, bytes]:
    """(quants, scales)."""
    scales = scale(absmax(weights), TOP, tensor, "row scale")
    return quants(weights, scales[:, None], TOP).astype(np.int8).tobytes(), raw(scales)


def _q8_row(weights: F32, tensor: str) -> bytes:
    return b"".join(_rows(weights, tensor))


def _q8_2f(weights: F32, tensor: str) -> bytes:
    rows = max(len(weights), 1)
    power = np.einsum("oi,oi->i", weights, weights, dtype=np.float64, casting="safe")
    columns = np.maximum(stored(np.sqrt(power / rows).astype(np.float32), tensor, "column"), TINY)
    return b"".join((*_rows((weights / columns).astype(np.float32), tensor), raw(columns)))


ENCODERS: dict[str, Encode] = {"q8_row": _q8_row, "q8_2f": _q8_2f}
