"""The supervisor of one implementation process: `python -I -S supervisor.py CONTROL MEMORY SCRATCH COMMAND…`.

Law: when this process ends, nothing that the implementation started is alive, whoever dies first and however. It is a
subreaper, so that orphans come to it; only when the kernel says that it has no child left (ECHILD) is it done.
Its stdin, stdout and stderr are the implementation's; it keeps none of them. On CONTROL, a SOCK_SEQPACKET, it sends one
packet each: `started PID`, or `cannot ERRNO` where exec failed; `died STATUS` (a wait status); `gone` after the last
kill. A packet that comes on CONTROL means «end it»; EOF means that the runner is dead, and then the folder SCRATCH goes
as well. MEMORY is RLIMIT_DATA in bytes, or 0.

It starts once per process under test, so it imports little: `_signal` is `signal` without the enums (4 ms).
"""

import _signal as signal  # type: ignore[import-not-found]  # typeshed knows only `signal`
import ctypes
import os
import resource
import select
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
UNKILLABLE = 5.0  # seconds after which a process that SIGKILL does not end (stuck in the kernel, setuid) is left


def children(pid: int) -> list[int]:
    """The children of every thread of a process; none if it is gone. FileNotFoundError without CONFIG_PROC_CHILDREN."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found += map(int, (file.read() or b"").split())
        except (FileNotFoundError, ProcessLookupError):
            if task == str(pid) and os.path.exists(f"/proc/{pid}/task/{task}/stat"):
                raise FileNotFoundError("children") from None
    return found


def parents() -> dict[int, list[int]]:
    """Parent → children, from the stat of every process: the slow way, which every kernel has."""
    table: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb", buffering=0) as file:
                    fields = (file.read() or b"").rpartition(b")")[2].split()
            except OSError:
                continue
            if len(fields) > 1:
                table.setdefault(int(fields[1]), []).append(int(entry))
    return table


def descendants(root: int) -> list[int]:
    """Every process below `root`, as far as one look can tell: a fork during the look may be missed."""
    found: list[int] = []
    table: dict[int, list[int]] | None = None
    queue = [root]
    while queue:
        pid = queue.pop()
        if table is None:
            try:
                below = children(pid)
            except FileNotFoundError:
                table = parents()
        if table is not None:
            below = table.get(pid, [])
        found += below
        queue += below
    return found


def prctl(option: int, value: int) -> None:
    """Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "prctl")


def become(command: list[str], memory: int, parent: int, failed: int) -> None:
    """In the child: session, signals, limits, then exec. Writes errno to `failed` if that fails; never returns."""
    code = 0
    try:
        signal.set_wakeup_fd(-1)
        for number in range(1, signal.NSIG):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # SIGKILL, SIGSTOP and those that libc keeps
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the supervisor died before the line above
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            memory = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        os.execvp(command[0], command)  # noqa: S606  # no shell is the point
    except OSError as error:
        code = error.errno or 0
    finally:
        os.write(failed, b"%d" % code)
        os._exit(127)


def start(command: list[str], memory: int) -> tuple[int, int | None]:
    """Fork and exec; give away the three standard streams. Returns the pid, and errno if exec failed."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        become(command, memory, parent, writer)
    os.close(writer)
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    failure = os.read(reader, 16)  # EOF: exec closed the other end
    os.close(reader)
    return pid, int(failure) if failure else None


def report(control: int, words: str) -> None:
    """Tell the runner, if it is still there."""
    try:
        os.write(control, words.encode("ascii"))
    except OSError:
        return  # it is not; its EOF is read next


def reap(control: int, main: int) -> bool:
    """Bury all the dead; report the main child's status. True when no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == main:
            report(control, f"died {status}")
        if not pid:
            return False


def end(control: int, main: int, woken: int) -> None:
    """Kill every descendant until there is none. A killed parent's children come to us, so each round gets nearer."""
    until = time.monotonic() + UNKILLABLE
    wake = select.poll()
    wake.register(woken, select.POLLIN)
    while not reap(control, main) and time.monotonic() < until:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if wake.poll(20):
            os.read(woken, 4096)
    report(control, "gone")


def supervise(control: int, memory: int, command: list[str]) -> bool:
    """Start the command and stay until it must end. Returns whether the runner is still there."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_inheritable(control, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *ENDING):
        signal.signal(number, lambda *_: None)  # the number arrives in `woken`
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    main = 0
    try:
        main, failure = start(command, memory)
        report(control, f"started {main}" if failure is None else f"cannot {failure}")
        wait = select.poll()
        wait.register(control, select.POLLIN)
        wait.register(woken, select.POLLIN)
        while True:
            ready = dict(wait.poll())
            if woken in ready:
                if set(os.read(woken, 4096)) & set(ENDING):
                    return True
                reap(control, main)
            if control in ready:
                return bool(os.read(control, 1))
    except ConnectionError:
        return False
    finally:
        end(control, main, woken)


if __name__ == "__main__":
    if not supervise(int(sys.argv[1]), int(sys.argv[2]), sys.argv[4:]):
        import shutil

        shutil.rmtree(sys.argv[3], ignore_errors=True)
    os._exit(0)
