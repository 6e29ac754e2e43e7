"""The names of a directory (§3): no two alike, and not more of them than the file pays for.

Law: names are compared as bytes. Many are first told apart by a hash of all of them at once, in arrays: equal names have
equal hashes, so what differs is unique, and only where two hashes agree are the names themselves read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmfspec.errors import Fault
from cmfspec.format.directory import Directory, record_fault
from cmfspec.layout import FMIX_1, MAX_SHARED_NAMES, U64

_MANY = 256  # names: from here on, comparing their hashes is quicker than comparing them
_TELLING = 128  # bytes of a name that its hash is of
_KEEP = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)  # of a word, its first bytes


def shared_names(d: Directory) -> Iterator[Fault]:
    """Names may share bytes of the pool (DIR-008), but not so many that reading them costs more than the file is long."""
    total, room = int(d.lengths.sum()), len(d.pool) + MAX_SHARED_NAMES
    if total > room:
        found = f"{total} bytes of names in a pool of {len(d.pool)}"
        yield Fault(
            "Other", "ENV-023", "dir.names", d.base + d.pool_off, found, f"at most {room}, a limit of this reader"
        )


def duplicate_names(d: Directory) -> Iterator[Fault]:
    """Two records of one name: the directory would say two things (DIR-009)."""
    if surely_unique(d) or len(set(d.all_names)) == len(d.records):
        return
    first: dict[bytes, int] = {}
    for index, name in enumerate(d.all_names):
        if name in first:
            found = f"the name of dir[{first[name]}], {ascii(name.decode('utf-8', 'replace'))[:80]}"
            yield record_fault(d, index, "Parse", "DIR-009", "name_off", found, "unique names")
        first.setdefault(name, index)


def surely_unique(d: Directory) -> bool:
    """Whether a hash of the first bytes of each name, over all names at once, already tells them apart.

    Equal names have equal hashes, whoever chose them; names that were made to collide only cost the time of comparing.
    """
    if len(d.records) < _MANY:
        return False
    words = np.ndarray((len(d.pool) + 1,), "<u8", d.pool + bytes(8), strides=(1,))  # the 8 bytes from each byte on
    last = np.maximum(d.lengths - 8, 0)  # where a name's last word begins
    keep = _KEEP[np.minimum(d.lengths, 8)] if d.lengths.min() < 8 else U64
    hashes = d.lengths.astype(np.uint64)
    for done in range(0, min(int(d.lengths.max()), _TELLING), 8):
        at = np.minimum(last, done)  # once a name is through, its last word again
        at += d.starts
        word = words[at]
        word &= keep
        hashes *= np.uint64(FMIX_1)
        hashes ^= hashes >> np.uint64(32)
        hashes ^= word
    hashes.sort()
    return not bool((hashes[1:] == hashes[:-1]).any())
