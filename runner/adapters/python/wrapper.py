"""A class that reads `.cmf` files, as an implementation (README.md says what the class needs to have).

Law: the class is asked and what it says is told; nothing is checked or mended on the way. Only an exception that was declared
is a refusal, whatever else it raises is an `error`. What its entries can't say is not declared: `hello` looks at the
plainest file that there is.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import index as integer
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from cmfspec.contract.protocol import (
    PROTOCOL,
    Generated,
    Hello,
    Kind,
    Likelihood,
    Logits,
    Nothing,
    Opened,
    Reply,
    Request,
    TensorLine,
)
from cmfspec.contract.sdk import Handle
from cmfspec.layout import DTYPE_IDS
from golden.files import File
from runner.preflight import PLAINEST

KINDS = frozenset(get_args(Kind)) - {"Other"}
LISTED = ("dtype", "shape", "off", "nbytes", "hash")  # what an entry needs besides its name for `tensors`
COMPUTED = ("logits", "generate", "ppl")  # declared iff the class has a method of that name
LONGEST = 1000  # characters of a message that are told


class Model(NamedTuple):
    """An opened file. entries: (name, entry) in the order of the directory."""

    reader: Any
    entries: list[tuple[str, Any]]


@dataclass(frozen=True)
class Wrapped:
    """What is wrapped. name: for people; make: path -> an object with `.tensors` and `.tensor(name)`; refusals: the
    exceptions that refuse a file; features, dtypes: as in hello."""

    name: str
    make: Callable[[str], Any]
    refusals: tuple[type[BaseException], ...]
    features: tuple[int, ...]
    dtypes: tuple[int, ...]


def wrapped(what: Wrapped) -> Handle:
    """The function that answers for it, to be served (`cmfspec.serve`)."""
    return partial(_answer, what, lru_cache(maxsize=2)(partial(_open, what)))  # one path means the same bytes


def _answer(what: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    operation = _OPERATIONS.get(request.op)
    if operation is None:
        return Reply("unsupported", None, "", request.op)
    try:
        return operation(what, opener, request)
    except what.refusals as refusal:
        said = f"{type(refusal).__name__}: {refusal}"[:LONGEST].encode("utf-8", "replace").decode("utf-8")
        return Reply("refused", None, kind_of(type(refusal)), said)


def kind_of(refusal: type[BaseException]) -> str:
    """The kind that the name of the exception's class, or of the nearest class that it derives from, says."""
    return next((cls.__name__ for cls in refusal.__mro__ if cls.__name__ in KINDS), "Other")


def _open(what: Wrapped, path: str) -> Model:
    reader = what.make(path)
    tensors = reader.tensors
    if isinstance(tensors, Mapping):
        return Model(reader, [*tensors.items()])
    return Model(reader, [(entry.name, entry) for entry in tensors])


def _hello(what: Wrapped, *_: Any) -> Reply:
    lacking = _lacking(what)
    if lacking:
        print(f"`tensors` is not declared: {lacking}", file=sys.stderr)
    operations = [op for op in _OPERATIONS if not (lacking if op == "tensors" else _beyond(what, op))]
    root = getattr(what.make, "__module__", "").split(".")[0]
    hello = Hello(
        protocol=PROTOCOL,
        name=what.name,
        version=str(getattr(sys.modules.get(root), "__version__", "")),
        operations=operations,
        features=[*what.features],
        dtypes=[*what.dtypes],
        language="Python",
        build="release",
        kinds=any(kind_of(refusal) in KINDS for refusal in _family(what.refusals)),
        artifacts=sorted({*_sources(root)}),
        forms=["f32"],
    )
    return Reply("ok", hello)


def _lacking(what: Wrapped) -> str:
    """Why the entries can't be listed, as a sentence; empty if they can."""
    with tempfile.TemporaryDirectory(prefix="cmfspec-") as folder:
        path = Path(folder) / "plainest.cmf"
        path.write_bytes(File(PLAINEST).content())
        try:
            entry = _open(what, str(path)).entries[0][1]
        except Exception:
            traceback.print_exc(file=sys.stderr)
            return "the plainest file can't be opened"
        missing = [name for name in LISTED if not hasattr(entry, name)]
        return f"an entry has no {', '.join(missing)}" if missing else ""


def _beyond(what: Wrapped, op: str) -> bool:
    """Whether it is asked of engines, and the class has no method of that name."""
    return op in COMPUTED and not callable(getattr(what.make, op, None))


def _family(classes: Sequence[type[BaseException]]) -> Iterator[type[BaseException]]:
    """The classes and all that derive from them."""
    for cls in classes:
        yield cls
        yield from _family(cls.__subclasses__())


def _sources(root: str) -> Iterator[str]:
    """The files of the package that were loaded: after the plainest file, those that reading needs."""
    for name, module in [*sys.modules.items()]:
        path = getattr(module, "__file__", None)
        if name.split(".")[0] == root and path:
            yield str(Path(path).resolve())


def _nothing(*_: Any) -> Reply:
    return Reply("ok", Nothing())


def _opened(_: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    return Reply("ok", Opened(len(opener(request.file).entries)))


def _tensors(_: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    lines = [_line(name, entry) for name, entry in opener(request.file).entries]
    rows = (json.dumps({field: getattr(line, field) for field in line.__struct_fields__}) for line in lines)
    return _written(request, "".join(f"{row}\n" for row in rows).encode("ascii"))


def _line(name: str, entry: Any) -> TensorLine:
    """An entry as it is listed. dtype: an id, or a name of §3.1; hash: an integer or its hex digits."""
    dtype = DTYPE_IDS[entry.dtype] if isinstance(entry.dtype, str) else integer(entry.dtype)
    digest = entry.hash if isinstance(entry.hash, str) else f"{integer(entry.hash):016x}"
    shape = [integer(dim) for dim in entry.shape]
    return TensorLine(name, dtype, shape, str(integer(entry.off)), str(integer(entry.nbytes)), digest)


def _tensor(_: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    if request.form != "f32":
        return Reply("unsupported", None, "", f"a tensor as {request.form}")
    model, at = opener(request.file), request.index
    if at is None or not 0 <= at < len(model.entries):
        return Reply("error", None, "", f"tensor {at} of {len(model.entries)}")
    values = np.asarray(model.reader.tensor(model.entries[at][0]))
    with np.errstate(all="ignore"):
        return _written(request, values.astype("<f4", order="C", casting="same_kind").tobytes())


def _logits(_: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    how = _given(request, "split", "rows", "task", "skill")
    values = np.asarray(opener(request.file).reader.logits(request.tokens, **how))
    with np.errstate(all="ignore"):
        _written(request, values.astype("<f4", order="C", casting="same_kind").tobytes())
    return Reply("ok", Logits([*values.shape]))


def _generated(_: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    how = _given(request, "max_new", "stop", "task", "skill")
    found = opener(request.file).reader.generate(request.tokens, **how)
    return Reply("ok", Generated([integer(token) for token in found]))


def _likelihood(_: Wrapped, opener: Callable[[str], Model], request: Request) -> Reply:
    nll, count = opener(request.file).reader.ppl(request.tokens, **_given(request, "window", "stride", "task", "skill"))
    return Reply("ok", Likelihood(float(nll), integer(count)))


def _given(request: Request, *members: str) -> dict[str, Any]:
    """Those members that the request has: a method need not know the others."""
    return {name: getattr(request, name) for name in members if getattr(request, name) is not None}


def _written(request: Request, data: bytes) -> Reply:
    if request.out is None:
        raise ValueError("the request names no `out`")
    Path(request.out).write_bytes(data)
    return Reply("ok", Nothing())


_OPERATIONS: dict[str, Callable[[Wrapped, Callable[[str], Model], Request], Reply]] = {
    "hello": _hello,
    "ping": _nothing,
    "open": _opened,
    "tensors": _tensors,
    "tensor": _tensor,
    "logits": _logits,
    "generate": _generated,
    "ppl": _likelihood,
    "bye": _nothing,
}
