"""Our own reader as an implementation: request in, reply out.

Law: it is asked exactly what others are asked. Its parts are a frozen record, so that a deliberately wrong reader is this
one with one part replaced.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cmfspec
from cmfspec.codecs import CODECS, ENCODERS, encode, plan
from cmfspec.contract.protocol import (
    OPERATIONS,
    PROTOCOL,
    Encoded,
    Generated,
    Hashed,
    Hello,
    Likelihood,
    Logits,
    Nothing,
    Opened,
    Problem,
    Reply,
    Request,
    TensorLine,
    Verified,
)
from cmfspec.contract.sdk import Handle
from cmfspec.errors import Refusal
from cmfspec.format import container, verify
from cmfspec.format.blueprint import Blueprint, from_json
from cmfspec.format.checks import CHECKS, Check
from cmfspec.format.container import Container, Tensor
from cmfspec.format.hash64 import hash64
from cmfspec.format.view import View
from cmfspec.layout import DTYPE_IDS, DTYPE_NAMES, IMPLEMENTED_FEATURES, OPTIONAL
from cmfspec.tools import writer
from cmfspec.tools.writer import Item

if TYPE_CHECKING:
    from cmfspec.engine import Model

Encode = Callable[[str, Any, Mapping[str, Any]], tuple[str, bytes]]


def _encode(wanted: str, weights: Any, options: Mapping[str, Any]) -> tuple[str, bytes]:
    """What the plan makes of a request: the encoding that is used, and the payload."""
    used = plan("", weights.shape, wanted)
    return used, encode(used, weights, **(options if used == wanted else {}))


def _write(blueprint: Blueprint) -> bytes:
    """The file that our writer makes of it. Raises CannotEncode."""
    items = [Item(t.name, DTYPE_NAMES[t.dtype], t.shape, partial(bytes, t.payload)) for t in blueprint.tensors]
    stream = io.BytesIO()
    writer.write(stream, blueprint.header, items, {name: getattr(blueprint, name) for name in OPTIONAL})
    return stream.getvalue()


def _model(opened: Container) -> Model:
    """The model of a file, by our engine: loaded only where somebody asks for it. Raises Unrunnable."""
    from cmfspec.engine import load

    return load(opened)


def _likely(model: Model, tokens: list[int], *how: Any) -> tuple[float, int]:
    """The sum of the negative log likelihood, and of how many tokens. Raises Unanswerable."""
    from cmfspec.engine.perplexity import likelihood

    found = likelihood(model, tokens, *how)
    return found.nll, found.count


@dataclass(frozen=True)
class Parts:
    """What the reader is made of. Each part can be replaced by a wrong one.

    checks: the table of checks; view: bytes to a view; tensor: container and index to its entry;
    values: container and index to float32; verify: container to problems; hash: bytes to hash64;
    features: the bits of required_features that hello declares; opened: the reply to open;
    encode: wanted encoding, float32 weights and options to the encoding that was used and its payload;
    write: what a file shall hold to the file; model: container to what computes;
    likelihood: that, tokens, window, stride, task and skill to the sum and the count.
    """

    checks: tuple[Check, ...] = CHECKS
    view: Callable[[bytes | memoryview], View] = View
    tensor: Callable[[Container, int], Tensor] = lambda opened, index: opened[index]
    values: Callable[[Container, int], Any] = lambda opened, index: opened.values(index)
    verify: Callable[[Container], Iterator[verify.Problem]] = verify.verify
    hash: Callable[[bytes | memoryview], int] = hash64
    features: tuple[int, ...] = IMPLEMENTED_FEATURES
    opened: Callable[[Container], Reply] = field(
        default=lambda opened: Reply("ok", Opened.of(len(opened), opened.sections))
    )
    encode: Encode = _encode
    write: Callable[[Blueprint], bytes] = _write
    model: Callable[[Container], Any] = _model
    likelihood: Callable[..., tuple[float, int]] = _likely
    name: str = "cmfspec"


def reference(parts: Parts = Parts()) -> Handle:
    """The function that answers for a reader of these parts."""
    opener = lru_cache(maxsize=2)(partial(_open, parts))  # one path means the same bytes
    return partial(_answer, parts, opener)


def _answer(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    operation = _OPERATIONS.get(request.op)
    if operation is None:
        return Reply("unsupported", None, "", request.op)
    try:
        return operation(parts, opener, request)
    except Refusal as refusal:
        return Reply("refused", None, refusal.kind, str(refusal))


def _open(parts: Parts, path: str) -> Container:
    opened = Container(parts.view(container.read(path)))
    container.judge(opened.view, parts.checks)
    return opened


def _hello(parts: Parts, _: Any, __: Request) -> Reply:
    home = Path(cmfspec.__file__).parent
    hello = Hello(
        protocol=PROTOCOL,
        name=parts.name,
        version=cmfspec.__version__,
        operations=[*OPERATIONS],
        features=list(parts.features),
        dtypes=[*CODECS],
        language="Python",
        build="release",
        encodes=[DTYPE_IDS[name] for name in ENCODERS],
        artifacts=sorted(str(path) for path in home.rglob("*.py")),
    )
    return Reply("ok", hello)


def _nothing(*_: Any) -> Reply:
    return Reply("ok", Nothing())


def _opened(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    return parts.opened(opener(request.file))


def _header(_: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    _put(request.out, bytes(opener(request.file).view.part("header")))
    return Reply("ok", Nothing())


def _tensors(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    opened = opener(request.file)
    lines = []
    for index in range(len(opened)):
        t = parts.tensor(opened, index)
        line = TensorLine(t.name, t.dtype, list(t.shape), str(t.off), str(t.nbytes), f"{t.hash:016x}")
        lines.append(json.dumps({name: getattr(line, name) for name in line.__struct_fields__}))
    _put(request.out, "".join(f"{line}\n" for line in lines).encode())
    return Reply("ok", Nothing())


def _tensor(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    opened = opener(request.file)
    index = request.index or 0
    if not 0 <= index < len(opened):
        return Reply("error", None, "", f"tensor {index} of {len(opened)}")
    raw = request.form == "raw"
    _put(request.out, bytes(opened.raw(index)) if raw else parts.values(opened, index).astype("<f4").tobytes())
    return Reply("ok", Nothing())


def _verify(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    opened = opener(request.file)
    problems = [Problem(p.where, p.index, p.kind) for p in parts.verify(opened)]
    return Reply("ok", Verified(not problems, problems[:1000]))


def _hash64(parts: Parts, _: Any, request: Request) -> Reply:
    return Reply("ok", Hashed(f"{parts.hash(container.read(request.file)):016x}"))


def _encoded(parts: Parts, _: Any, request: Request) -> Reply:
    shape = tuple(request.shape or ())
    weights = np.frombuffer(container.read(request.file), "<f4").astype(np.float32).reshape(shape)
    options = {"bits": request.bits} if request.bits else {}
    used, payload = parts.encode(DTYPE_NAMES[request.dtype or 0], weights, options)
    _put(request.out, payload)
    return Reply("ok", Encoded(DTYPE_IDS[used]))


def _written(parts: Parts, _: Any, request: Request) -> Reply:
    _put(request.out, parts.write(from_json(json.loads(bytes(container.read(request.file))))))
    return Reply("ok", Nothing())


def _logits(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    model = parts.model(opener(request.file))
    found = model.logits(request.tokens or [], request.split, request.rows or "all", request.task, request.skill)
    _put(request.out, found.astype("<f4").tobytes())
    return Reply("ok", Logits([*found.shape]))


def _generated(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    model = parts.model(opener(request.file))
    how: dict[str, Any] = {"stop": request.stop, "task": request.task, "skill": request.skill}
    return Reply("ok", Generated([*model.generate(request.tokens or [], request.max_new or 0, **how)]))


def _likelihood(parts: Parts, opener: Callable[[str], Container], request: Request) -> Reply:
    model = parts.model(opener(request.file))
    how = (request.window, request.stride, request.task, request.skill)
    return Reply("ok", Likelihood(*parts.likelihood(model, request.tokens or [], *how)))


def _put(out: str | None, data: bytes) -> None:
    if out is None:
        raise ValueError("the request names no `out`")
    Path(out).write_bytes(data)


_OPERATIONS: dict[str, Callable[[Parts, Callable[[str], Container], Request], Reply]] = {
    "hello": _hello,
    "ping": _nothing,
    "bye": _nothing,
    "open": _opened,
    "header": _header,
    "tensors": _tensors,
    "tensor": _tensor,
    "verify": _verify,
    "hash64": _hash64,
    "encode": _encoded,
    "write": _written,
    "logits": _logits,
    "generate": _generated,
    "ppl": _likelihood,
}
