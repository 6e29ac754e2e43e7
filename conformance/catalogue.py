"""Importing this module files every rule in `cmfspec.contract.rule.CATALOGUE`."""

from __future__ import annotations

from conformance import (
    s01_1_features,
    s01_2_validation,
    s01_envelope,
    s01_written,
    s02_2_moe,
    s02_computed,
    s02_engine,
    s02_header,
    s03_1_dtypes,
    s03_2_encoded,
    s03_2_q1,
    s03_2_q4,
    s03_2_q8,
    s03_2_vbit,
    s03_directory,
    s03_records,
    s04_blob,
    s05_running,
    s08_hash64,
    s09_running,
)

SECTIONS = (
    *(s01_envelope, s01_1_features, s01_2_validation, s01_written),
    *(s02_header, s02_computed, s02_2_moe, s02_engine),
    *(s03_directory, s03_records, s03_1_dtypes, s03_2_q8, s03_2_q4, s03_2_vbit, s03_2_q1, s03_2_encoded),
    s04_blob,
    s05_running,
    s08_hash64,
    s09_running,
)
