"""Named mutations: valid files with one lie each, as data.

Law: each breaks exactly the rule that it names; our own reader finds that fault in it and no other, and none in the file
without the edits. A lie inside a payload shows only when that tensor is decoded.
"""

from __future__ import annotations

from fuzz.mutations import directory, envelope, header, payload, sections
from fuzz.mutations.mutation import Mutation

__all__ = ["MUTATIONS", "Mutation", "breaking"]

MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation for part in (envelope, header, directory, sections, payload) for mutation in part.MUTATIONS
}


def breaking(*rules: str) -> tuple[Mutation, ...]:
    """The mutations that break one of these rules."""
    return tuple(mutation for mutation in MUTATIONS.values() if mutation.breaks in rules)
