"""A small reader with one vice: `gallery.py VICE [FILE]`. Standard library only, so that it starts at once.

Law: it is right about the two things that the gallery asks, a file's magic and its f16 values, until its vice comes out: at the start,
at a file of several tensors that must be accepted (`AT_RIGHT`), or at one that must be refused (`AT_WRONG`), where it can pass for a refusal.
"""

import json
import mmap
import os
import signal
import struct
import sys
import time

HELLO = {"protocol": 1, "name": "gallery", "version": "1", "features": [0, 1, 2, 6], "dtypes": list(range(16))}
HELLO["operations"] = ["hello", "ping", "open", "tensor", "bye"]
EVERYTHING = ["hello", "ping", "open", "header", "tensors", "tensor", "verify", "hash64", "bye"]
MIB = 1 << 20
REFUSED = {"refused": {"kind": "InvalidMagic", "message": "no CMF file"}}
LAST = {}


def send(data):
    while data:
        data = data[os.write(1, data) :]


def line(request, body, end="\n"):
    return (json.dumps({"id": request["id"], **body}) + end).encode()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def magic(request):
    content = read(request["file"])
    return {"ok": {}} if content[:4] == b"CMF\x01" else REFUSED


def tensors(path):
    content = read(path)
    return struct.unpack_from("<Q", content, struct.unpack_from("<Q", content, 0x20)[0])[0]


def values(request):
    content = read(request["file"])
    directory, data = (struct.unpack_from("<Q", content, at)[0] for at in (0x20, 0x30))
    off, size = struct.unpack_from("<QQ", content, directory + 16 + 56 * request["index"] + 32)
    halves = struct.unpack_from(f"<{size // 2}e", content, data + off)
    with open(request["out"], "wb") as file:
        file.write(struct.pack(f"<{len(halves)}f", *halves))
    return {"ok": {}}


RIGHT = {"hello": lambda _: {"ok": HELLO}, "open": magic, "tensor": values}


def right(request):
    return RIGHT.get(request["op"], lambda _: {"ok": {}})(request)


# --- what a vice does: (request, right answer) → the answer that it gives, or None if it has said enough ------------


def sleep(*_):
    time.sleep(3600)


def die(number):
    return lambda *_: os.kill(os.getpid(), number)


def say(make):
    """Bytes of its own in the place of the right line."""
    return lambda request, answer: send(make(line(request, answer)))


def ignores_sigterm(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


def late(request, answer):
    time.sleep(1.2)
    return answer


def twice_later(request, answer):
    send(line(request, answer))
    time.sleep(0.05)
    return answer


def wrong_id(request, answer):
    return send(line({"id": request["id"] - 1}, answer))


def modifies(request, answer):
    with open(request["file"], "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[-1] ^= 1
    return answer


def long_line(*_):
    for _ in range(1024):
        send(b"x" * MIB)


def balloon(*_):
    kept = []
    while True:
        kept.append(mmap.mmap(-1, 8 * MIB))
        kept[-1].write(b"x" * 8 * MIB)
        time.sleep(0.001)


def fills(request, answer):
    with open(f"{os.environ['TMPDIR']}/fill", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1025 * MIB)
    return answer


def closes_stdin(request, answer):
    os.close(0)
    send(line(request, answer))
    sleep()


def stray(session):
    """A child that keeps all three pipes open, in our session or in one of its own."""

    def vice(request, answer):
        if not LAST.get("stray") and not os.fork():
            if session:
                os.setsid()
            sleep()
        LAST["stray"] = True
        return answer

    return vice


def floods_stderr(request, answer):
    for _ in range(160):
        os.write(2, b"y" * 65536)
    return answer


def floods_stderr_for_ever(*_):
    while True:
        os.write(2, b"y" * 65536)


def raises(*_):
    raise ValueError("bad file")


def fails_every_other_time(request, answer):
    """Counted in a file, so that a fresh process goes on where the last one was."""
    with open(sys.argv[2], "a+b") as file:
        file.write(b".")
        return answer if file.tell() % 2 == 0 else {"ok": {}}


AT_WRONG = {
    "hangs": sleep,
    "ignores_sigterm": ignores_sigterm,
    "late": late,
    "segfaults": die(signal.SIGSEGV),
    "aborts": die(signal.SIGABRT),
    "kills_itself": die(signal.SIGKILL),
    "exits_0": lambda *_: sys.exit(0),
    "exits_1": lambda *_: sys.exit(1),
    "raises": raises,
    "noise": say(lambda reply: b"DEBUG: parsing\n" + reply),
    "half_a_line": lambda request, answer: [send(line(request, answer)[:9]), sys.exit(0)],
    "half_a_line_for_ever": lambda request, answer: [send(line(request, answer)[:9]), sleep()],
    "two_replies": say(lambda reply: reply * 2),
    "wrong_id": wrong_id,
    "invalid_utf8": say(lambda reply: reply.replace(b"no CMF file", b"no CMF f\xefle")),
    "modifies_the_input": modifies,
    "gibibyte_line": long_line,
    "balloons": balloon,
    "fills_the_scratch": fills,
    "error": lambda *_: {"error": {"message": "bad file"}},
    "warns_only": lambda *_: {"ok": {}, "warnings": ["bad file"]},
    "unsupported": lambda *_: {"unsupported": {}},
    "crlf": lambda request, answer: send(line(request, answer, "\r\n")),
    "floods_stderr": floods_stderr,
    "floods_stderr_for_ever": floods_stderr_for_ever,
    "fails_every_other_time": fails_every_other_time,
}
AT_RIGHT = {
    "late_second_reply": twice_later,
    "closes_stdin": closes_stdin,
    "stops_reading": lambda request, answer: [send(line(request, answer)), sleep()],
    "forks_a_child": stray(session=False),
    "setsids_a_child": stray(session=True),
}

# --- vices of the whole -------------------------------------------------------------------------------------------


def no_flush(requests):
    """As a C program does whose stdout is a pipe: what it says goes out when it exits."""
    send(b"".join([line(request, right(request)) for request in requests]))


def sticky(request):
    """After a refusal the next file is refused too: an error that nobody cleared."""
    if request["op"] != "open":
        return right(request)
    answer = REFUSED if LAST.get("bad") else right(request)
    LAST["bad"] = "refused" in answer and not LAST.get("bad")
    return answer


def by_size(request):
    """Two files of one size are one file."""
    size = os.stat(request["file"]).st_size if request["op"] == "open" else None
    return right(request) if size is None else LAST.setdefault(size, right(request))


def by_name(request):
    bad = any(word in request["file"].rpartition("/")[2] for word in ("bad", "wrong", "invalid", "corrupt", "lie"))
    return right(request) if request["op"] != "open" else REFUSED if bad else {"ok": {}}


def all_unsupported(request):
    return right(request) if request["op"] in ("hello", "ping", "bye") else {"unsupported": {}}


WHOLE = {
    "honest": right,
    "remembers_the_last_error": sticky,
    "answers_by_size": by_size,
    "answers_by_name": by_name,
    "declares_everything": all_unsupported,
}
DECLARED = {
    "declares_everything": {"operations": EVERYTHING, "dtypes": list(range(16))},
    "declares_nothing": {"operations": [], "dtypes": [], "features": []},
    "declares_no_dtype": {"dtypes": []},
    "another_protocol": {"protocol": 2},
}
AT_START = {
    "hangs_at_start": lambda _: sleep(),
    "exits_at_start": lambda _: sys.exit(0),
    "never_reads": lambda _: sleep(),
    "no_flush": no_flush,
    "banner": lambda _: send(b"Welcome!\n"),
}


def lines():
    """One request at a time, byte by byte: nothing is read that was not asked for."""
    while True:
        text = b""
        while not text.endswith(b"\n"):
            byte = os.read(0, 1)
            if not byte:
                return
            text += byte
        yield json.loads(text)


def main(vice):
    HELLO.update(DECLARED.get(vice, {}))
    if vice in AT_START:
        AT_START[vice](lines())
    for request in lines():
        answer = WHOLE.get(vice, right)(request)
        if request["op"] == "open" and vice not in WHOLE:
            table = AT_WRONG if "refused" in answer else AT_RIGHT if tensors(request["file"]) > 1 else {}
            answer = table.get(vice, lambda _, same: same)(request, answer)
        if isinstance(answer, dict):
            send(line(request, answer))
        if request["op"] == "bye":
            return


if __name__ == "__main__":
    if sys.argv[1] not in {**AT_WRONG, **AT_RIGHT, **WHOLE, **DECLARED, **AT_START}:
        sys.exit(f"no vice {sys.argv[1]}")
    main(sys.argv[1])
