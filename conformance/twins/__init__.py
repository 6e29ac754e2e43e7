"""Twins: deliberately wrong readers, at least one for each graded rule.

Law: a twin is our own reader with one part replaced; what it does wrong is one thing, stated in its `fault`. It answers the
controls rightly, dies by the rule that it breaks, and by at most three others unless `also` says why. Accept-all and
refuse-all are no twins: any rule kills them.
"""

from __future__ import annotations

from conformance.twins import computing, container, directory, header, layouts, miswritten, writers
from conformance.twins.twin import OTHERS, Twin

__all__ = ["OTHERS", "TWINS", "Twin", "twins_of"]

TWINS: tuple[Twin, ...] = tuple(
    twin for part in (container, header, computing, directory, layouts, miswritten, writers) for twin in part.TWINS
)


def twins_of(rule: str) -> tuple[Twin, ...]:
    """The twins that a rule must kill."""
    return tuple(twin for twin in TWINS if twin.breaks == rule)
