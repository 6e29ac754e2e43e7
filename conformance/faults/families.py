"""All faults, in the order of a forward."""

from __future__ import annotations

from conformance.faults import choosing, mixing, table
from conformance.faults.fault import Fault

DRAFTING = choosing.DRAFTING
FAULTS: tuple[Fault, ...] = (
    *table.NORMS,
    *table.BLOCKS,
    *mixing.POSITIONS,
    *mixing.ATTENTION,
    *mixing.LATENT,
    *mixing.RECURRENCE,
    *mixing.SHORT,
    *table.FEEDS,
    *choosing.ROUTING,
    *DRAFTING,
)
