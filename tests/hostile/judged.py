"""A reader with one vice: `judged.py VICE`. Everything else it does as the reference does.

Law: each vice is a lie that some suite has once believed.
"""

import os
import signal
import sys
import time

from cmfspec.contract.protocol import OPERATIONS, Nothing, Opened, Reply, Verified
from cmfspec.contract.reference import reference
from cmfspec.contract.sdk import serve

RIGHT = reference()
ASKED = ("open", "tensors", "tensor", "verify", "header", "hash64")
LAST = {}


def honest(request):
    return RIGHT(request)


def refuses_all(request):
    return Reply("refused", None, "Parse", "no") if request.op in ASKED else RIGHT(request)


def accepts_all(request):
    reply = RIGHT(request)
    if reply.status == "refused":
        made = {"open": Opened(0, []), "verify": Verified(True)}
        return Reply("ok", made.get(request.op, Nothing()))
    return reply


def on_refusal(act):
    def vice(request):
        reply = RIGHT(request)
        return act(request) or reply if reply.status == "refused" else reply

    return vice


def dies(request):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(request):
    time.sleep(3600)


def shouts(request):
    os.write(OUT, b"this file is bad!\n")


def raises(request):
    raise ValueError("bad file")


def whispers(request):
    sys.stderr.write("\x1b[2Jgone\n")
    sys.stderr.flush()
    os.abort()


def only_warns(request):
    if request.op == "open":
        return Reply("ok", Opened(None, None), warnings=("this file is bad",))
    return None


def previous(request):
    """The right answer to the question before."""
    if request.op in ("hello", "ping", "bye"):
        return RIGHT(request)
    last, LAST["reply"] = LAST.get("reply"), RIGHT(request)
    same_kind = last is not None and (last.status != "ok" or LAST.get("op") == request.op)
    LAST["op"] = request.op
    return last if same_kind else LAST["reply"]


def unsupported(request):
    return Reply("unsupported") if request.op in ASKED[1:] and request.op != "tensor" else RIGHT(request)


def declares_little(request):
    reply = RIGHT(request)
    if request.op == "hello":
        reply.value.operations[:] = ["hello", "ping", "open", "tensor", "bye"]
        reply.value.dtypes[:] = [1]
        reply.value.features[:] = list(range(32))
    return reply


def is_elsewhere(request):
    """Names a file of its own that is not there."""
    reply = RIGHT(request)
    if request.op == "hello":
        reply.value.artifacts[:] = ["/nonexistent/reader.so"]
    return reply


def remembers(request):
    """Refuses every file after the first fifty."""
    LAST["count"] = LAST.get("count", 0) + (request.op == "open")
    return Reply("refused", None, "Other", "tired") if request.op == "open" and LAST["count"] > 50 else RIGHT(request)


def strays(request):
    """Leave a process in a session of its own that holds the pipes."""
    if request.op == "open" and not LAST.get("forked"):
        LAST["forked"] = True
        if os.fork() == 0:
            os.setsid()
            time.sleep(3600)
    return RIGHT(request)


VICES = {
    "honest": honest,
    "refuses_all": refuses_all,
    "accepts_all": accepts_all,
    "dies": on_refusal(dies),
    "hangs": on_refusal(hangs),
    "shouts": on_refusal(shouts),
    "raises": on_refusal(raises),
    "whispers": on_refusal(whispers),
    "only_warns": on_refusal(only_warns),
    "previous": previous,
    "unsupported": unsupported,
    "declares_little": declares_little,
    "is_elsewhere": is_elsewhere,
    "remembers": remembers,
    "strays": strays,
}

if __name__ == "__main__":
    vice = sys.argv[1]
    if vice == "never_reads":
        time.sleep(3600)
    OUT = os.dup(1)
    assert set(ASKED) <= set(OPERATIONS)
    serve(VICES[vice])
