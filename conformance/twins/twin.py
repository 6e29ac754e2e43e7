"""What a twin is, and the ways to make one of our own reader by changing one part.

Law: a twin is wrong in one thing. Rows of the table of checks are replaced, removed, blinded or added; any other part is
replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cmfspec.codecs import CODECS
from cmfspec.contract.reference import Parts
from cmfspec.errors import Fault, Refusal
from cmfspec.format.checks import CHECKS, Check
from cmfspec.format.container import Container, Tensor
from cmfspec.format.directory import Directory
from cmfspec.format.verify import Problem, verify
from cmfspec.format.view import View
from cmfspec.layout import DTYPE_IDS

Faults = Iterator[Fault]
Find = Callable[[View], Faults]
OTHERS = 3  # rules elsewhere that may kill a twin without a stated reason


@dataclass(frozen=True)
class Twin:
    """name: unique; breaks: the rule that kills it; fault: what it does wrong, in words; also: why more than three
    other rules kill it."""

    name: str
    breaks: str
    fault: str
    parts: Parts
    also: str = ""


def changed(parts: Parts = Parts(), /, **rows_by_name: Find | None) -> Parts:  # noqa: B008 - frozen
    """`parts` with rows of the table replaced (None: removed); `__` stands for the dot in a row's name."""
    rows = {name.replace("__", "."): find for name, find in rows_by_name.items()}
    unknown = rows.keys() - {check.name for check in CHECKS}
    if unknown:
        raise KeyError(f"no check is called {unknown}")
    kept = [check for check in CHECKS if rows.get(check.name, True) is not None]
    return replace(parts, checks=tuple(replace(check, find=rows.get(check.name) or check.find) for check in kept))


def blind(name: str, when: Callable[[Fault], bool]) -> Parts:
    """The table with a row that lets some of its faults pass."""
    (row,) = (check for check in CHECKS if check.name == name)
    return changed(**{name.replace(".", "__"): lambda view: (fault for fault in row.find(view) if not when(fault))})


def extra(name: str, find: Find, *, early: bool = False) -> Parts:
    """The table with one row more, at its end or before the sections are looked into."""
    row = Check(
        name, "", find, ("file.length", "section.bounds", "header.present", "dir.present", "dir.count", "dir.pool")
    )
    return Parts(checks=(*CHECKS[:-5], row, *CHECKS[-5:]) if early else (*CHECKS, row))


def records(wrong: Callable[[Directory, int], bool], kind: str) -> Find:
    def find(view: View) -> Faults:
        for index in range(len(view.directory.records)):
            if wrong(view.directory, index):
                yield replace(no(view, f"dir[{index}]"), kind=kind)

    return find


def without_problems(wrong: Callable[[Container, Problem], bool]) -> Parts:
    """verify that does not see some problems."""
    return Parts(verify=lambda opened: (problem for problem in verify(opened) if not wrong(opened, problem)))


def no(view: View, field: str) -> Fault:
    return Fault("Bounds", "", field, 0, str(view.size), "something else")


Value = Callable[[Container, int], Any]
Wrong = Callable[[bytes, tuple[int, ...], Any], Any]


def decoding(dtype: str, wrong: Wrong, parts: Parts = Parts()) -> Parts:  # noqa: B008 - frozen
    """A reader that makes something else of one encoding: of the payload, the shape and the right values."""

    def values(opened: Container, index: int) -> Any:
        tensor: Tensor = opened[index]
        right = opened.values(index)
        if tensor.dtype != DTYPE_IDS[dtype]:
            return right
        with np.errstate(all="ignore"):
            return np.asarray(wrong(bytes(opened.raw(index)), tensor.shape, right.copy()), np.float32)

    return replace(parts, values=values)


def forgiving(*rules: str, parts: Parts = Parts()) -> Parts:  # noqa: B008 - frozen
    """A reader that makes zeros of a payload that breaks one of these rules."""

    def values(opened: Container, index: int) -> Any:
        try:
            return opened.values(index)
        except Refusal as refused:
            if refused.fault.rule not in rules:
                raise
            return np.zeros(1, np.float32)

    return replace(parts, values=values)


def shapeless(rule: str) -> Parts:
    """A reader that opens and decodes an encoding in a shape that it can't have (`rule`)."""
    parts = blind("record.layout", lambda fault: fault.rule == rule)

    def values(opened: Container, index: int) -> Any:
        tensor: Tensor = opened[index]
        codec = CODECS.get(tensor.dtype)
        if codec and codec.shape_fault(len(tensor.shape), tensor.shape[-1] if tensor.shape else 1):
            return np.zeros(1, np.float32)
        return opened.values(index)

    return replace(parts, values=values)
