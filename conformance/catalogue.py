"""Importing this module files every rule in `cmfspec.contract.rule.CATALOGUE`."""

from __future__ import annotations

from conformance import s01_1_features, s01_2_validation, s01_envelope, s08_hash64

SECTIONS = (s01_envelope, s01_1_features, s01_2_validation, s08_hash64)
