"""The tokenizer that a file carries (§6): the bytes of a `tokenizer.json`, read by the `tokenizers` library.

Law: the file's own, or none; what isn't a tokenizer is a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cmfspec.engine.arch import decline, refuse
from cmfspec.format.container import Container

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNFINISHED = "\ufffd"  # what the first bytes of a character decode to


def tokenizer_of(container: Container) -> Tokenizer:
    """Raises Unanswerable for a file without a tokenizer, Unrunnable for one whose bytes are none."""
    if not container.view.present("vocab"):
        decline("TOK-002", "vocab", "no tokenizer in the file", "one, or token ids in place of text")
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_buffer(bytes(container.view.part("vocab")))
    except BaseException as error:  # a panic of the library is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        refuse("TOK-003", "vocab", str(error)[:200], "the bytes of a tokenizer.json")
    found.no_truncation()
    found.no_padding()
    return found


def pieces(tokenizer: Tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """The text of tokens as they come, each piece once it is whole characters."""
    seen: list[int] = []
    shown = ""
    text = ""
    for token in tokens:
        seen.append(token)
        text = tokenizer.decode(seen)
        if not text.endswith(UNFINISHED) and len(text) > len(shown):
            yield text[len(shown) :]
            shown = text
    if len(text) > len(shown):
        yield text[len(shown) :]
