"""What rules about engines share: a text, and what a file computes.

Law: what a small model computes is our engine's word, which is held to Hugging Face's by the engine's own tests; what a
model of the oracle computes is Hugging Face's. Asked once for each file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from cmfspec.contract import compare
from golden.files import File

if TYPE_CHECKING:
    from cmfspec.codecs.codec import F32

TEXT = (3, 17, 5, 9, 1, 38, 22, 9)
TOLERANCE = {"llama": compare.LOGITS, "qwen2_moe": compare.LOGITS, "qwen3_5_mtp": compare.LOGITS_GDN}


@lru_cache(maxsize=64)
def computed(file: File, tokens: tuple[int, ...] = TEXT) -> F32:
    """The logits of a file, by our engine."""
    from cmfspec.engine import load
    from cmfspec.format import container

    return load(container.open(file.content())).logits(tokens)
