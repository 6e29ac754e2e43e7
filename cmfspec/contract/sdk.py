"""For implementations written in Python: a function from request to reply becomes an adapter.

Law: what the function raises is an `error` reply with the traceback on stderr, never silence; stdout carries nothing else.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import msgspec

from cmfspec.contract.protocol import Reply, Request, decode_request, encode_reply

Handle = Callable[[Request], Reply]


def safely(handle: Handle, request: Request) -> Reply:
    """The reply, or an `error` reply for whatever the function raises."""
    try:
        return handle(request)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return Reply("error", None, "", f"{type(error).__name__}: {error}")


def serve(handle: Handle) -> None:
    """Answer requests on stdin until `bye` or the end of input (INTERPRETING.md)."""
    out = os.dup(1)
    os.dup2(2, 1)  # a stray print must not become protocol
    for line in sys.stdin.buffer:
        try:
            request = decode_request(line)
        except msgspec.DecodeError as error:
            os.write(out, encode_reply(None, Reply("error", None, "", f"not a request: {error}")))
            continue
        _write(out, encode_reply(request.id, safely(handle, request)))
        if request.op == "bye":
            return


def _write(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]
