"""Lies in the heads of the masks and index sections (§5, §7)."""

from __future__ import annotations

from fuzz.mutations.mutation import Mutation, family, one

MUTATIONS: tuple[Mutation, ...] = (
    *family("MASK-002", "", "full", one("masks@4", {"2^32-1": 2**32 - 1, "1-past": 400})),
    *family("IDX-008", "", "full", one("index@0", {"2^32-1": 2**32 - 1, "5": 5})),
    *family("IDX-007", "", "full", {"groups-2^32-1": (("index@16", 2**32 - 1),), "heads-2^31": (("index@20", 2**31),)}),
)
