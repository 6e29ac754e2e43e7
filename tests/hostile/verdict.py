"""A reader that is only a command: `verdict.py MODE FILE [INDEX OUT AS]`. Standard library only."""

import os
import signal
import struct
import sys
import time


def accept():
    if len(sys.argv) > 4:
        with open(sys.argv[4], "wb") as file:
            file.write(struct.pack("<f", float(sys.argv[3])))


def refuse():
    sys.exit("this is not a file for me")


def raises():
    raise ValueError("boom")


def stray():
    """Leave somebody behind, and its pid in FILE."""
    if not os.fork():
        os.setsid()
        pid = os.fork()
        if not pid:
            time.sleep(3600)
        with open(sys.argv[2], "w") as file:
            file.write(str(pid))
        os._exit(0)
    os.wait()


def chatter():
    """Far more output than a pipe holds."""
    for _ in range(64):
        os.write(1, b"z" * 65536)
        os.write(2, b"z" * 65536)


def fill():
    with open(os.environ["TMPDIR"] + "/fill", "wb") as file:
        file.write(b"x" * (8 << 20))


MODES = {
    "accept": accept,
    "refuse": refuse,
    "exit3": lambda: sys.exit(3),
    "raises": raises,
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": lambda: time.sleep(3600),
    "stray": stray,
    "chatter": chatter,
    "fill": fill,
}

if __name__ == "__main__":
    MODES[sys.argv[1]]()
