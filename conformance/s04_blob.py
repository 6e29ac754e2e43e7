"""§4, the blob that only the directory explains."""

from __future__ import annotations

from cmfspec.contract.rule import LITERAL, OBSERVATION, READER, rule
from cmfspec.contract.subject import Subject
from conformance.draws import sampled_from
from golden.files import File

ONLY_THROUGH = "读取器只能通过目录来解释该 blob。"
GAPS = (
    File("plain", (("data.gap[1]", 64),)),
    File("plain", (("data.gap[0]", 4096), ("data.gap[2]", 4032))),
    File("full", (("data.gap[0]", 100), ("data.gap[3]", 640))),
)


@rule(
    "BLOB-004",
    section="4",
    tier=LITERAL,
    binds=READER,
    quote=ONLY_THROUGH,
    draw={"file": sampled_from((*GAPS, File("plain", (("data.gap[0]", 64), ("data.order", [1, 2, 0])))))},
)
def the_blob_is_read_through_the_directory_only(subject: Subject, file: File) -> None:
    """With junk before, between and behind the tensors."""
    subject.must_say(file, file.tensors)


@rule(
    "BLOB-005",
    section="4",
    tier=OBSERVATION,
    binds=READER,
    quote=ONLY_THROUGH,
    draw={
        "file": sampled_from(
            File(name, (("tail", 8192), ("envelope.data_len", {"plus": 4096}))) for name in ("plain", "full")
        )
    },
)
def a_blob_longer_than_its_tensors(subject: Subject, file: File) -> None:
    """Slack at the end that no record speaks of."""
    subject.open(file).observe()
