"""An adapter with one misbehaviour: `misbehave.py MODE`.

Law: it answers everything well but `ping`, at which it misbehaves as MODE says; modes in `AT_START` misbehave before
hello, those in `BYE` at bye. Standard library only.
"""

import json
import mmap
import os
import resource
import signal
import sys
import time

HELLO = {"protocol": 1, "name": "misbehave", "version": "1", "features": [], "dtypes": []}
HELLO["operations"] = ["hello", "ping", "open", "tensor", "bye"]
OK = {"hello": HELLO, "open": {"tensors": 0, "sections": []}}
FOREVER = 3600
MIB = 1 << 20


def send(data):
    while data:
        data = data[os.write(1, data) :]


def line(identity, end="\n", **body):
    return (json.dumps({"id": identity, **(body or {"ok": {}})}) + end).encode()


def say(request, **body):
    send(line(request["id"], **body))


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


def sleep(*_):
    time.sleep(FOREVER)


def die(number):
    def mode(_):
        os.kill(os.getpid(), number)

    return mode


def stray(work, hold=True):
    """Start a process that no process group and no parent knows: a session of its own, its parent dead."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if not hold:
        os.closerange(0, 3)
    work()
    os._exit(0)


def hydra():
    """Never the same process for long."""
    while True:
        if os.fork():
            os._exit(0)


def raises(_):
    raise ValueError("boom")


def noise(request):
    send(b"DEBUG: parsing\n")
    say(request)


def noise_later(request):
    say(request)
    time.sleep(0.05)
    send(b"by the way\n")


def half(then):
    def mode(request):
        send(line(request["id"])[:7])
        then()

    return mode


def slow_pieces(request):
    for byte in line(request["id"]):
        send(bytes([byte]))
        time.sleep(0.002)


def late(request):
    time.sleep(0.45)
    say(request)


def two(request):
    send(line(request["id"]) * 2)


def flood(_):
    while True:
        send(b"x" * 65536)


def long_line(request):
    say(request, ok={}, padding="x" * MIB)


def longest_line(request):
    short = len(line(request["id"], ok={}, padding=""))
    say(request, ok={}, padding="x" * (MIB - short + 1))


def balloon_shared(_):
    kept = []
    while True:
        kept.append(mmap.mmap(-1, 8 * MIB))
        kept[-1].write(b"x" * 8 * MIB)
        time.sleep(0.005)


def balloon_children(_):
    for _child in range(3):
        if not os.fork():
            sleep(bytearray(b"x") * (30 * MIB))
    sleep()


def shared_by_fork(request):
    """96 MiB, four times forked: no more than 96 MiB."""
    kept = bytearray(b"x") * (96 * MIB)
    for _child in range(3):
        if not os.fork():
            sleep(kept)
    time.sleep(0.25)
    say(request)


def balloon_heap(_):
    kept = []
    while True:
        kept.append(bytearray(8 * MIB))


def last_words(words):
    def mode(_):
        os.write(2, words + b"\n")
        os.abort()

    return mode


def fill(_):
    with open(os.environ["TMPDIR"] + "/fill", "wb") as file:
        while True:
            file.write(b"x" * MIB)
            file.flush()
            time.sleep(0.01)


def fill_quickly(request):
    with open(os.environ["TMPDIR"] + "/fill", "wb") as file:
        file.write(b"x" * 8 * MIB)
    say(request)


def fill_with_nothing(request):
    """Many empty files are not nothing."""
    for number in range(2000):
        os.mkdir(f"{os.environ['TMPDIR']}/{number}")
    say(request)


def overwrite(request):
    with open(request["file"], "r+b") as file:
        file.write(b"!")
    say(request)


def overwrite_mapped(at):
    def mode(request):
        with open(request["file"], "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
            view[at] ^= 1
        say(request)

    return mode


def append(request):
    with open(request["file"], "ab") as file:
        file.write(b"!")
    say(request)


def remove(request):
    os.unlink(request["file"])
    say(request)


def replace(request):
    with open(request["file"], "rb") as file:
        content = file.read()
    os.unlink(request["file"])
    with open(request["file"], "wb") as file:
        file.write(content)
    os.utime(request["file"], (10**9, 10**9))
    say(request)


def out_fifo(request):
    os.mkfifo(request["out"])
    say(request)


def out_huge(request):
    with open(request["out"], "wb") as file:
        file.truncate(1 << 40)
    say(request)


def close_stdin(request):
    os.close(0)
    say(request)
    sleep()


def close_stdout(_):
    os.close(1)
    sleep()


def ignore_sigterm(_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


def leave(work, hold=True, then=say):
    def mode(request):
        stray(work, hold)
        then(request)

    return mode


def flood_stderr(request):
    for _ in range(160):
        os.write(2, b"y" * 65536)
    say(request)


def flood_stderr_forever(_):
    while True:
        os.write(2, b"y" * 65536)


def kill_supervisor(request):
    stray(sleep)
    os.kill(os.getppid(), signal.SIGKILL)
    sleep(request)


def stop_supervisor(request):
    stray(sleep)
    os.kill(os.getppid(), signal.SIGSTOP)
    say(request)


def tell(request):
    """What it was started with, as the message of an `error`."""
    told = {
        "leader": os.getsid(0) == os.getpid() == os.getpgid(0),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "data": resource.getrlimit(resource.RLIMIT_DATA),
        "cpu": resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY,
        "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
        "tmp": os.environ["TMPDIR"],
        "cwd": os.getcwd(),
    }
    say(request, error={"message": json.dumps(told)})


PING = {
    "good": say,
    "hang": sleep,
    "segv": die(signal.SIGSEGV),
    "abort": die(signal.SIGABRT),
    "kill": die(signal.SIGKILL),
    "realtime_signal": die(signal.SIGRTMIN + 3),
    "exit0": lambda _: sys.exit(0),
    "exit3": lambda _: sys.exit(3),
    "raises": raises,
    "noise": noise,
    "noise_later": noise_later,
    "half": half(sleep),
    "half_then_exit": half(sys.exit),
    "slow_pieces": slow_pieces,
    "late": late,
    "reply_then_die": lambda request: [say(request), os._exit(5)],
    "two": two,
    "wrong_id": lambda request: say({"id": request["id"] - 1}),
    "text_id": lambda request: say({"id": str(request["id"])}),
    "bad_utf8": lambda request: send(line(request["id"], ok={}, note="@").replace(b"@", b"\xff")),
    "array": lambda _: send(b"[]\n"),
    "empty_line": lambda _: send(b"\n"),
    "two_statuses": lambda request: say(request, ok={}, refused={}),
    "crlf": lambda request: send(line(request["id"], end="\r\n")),
    "flood": flood,
    "long_line": long_line,
    "longest_line": longest_line,
    "balloon_shared": balloon_shared,
    "balloon_children": balloon_children,
    "balloon_heap": balloon_heap,
    "shared_by_fork": shared_by_fork,
    "bad_alloc": last_words(b"terminate called after throwing an instance of 'std::bad_alloc'"),
    "sanitizer": last_words(b"==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602"),
    "fill": fill,
    "fill_quickly": fill_quickly,
    "fill_with_nothing": fill_with_nothing,
    "overwrite": overwrite,
    "overwrite_mapped": overwrite_mapped(0),
    "overwrite_mapped_end": overwrite_mapped(-1),
    "append": append,
    "remove": remove,
    "replace": replace,
    "out_fifo": out_fifo,
    "out_huge": out_huge,
    "close_stdin": close_stdin,
    "close_stdout": close_stdout,
    "ignore_sigterm": ignore_sigterm,
    "stray_and_die": leave(sleep, then=lambda _: sys.exit(0)),
    "stray_and_live": leave(sleep),
    "stray_without_pipes": leave(sleep, hold=False),
    "stray_hydra": leave(hydra),
    "flood_stderr": flood_stderr,
    "flood_stderr_forever": flood_stderr_forever,
    "deaf_after": lambda request: [say(request), sleep()],
    "kill_supervisor": kill_supervisor,
    "stop_supervisor": stop_supervisor,
    "tell": tell,
}


def no_flush():
    """As a C program does whose stdout is a pipe: what it says goes out when it exits."""
    said = [line(request["id"], ok=OK.get(request["op"], {})) for request in lines()]
    send(b"".join(said))
    sys.exit(0)


AT_START = {
    "hang_at_start": sleep,
    "exit_at_start": lambda: sys.exit(0),
    "banner": lambda: send(b"Welcome!\n"),
    "no_flush": no_flush,
    "other_protocol": lambda: HELLO.update(protocol=2),
    "poor_hello": lambda: OK.update(hello={"protocol": 1}),
}
BYE = {
    "stays": sleep,
    "bye_exit3": lambda _: sys.exit(3),
}


def main(mode):
    AT_START.get(mode, int)()
    for request in lines():
        if request["op"] == "ping":
            PING.get(mode, say)(request)
        else:
            say(request, ok=OK.get(request["op"], {}))
        if request["op"] == "bye":
            BYE.get(mode, lambda _: sys.exit(0))(request)


if __name__ == "__main__":
    if sys.argv[1] not in {**PING, **AT_START, **BYE}:
        sys.exit(f"no mode {sys.argv[1]}")
    main(sys.argv[1])
