"""The wire protocol: JSON lines between the runner and an implementation.

Law: defined here once. Encoding, decoding and `protocol.schema.json` derive from these structs; INTERPRETING.md explains
them to the author of an adapter. What an implementation says is untrusted: `decode_reply` returns a `Reply` or raises
`BadReply`, and nothing else. Expected answers never travel.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

import msgspec

PROTOCOL = 1
MAX_REQUEST = 64 * 1024
MAX_REPLY = 1024 * 1024
DEEPEST = 32  # levels of objects and lists in a reply

Kind = Literal["InvalidMagic", "UnsupportedVersion", "UnsupportedFeature", "Bounds", "Parse", "Other"]
Form = Literal["f32", "raw"]
FORMS: tuple[Form, ...] = get_args(Form)
Section = Literal["masks", "vocab", "index"]
Rows = Literal["all", "last"]
Under = Literal["task", "skill"]
Family = Literal[
    "llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_mtp"
]
FAMILIES: tuple[Family, ...] = get_args(Family)
Status = Literal["ok", "refused", "unsupported", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)


class BadReply(Exception):
    """A line that is not one well-formed reply to the request in flight."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question. Members travel in this order; those that an operation does not use are left out.

    file: path of the file asked about, "" for hello, ping and bye.
    protocol: hello only, the protocol's version.
    index: the tensor's place in the directory, from 0.
    dtype, shape: what to encode as, and the dimensions of what is encoded.
    bits: the mean width of a row, for vbit.
    form: `f32` for decoded values, `raw` for the payload's bytes.
    tokens: ids of a text, from its first on.
    split: how many of the tokens each call of the forward takes, in order; all in one if it is left out.
    rows: `last` where logits are wanted of the last token only.
    max_new, stop: how many tokens to add at most, and at which ids to end before that; such an id is not among them.
    window, stride: tokens that a window has, and by which the next one begins later.
    task, skill: the mask and the skill to run under (§5, §9); left out, the dense model.
    out: a path that does not exist yet; the answer goes there (see `Operation.out`).
    """

    id: int
    op: str
    file: str = msgspec.field(default=None)  # type: ignore[assignment]  # always sent: no request equals its default
    protocol: int | None = None
    index: int | None = None
    form: Form | None = msgspec.field(default=None, name="as")
    dtype: int | None = None
    shape: list[int] | None = None
    bits: float | None = None
    tokens: list[int] | None = None
    split: list[int] | None = None
    rows: Rows | None = None
    max_new: int | None = None
    stop: list[int] | None = None
    window: int | None = None
    stride: int | None = None
    task: str | None = None
    skill: str | None = None
    out: str | None = None


class Hello(msgspec.Struct, frozen=True):
    """Who answers, and what it undertakes to answer. Declared is held to; undeclared is not applicable.

    artifacts: paths of the files that make up the implementation; their SHA-256 identifies it.
    operations: names from `OPERATIONS`.
    features: the bits of `required_features` that it implements; dtypes: the ids that it decodes. Both may name more
        than this revision of the text knows: rules about the unknown then skip what is named.
    kinds: false if its refusals have no kinds.
    forms: what `tensor` is answered as, of `f32` and `raw`.
    encodes: the ids that it encodes (`encode`).
    activations: what the forward multiplies weights by; `int8` if it rounds to that, and is graded in a class of its own.
    under: what it runs models under, of `task` (a mask, §5) and `skill` (§9).
    families: the models that it runs (`logits`, `generate`, `ppl`), by what Hugging Face calls them.
    """

    protocol: int
    name: str
    version: str
    operations: list[str]
    features: list[int]
    dtypes: list[int]
    language: str = ""
    build: Literal["release", "debug", ""] = ""
    kinds: bool = True
    artifacts: list[str] = []
    forms: list[Form] = msgspec.field(default_factory=lambda: list(FORMS))
    encodes: list[int] = []
    activations: Literal["f32", "int8"] = "f32"
    under: list[Under] = msgspec.field(default_factory=lambda: list(UNDER))
    families: list[Family] = msgspec.field(default_factory=lambda: list(FAMILIES))


class Nothing(msgspec.Struct, frozen=True):
    """No more than «yes»."""


class Opened(msgspec.Struct, frozen=True):
    """tensors: entries in the directory; sections: the optional sections that the file has, as the reader sees it."""

    tensors: int | None = None
    sections: list[Section] | None = None

    @staticmethod
    def of(tensors: int, sections: list[str]) -> Opened:
        """The reply with sections by their names. Raises msgspec.ValidationError."""
        return msgspec.convert({"tensors": tensors, "sections": sections}, Opened)


class Problem(msgspec.Struct, frozen=True):
    """One thing that verify found. where: header, dir, data, masks, vocab, index, section_hashes, tensor or another
    word; index: the tensor's place in the directory if it is one."""

    where: str
    index: int | None = None
    kind: str = ""


class Verified(msgspec.Struct, frozen=True):
    """sound: nothing was found. A damaged file that opens is `ok` with sound false; `refused` only if it can't open."""

    sound: bool
    problems: list[Problem] = []


class Hashed(msgspec.Struct, frozen=True):
    """hash64 of the file's bytes (§8), 16 hex digits."""

    hash: str


class Encoded(msgspec.Struct, frozen=True):
    """dtype: the id of the encoding that was used in the end, where it isn't the one that was asked for."""

    dtype: int | None = None


class Logits(msgspec.Struct, frozen=True):
    """shape: [rows, vocabulary] of what was written."""

    shape: list[int]


class Generated(msgspec.Struct, frozen=True):
    """tokens: the new ones, without a stop id."""

    tokens: list[int]


class Likelihood(msgspec.Struct, frozen=True):
    """nll: the sum over the predicted tokens of −ln of their probability; count: of those tokens."""

    nll: float
    count: int


class TensorLine(msgspec.Struct, frozen=True):
    """One line of the list that `tensors` writes. off, nbytes: decimal strings (they can pass 2^53); hash: hex."""

    name: str
    dtype: int
    shape: list[int]
    off: str
    nbytes: str
    hash: str


class Operation(msgspec.Struct, frozen=True):
    """What an operation is for: the members that its request has beyond id, op and file; the type of its `ok`."""

    name: str
    says: str
    reply: Any
    members: tuple[str, ...] = ()
    out: str = ""


UNDER: tuple[Under, ...] = get_args(Under)  # members of all that an engine is asked

OPERATIONS: dict[str, Operation] = {
    op.name: op
    for op in (
        Operation("hello", "say who you are and what you can do", Hello, ("protocol",)),
        Operation("ping", "are you there", Nothing),
        Operation("open", "is this file valid, as §1.2 has it", Opened),
        Operation("header", "the header JSON as you read it", Nothing, ("out",), "the header, JSON (§2)"),
        Operation("tensors", "list the directory, in order", Nothing, ("out",), "a `TensorLine` each, JSON lines"),
        Operation("tensor", "one tensor", Nothing, ("index", "as", "out"), "f32: little-endian, row-major; raw: payload"),
        Operation("verify", "check every hash of the chain (§8.1)", Verified),
        Operation("hash64", "hash64 of the file's bytes, whatever they are (§8)", Hashed),
        Operation("encode", "encode the float32 in `file` (§3.2)", Encoded, ("dtype", "shape", "bits", "out"), "the payload"),
        Operation("write", "write what the JSON in `file` describes (§1)", Nothing, ("out",), "the container"),
        Operation("logits", "run the model over tokens (§2)", Logits, ("tokens", "split", "rows", *UNDER, "out"), "float32"),
        Operation("generate", "go on greedily (§2)", Generated, ("tokens", "max_new", "stop", *UNDER)),
        Operation("ppl", "how likely is each token but the first", Likelihood, ("tokens", "window", "stride", *UNDER)),
        Operation("bye", "the last request; answer and exit 0", Nothing),
    )
}  # fmt: skip
MINIMAL = ("hello", "ping", "open", "tensor", "bye")


class Reply(msgspec.Struct, frozen=True):
    """One answer, checked. value: of the operation's reply type when status is ok, else None."""

    status: Status
    value: Any = None
    kind: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()


class _Refused(msgspec.Struct, frozen=True):
    kind: Kind = "Other"
    message: str = ""


class _Message(msgspec.Struct, frozen=True):
    message: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


def encode_request(request: Request) -> bytes:
    """The request as one line of ASCII, newline included. Raises ValueError where our own promise would break."""
    line = _ENCODER.encode(request) + b"\n"
    if len(line) > MAX_REQUEST or not line.isascii():
        raise ValueError(f"a request of {len(line)} bytes breaks the promise of the protocol: {line[:80]!r}")
    return line


def decode_request(line: bytes) -> Request:
    """The request in a line (for implementations written in Python). Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=Request)


def encode_reply(identity: int | None, reply: Reply) -> bytes:
    """A reply as one line of ASCII, newline included."""
    body: Any = {"message": reply.message}
    if reply.status == "refused":
        body = {"kind": reply.kind, "message": reply.message}
    elif reply.status == "ok":
        body = msgspec.to_builtins(reply.value)
    message = {"id": identity, reply.status: body}
    if reply.warnings:
        message["warnings"] = list(reply.warnings)
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode_reply(line: bytes, request: Request) -> Reply:
    """The reply to `request` in a line without its newline.

    Raises `BadReply` for anything else: invalid UTF-8, no JSON, the wrong id, none or two of the four statuses, a
    body that the operation doesn't have, an operation that does not exist.
    """
    if request.op not in OPERATIONS:
        raise BadReply(f"there is no operation {request.op!r}")
    try:
        line.decode("utf-8")  # the decoder below skips what it does not know without looking
        message = _DECODER.decode(line)
        if not _plain(line):
            message = _texts(message, 0)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadReply(f"not a line of JSON in UTF-8: {error}") from None
    if not isinstance(message, dict):
        raise BadReply(f"a reply is an object, not {type(message).__name__}")
    if type(message.get("id")) is not int or message["id"] != request.id:
        raise BadReply(f"id {message.get('id')!r} answers no request; in flight is {request.id}")
    found = [status for status in STATUSES if status in message]
    if len(found) != 1:
        raise BadReply(f"exactly one of {', '.join(STATUSES)} is wanted, found {', '.join(found) or 'none'}")
    status, body = found[0], message[found[0]]
    try:
        told = message.get("warnings")
        warnings = msgspec.convert(told, tuple[str, ...]) if told else ()
        if status == "ok":
            return Reply("ok", msgspec.convert(body, OPERATIONS[request.op].reply), warnings=warnings)
        if status == "refused":
            refused = msgspec.convert(body, _Refused)
            return Reply("refused", None, refused.kind, refused.message, warnings)
        return Reply(status, None, "", msgspec.convert(body or {}, _Message).message, warnings)
    except msgspec.ValidationError as error:
        raise BadReply(f"`{status}` of {request.op}: {error}") from None


def decode_line(line: bytes) -> TensorLine:
    """One line of what `tensors` wrote. Raises `BadReply`."""
    try:
        line.decode("utf-8")
        return msgspec.convert(_texts(_DECODER.decode(line), 0), TensorLine)
    except (UnicodeDecodeError, msgspec.DecodeError, msgspec.ValidationError, RecursionError, ValueError) as error:
        raise BadReply(f"not a tensor's line: {error}") from None


def _plain(line: bytes) -> bool:
    """Whether `_texts` would change and refuse nothing: no key can be `hex`, however spelt, and nothing nests deeply."""
    return b"hex" not in line and b"\\" not in line and line.count(b"{") + line.count(b"[") <= DEEPEST


def _texts(node: Any, depth: int) -> Any:
    """Any string may come as {"hex": "…"}, its UTF-8 in hex. Deep nesting is refused: no reply needs it."""
    if depth > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST}")
    if isinstance(node, dict):
        if len(node) == 1 and isinstance(node.get("hex"), str):
            return bytes.fromhex(node["hex"]).decode("utf-8")
        return {key: _texts(value, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_texts(value, depth + 1) for value in node]
    return node


def schema() -> dict[str, Any]:
    """The published schema: the request, each operation's `ok`, and the lines of `tensors`."""
    types = [Request, _Refused, _Message, TensorLine, *{op.reply: None for op in OPERATIONS.values()}]
    _, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"cmfspec protocol {PROTOCOL}",
        "$defs": {name.lstrip("_"): component for name, component in components.items()},
        "operations": {
            op.name: {"says": op.says, "request": list(op.members), "ok": f"#/$defs/{op.reply.__name__}", "out": op.out}
            for op in OPERATIONS.values()
        },
    }


def main() -> None:
    """`python -m cmfspec.contract.protocol > cmfspec/contract/protocol.schema.json`."""
    print(json.dumps(schema(), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
