"""How much memory a process under test and all that it started hold, from /proc.

Law: what is counted is what cannot be dropped, anonymous and shared memory; mapped files are not counted, since the
format is made to be mapped. Nothing here raises: a process may be gone between two lines, and a kernel may not say.
"""

from __future__ import annotations

from collections.abc import Iterable

from runner.supervisor import descendants

KIB = 1024
HELD = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
SHARED_OUT = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")  # each page divided by the number of those that map it


def family(supervisor: int) -> list[int]:
    """The pids of everything below the supervisor."""
    try:
        return descendants(supervisor)
    except OSError:
        return []


def held(pids: list[int], limit: int) -> int:
    """Bytes held by all together. Memory shared by a fork counts once, if that decides whether `limit` is passed."""
    total = sum(_sum(f"/proc/{pid}/status", HELD) or 0 for pid in pids)
    if total <= limit or len(pids) < 2:
        return total
    shares = [_sum(f"/proc/{pid}/smaps_rollup", SHARED_OUT) for pid in pids]
    return total if None in shares else sum(share or 0 for share in shares)


def reset(pids: Iterable[int]) -> bool:
    """Start the kernel's peak counters anew. False if it can't for one of them."""
    done = True
    for pid in pids:
        try:
            with open(f"/proc/{pid}/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")
        except OSError:
            done = False
    return done


def peak(pids: Iterable[int]) -> int | None:
    """The sum of the peaks; None if there is nothing to read."""
    found = [_sum(f"/proc/{pid}/status", (b"VmHWM:",)) for pid in pids]
    known = [size for size in found if size is not None]
    return sum(known) if known else None


def _sum(path: str, names: tuple[bytes, ...]) -> int | None:
    """Sum of the `name: n kB` lines of a file of /proc, in bytes; None if none is there."""
    try:
        with open(path, "rb", buffering=0) as file:
            lines = (file.read() or b"").split(b"\n")
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith(names)]
    return sum(found) * KIB if found else None
