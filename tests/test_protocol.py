"""The wire protocol: what is published is what is decoded, and any bytes are a reply or a `BadReply`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmfspec.contract import protocol
from cmfspec.contract.protocol import (
    MAX_REQUEST,
    OPERATIONS,
    BadReply,
    Opened,
    Reply,
    Request,
    Verified,
    decode_line,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    schema,
)  # fmt: skip

OPEN = Request(7, "open", "/tmp/a.cmf")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "ok", "hex", "sound", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_the_published_schema_is_fresh() -> None:
    """`python -m cmfspec.contract.protocol > cmfspec/contract/protocol.schema.json`."""
    published = json.loads(Path(protocol.__file__).with_name("protocol.schema.json").read_text("utf-8"))
    assert published == schema()
    jsonschema.Draft202012Validator.check_schema({"$defs": published["$defs"]})


def test_a_request_is_a_line_of_ascii_with_its_members_in_order() -> None:
    """What a C adapter may rely on."""
    request = Request(3, "tensor", "/a/b.cmf", index=0, form="f32", out="/o")
    line = encode_request(request)
    assert line == b'{"id":3,"op":"tensor","file":"/a/b.cmf","index":0,"as":"f32","out":"/o"}\n'
    assert decode_request(line) == request
    assert encode_request(Request(0, "hello", "", protocol=1)) == b'{"id":0,"op":"hello","file":"","protocol":1}\n'
    with pytest.raises(ValueError, match="promise"):
        encode_request(Request(1, "open", "x" * MAX_REQUEST))


GOOD = [
    (b'{"id":7,"ok":{}}', Reply("ok", Opened())),
    (b'{"id":7,"ok":{"tensors":3,"sections":["vocab"],"more":1}}\r', Reply("ok", Opened(3, ["vocab"]))),
    (b'{"id":7,"refused":{"kind":"Bounds","message":{"hex":"41"}}}', Reply("refused", None, "Bounds", "A")),
    (b'{"id":7,"refused":{}}', Reply("refused", None, "Other")),
    (b'{"id":7,"unsupported":null}', Reply("unsupported")),
    (b'{"id":7,"error":{"message":"x"}}', Reply("error", None, "", "x")),
    (b'{"id":7,"ok":{},"warnings":["w"]}', Reply("ok", Opened(), warnings=("w",))),
]


@pytest.mark.parametrize(("line", "want"), GOOD, ids=lambda value: str(value)[:30])
def test_a_good_reply_is_understood(line: bytes, want: Reply) -> None:
    """CRLF, additions and hex strings included."""
    assert decode_reply(line, OPEN) == want


BAD = [
    b"", b"[]", b"{}", b"null", b"hello", b'{"id":7}', b'{"id":8,"ok":{}}', b'{"id":"7","ok":{}}', b'{"id":7.0,"ok":{}}', b'{"id":true,"ok":{}}',
    b'{"id":7,"ok":{},"refused":{}}', b'{"id":7,"ok":3}', b'{"id":7,"ok":null}', b'{"id":7,"refused":{"kind":"Nope"}}', b'{"id":7,"ok":{"tensors":"3"}}',
    b'{"id":7,"ok":{},"zzz":"\xff"}', b'{"id":7,"ok":{"sections":["header"]}}', b"[" * 100_000, b'{"id":7,"ok":{"x":' + b"[" * 50 + b"]" * 50 + b"}}",
    b'{"id":7,"refused":{"message":{"hex":"zz"}}}', b'{"id":7,"refused":{"message":{"hex":"ff"}}}',
]  # fmt: skip


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:30].decode("latin-1"))
def test_a_bad_reply_is_said_to_be_one(line: bytes) -> None:
    """Noise, the wrong id, none or two statuses, a wrong body."""
    with pytest.raises(BadReply):
        decode_reply(line, OPEN)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60) | JSON.map(lambda node: json.dumps(node).encode()), st.sampled_from(sorted(OPERATIONS)))
def test_any_bytes_are_a_reply_or_a_bad_one(line: bytes, op: str) -> None:
    """Nothing else leaves the decoder."""
    for decode in (lambda: decode_reply(line, Request(7, op, "")), lambda: decode_line(line)):
        try:
            decode()
        except BadReply as bad:
            assert str(bad)


def test_a_reply_survives_the_wire() -> None:
    """Encode, decode."""
    for reply in (
        Reply("ok", Opened(2, ["masks"])),
        Reply("refused", None, "Parse", "náïve\n"),
        Reply("error", None, "", "x"),
    ):
        assert decode_reply(encode_reply(7, reply).rstrip(b"\n"), OPEN) == reply
    sound = Reply("ok", Verified(True))
    assert decode_reply(encode_reply(7, sound).rstrip(b"\n"), Request(7, "verify", "")) == sound


def test_the_quick_way_to_read_a_reply_reads_no_other_than_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts in hex, however the key is spelt, and depth are seen in both."""
    from cmfspec.contract import protocol

    request = protocol.Request(1, "open", "f")
    deep = b'{"id":1,"ok":{"tensors":1},"x":' + b"[" * 40 + b"]" * 40 + b"}"
    lines = (
        b'{"id":1,"ok":{"tensors":1,"sections":["masks"]}}',
        b'{"id":1,"ok":{"tensors":1,"sections":[{"hex":"6d61736b73"}]}}',
        b'{"id":1,"ok":{"tensors":1,"sections":[{"\\u0068ex":"6d61736b73"}]}}',
        b'{"id":1,"refused":{"kind":"Parse","message":"hex"},"warnings":["a"]}',
        b'{"id":1,"refused":{"kind":"Parse","message":{"hex":"zz"}}}',
        b'{"id":1,"error":{"message":"' + b"{" * 40 + b'"}}',
        deep,
    )

    def read(line: bytes) -> object:
        try:
            return protocol.decode_reply(line, request)
        except protocol.BadReply as error:
            return str(error)

    quick = [read(line) for line in lines]
    monkeypatch.setattr(protocol, "_plain", lambda _: False)
    assert quick == [read(line) for line in lines]
    assert quick[0] == quick[1] == quick[2]
    assert "deeper" in str(quick[-1])
