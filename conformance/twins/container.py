"""Twins that read the envelope wrongly, refuse or accept by other rules, or hash otherwise (§1, §8)."""

from __future__ import annotations

from cmfspec.contract.reference import Parts
from cmfspec.format.checks import features_outside
from cmfspec.layout import IMPLEMENTED_FEATURES, RESERVED_FEATURES, SKILL_FILE, TENSOR_ALIGN, U64, VERSION
from conformance.twins import faulty
from conformance.twins.faulty import signed
from conformance.twins.twin import Twin, blind, changed, extra, records, without_problems

TWINS: tuple[Twin, ...] = (
    # §1
    Twin("short-is-empty", "ENV-001", "takes a short file for an empty model", Parts(view=faulty.garbage_is_a_model)),
    Twin(
        "three-byte-magic",
        "ENV-002",
        "compares three bytes of the magic",
        blind("envelope.magic", lambda fault: fault.found.startswith("43 4d 46")),
    ),
    Twin(
        "either-endian-version",
        "ENV-003",
        "reads the version in either byte order",
        changed(envelope__version=faulty.version(VERSION, VERSION << 24)),
    ),
    Twin("one-byte-dims", "ENV-003", "keeps a dimension in one byte", Parts(tensor=faulty.narrow_shape)),
    Twin(
        "newer-is-fine", "ENV-004", "refuses older versions only", changed(envelope__version=faulty.older_versions_only)
    ),
    Twin("header-in-front", "ENV-008", "wants the header before the blob", extra("order", faulty.header_in_front)),
    Twin("sections-in-order", "ENV-009", "wants masks, vocab and index in this order", extra("order", faulty.in_order)),
    Twin("present-by-length", "ENV-011", "goes by a section's length, not its offset", Parts(opened=faulty.by_length)),
    Twin(
        "no-header-is-empty",
        "ENV-013",
        "takes a header of no length for {}",
        changed(Parts(view=faulty.no_header_is_empty), header__present=None),
    ),
    Twin(
        "no-directory-is-empty",
        "ENV-014",
        "takes a short directory for an empty one",
        changed(Parts(view=faulty.no_directory_is_empty), dir__present=None),
    ),
    Twin(
        "end-off-by-one",
        "ENV-015",
        "lets a section end one byte past the file",
        changed(section__bounds=faulty.bounds_of(slack=1)),
    ),
    Twin(
        "unparsed-unchecked",
        "ENV-015",
        "checks the bounds of the sections that it parses",
        changed(section__bounds=faulty.bounds_of(skipped=("vocab", "index")), index__entries=None),
    ),
    Twin(
        "end-wraps",
        "ENV-016",
        "adds offset and length modulo 2^64",
        changed(section__bounds=faulty.bounds_of(wrap=True)),
    ),
    Twin("any-data-off", "ENV-017", "does not look at the blob's alignment", changed(data__aligned=None)),
    Twin("sector-aligned", "ENV-017", "aligns the blob to 512", changed(data__aligned=faulty.sector_aligned)),
    Twin(
        "all-ones-is-absent",
        "ENV-019",
        "takes a hash of all ones for «absent»",
        without_problems(faulty.all_ones_is_absent),
    ),
    Twin(
        "no-overlap",
        "ENV-020",
        "wants no section inside the data range",
        extra("overlap", faulty.nothing_inside_the_blob),
    ),
    Twin(
        "nothing-behind", "ENV-021", "wants the file to end with its last section", extra("tail", faulty.nothing_behind)
    ),
    Twin(
        "divides-by-dim",
        "ENV-022",
        "divides by a dimension to guard a product",
        extra("guard", faulty.divides, early=True),
    ),
    Twin(
        "hoards",
        "ENV-023",
        "allocates for n_masks before looking at the section",
        extra("hoard", faulty.hoards, early=True),
    ),
    Twin("first-directory", "ENV-025", "takes the first directory in the file", Parts(view=faulty.first_directory)),
    # §1.1
    Twin(
        "features-as-u16",
        "FEAT-001",
        "keeps required_features in 16 bits",
        changed(envelope__features=faulty.features_as_u16),
    ),
    Twin(
        "reserved-is-ignored",
        "FEAT-002",
        "ignores the reserved bits",
        changed(envelope__features=features_outside((*IMPLEMENTED_FEATURES, *RESERVED_FEATURES))),
    ),
    Twin(
        "skills-unread",
        "FEAT-015",
        "declares bit 6 and refuses it",
        changed(envelope__features=features_outside(tuple(b for b in IMPLEMENTED_FEATURES if b != SKILL_FILE))),
    ),
    Twin(
        "known-fields-only",
        "FEAT-018",
        "refuses unknown fields at the top of the header",
        extra("fields", faulty.only_known_fields),
    ),
    # §1.2
    Twin(
        "warns",
        "VAL-001",
        "accepts a blob off its page, with a warning",
        changed(Parts(opened=faulty.with_warnings), data__aligned=None),
    ),
    Twin(
        "features-are-versions",
        "VAL-002",
        "calls an unknown feature an unsupported version",
        changed(envelope__features=faulty.features_are_versions),
    ),
    Twin(
        "version-one-lives", "VAL-004", "reads version 1 as well", changed(envelope__version=faulty.version(1, VERSION))
    ),
    Twin(
        "tensors-anywhere",
        "VAL-005",
        "does not look where a tensor ends",
        changed(record__bounds=None),
        also="VAL-001 and VAL-002 ask one file for each line of §1.2, and what is read past the end is no answer (ENV-022)",
    ),
    Twin(
        "tensor-end-rounded",
        "VAL-005",
        "rounds data_len up before comparing",
        changed(record__bounds=records(lambda d, i: faulty.end(d, i) > d.data_len + TENSOR_ALIGN - 1, "Bounds")),
    ),
    Twin(
        "tensor-end-wraps",
        "VAL-006",
        "adds a tensor's offset and size modulo 2^64",
        changed(record__bounds=records(lambda d, i: faulty.end(d, i) & U64 > d.data_len, "Bounds")),
    ),
    Twin(
        "surrogates-pass",
        "VAL-007",
        "lets surrogates through in names",
        changed(record__name_utf8=records(faulty.surrogates_fail, "Parse")),
    ),
    Twin(
        "signed-dtype",
        "VAL-008",
        "reads the dtype as a signed byte",
        changed(record__dtype=records(lambda d, i: signed(int(d.records[i]["dtype"])) > 15, "Parse")),
    ),
    Twin(
        "signed-ndim",
        "VAL-009",
        "reads ndim as a signed byte",
        changed(record__ndim=records(lambda d, i: signed(int(d.records[i]["ndim"])) > 6, "Parse")),
    ),
    Twin(
        "hashes-at-open", "VAL-010", "checks every tensor's hash when opening", extra("hashes", faulty.hashes_at_open)
    ),
    Twin(
        "replaces-what-is-no-utf8",
        "VAL-012",
        "decodes the header with replacement characters",
        changed(header__json=faulty.replaces_what_is_no_utf8),
    ),
    # §8
    Twin(
        "one-byte-positions",
        "HASH-001",
        "keeps the position of a word in one byte",
        Parts(hash=faulty.short_positions, verify=faulty.verify_by(faulty.short_positions)),
    ),
    Twin(
        "salted-nothing",
        "HASH-002",
        "hashes no bytes as one salted word",
        Parts(hash=faulty.salted_nothing, verify=faulty.verify_by(faulty.salted_nothing)),
    ),
    Twin(
        "first-tensor-only",
        "HASH-003",
        "verifies the first tensor only",
        without_problems(lambda _, problem: problem.where == "tensor" and problem.index != 0),
    ),
    Twin(
        "no-dir-hash",
        "HASH-005",
        "does not hash the directory",
        without_problems(lambda _, problem: problem.where == "dir"),
    ),
    Twin(
        "no-header-hash",
        "HASH-005",
        "does not hash the header",
        without_problems(lambda _, problem: problem.where == "header"),
    ),
    Twin("zero-is-a-hash", "HASH-006", "takes zero for a hash", Parts(verify=faulty.zero_is_a_hash)),
    Twin(
        "index-unhashed",
        "HASH-007",
        "does not hash the index",
        without_problems(lambda _, problem: problem.where == "index"),
    ),
    Twin("loose-hex", "HASH-008", "takes 0x, spaces and underscores for hex", faulty.lenient(faulty.loose_hex)),
    Twin("number-is-a-hash", "HASH-012", "takes a JSON number for a hash", faulty.lenient(faulty.number_only)),
    Twin(
        "chain-only-with-sections",
        "HASH-013",
        "checks the header's hash only if the header holds hashes",
        without_problems(lambda opened, problem: problem.where == "header" and not faulty.section_hashes(opened)),
    ),
    Twin(
        "no-bytes-no-hash",
        "HASH-014",
        "passes over tensors of no bytes",
        without_problems(lambda opened, problem: problem.index is not None and opened[problem.index].nbytes == 0),
    ),
    Twin("vocab-to-index", "HASH-016", "hashes the vocab up to the index", Parts(verify=faulty.vocab_up_to_the_index)),
)
