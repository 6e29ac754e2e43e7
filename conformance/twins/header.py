"""Twins that read the header wrongly (§2)."""

from __future__ import annotations

import json

from cmfspec.errors import Refusal
from cmfspec.format.checks import json_of
from cmfspec.format.header import strict_object
from cmfspec.format.view import View
from conformance.twins.twin import Faults, Twin, blind, changed, extra, no

QUANT_TYPES = ("F16", "F32", "BF16")


def _reread(view: View, text: str) -> Faults:
    """The header is this text instead."""
    try:
        view.header = strict_object(text.encode("utf-8", "surrogatepass"), "header", 0)
    except Refusal as refused:
        yield refused.fault


def ascii_only(view: View) -> Faults:
    if not bytes(view.part("header")).isascii():
        yield no(view, "header")


def unknown_fields_unread(view: View) -> Faults:
    raw = bytes(view.part("header"))
    yield from (fault for fault in json_of("header")(view) if fault.rule != "HDR-002" or b'"zzz"' not in raw)


def guesses_the_encoding(view: View) -> Faults:
    raw = bytes(view.part("header"))
    try:
        text = raw.decode(json.detect_encoding(raw))
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
        yield no(view, "header")
    yield from _reread(view, text)


def first_value_only(view: View) -> Faults:
    text = bytes(view.part("header")).decode("utf-8", "surrogateescape")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        end = len(text)
    try:
        view.header = strict_object(text[:end].encode("utf-8", "surrogateescape"), "header", 0)
    except Refusal as refused:
        yield refused.fault


def known_quant_types(view: View) -> Faults:
    if view.header.get("quant_type", "F16") not in QUANT_TYPES:
        yield no(view, "quant_type")


def provenance_is_an_object(view: View) -> Faults:
    if not isinstance(view.header.get("provenance", {}), dict):
        yield no(view, "provenance")


CONSTANTS = ("NaN", "Infinity", "-Infinity")
TWINS: tuple[Twin, ...] = (
    Twin("ascii-header", "HDR-001", "takes ASCII for all of UTF-8", extra("ascii", ascii_only)),
    Twin(
        "unknown-fields-unread",
        "HDR-002",
        "does not look at the bytes of fields that it doesn't know",
        changed(header__json=unknown_fields_unread),
    ),
    Twin("guesses-encoding", "HDR-003", "guesses UTF-16 and UTF-32", changed(header__json=guesses_the_encoding)),
    Twin(
        "first-value-only",
        "HDR-004",
        "reads the first JSON value and no further",
        changed(header__json=first_value_only),
    ),
    Twin(
        "python-constants",
        "HDR-005",
        "takes NaN and Infinity",
        blind("header.json", lambda fault: fault.rule == "HDR-005" and fault.found in CONSTANTS),
    ),
    Twin(
        "comments",
        "HDR-005",
        "takes comments and trailing commas",
        blind("header.json", lambda fault: fault.rule == "HDR-005" and fault.found not in CONSTANTS),
    ),
    Twin(
        "list-of-fields",
        "HDR-006",
        "takes a list for an object",
        blind("header.json", lambda fault: fault.rule == "HDR-006" and fault.found == "a JSON list"),
    ),
    Twin("known-quant-types", "HDR-016", "refuses a quant_type that it doesn't know", extra("type", known_quant_types)),
    Twin("provenance-object", "HDR-017", "wants an object for provenance", extra("origin", provenance_is_an_object)),
)
