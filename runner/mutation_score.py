"""The mutation score: every twin before every graded rule.

Law: a twin answers the plainest questions rightly, dies by the rule that it breaks, and by at most `OTHERS` elsewhere unless
it says why; a graded rule without a twin tests nothing. None may live: no twin is excused as equivalent. Processes are
spawned, never forked, and each asks all twins a rule's cases, so that a file is made once. A twin whose one wrong part serves
only some operations is not put before rules that ask none of them: it would answer them as the right reader does.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from multiprocessing import get_context

from cmfspec.contract.inprocess import InProcess
from cmfspec.contract.link import Link
from cmfspec.contract.protocol import Reply, Request
from cmfspec.contract.reference import Parts, reference
from cmfspec.contract.rule import CATALOGUE, GRADED, Rule, load_catalogue
from conformance.twins import OTHERS, TWINS, Twin
from golden.cases import stored
from runner.judge import ask
from runner.preflight import preflight

ENGINE = frozenset({"logits", "generate", "ppl"})
SERVES: Mapping[str, frozenset[str]] = {  # part of a reader to the operations that it serves; any other serves all
    "model": ENGINE,
    "likelihood": frozenset({"ppl"}),
    "encode": frozenset({"encode"}),
    "write": frozenset({"write"}),
    "values": frozenset({"tensor"}) | ENGINE,
    "tensor": frozenset({"tensors"}) | ENGINE,
    "verify": frozenset({"verify"}),
    "opened": frozenset({"open"}),
    "hash": frozenset({"hash64"}),
}


@dataclass(frozen=True)
class Row:
    """What became of a twin. controls: what it got wrong in the plainest questions, empty if nothing; killers: rule id to
    its first failure, as a sentence."""

    twin: Twin
    controls: str
    killers: Mapping[str, str]

    @property
    def killed(self) -> bool:
        """Whether it died by its own rule."""
        return self.twin.breaks in self.killers

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The other rules that killed it."""
        return tuple(sorted(set(self.killers) - {self.twin.breaks}))

    @property
    def problem(self) -> str:
        """What is wrong with the twin or with its rule, as a sentence; empty if nothing is."""
        name, others = self.twin.name, self.elsewhere
        if self.controls:
            return f"{name} fails the controls, so any rule kills it: {self.controls}"
        if not self.killed:
            return f"{name} lives: {self.twin.breaks} does not kill it"
        if len(others) > OTHERS and not self.twin.also:
            return f"{name} is killed by {len(others)} rules elsewhere and does not say why: {', '.join(others)}"
        return ""


def controls(twin: Twin) -> str:
    """What the twin gets wrong in hello, ping and the plainest file; empty if nothing."""
    with _links((twin,)) as links:
        return next((f"{step.name}: {step.problem}" for step in preflight(links[twin.name]) if step.problem), "")


def deaths(rule: Rule, links: Mapping[str, Link]) -> dict[str, str]:
    """Who of these dies by the rule, with the first failure. links: by the name of whoever answers there."""
    dead: dict[str, str] = {}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # what a twin raises is its answer
        for case in stored().get(rule.id, ()):
            for name, link in links.items():
                if name not in dead:
                    outcome, _ = ask(rule, case, link)
                    if outcome is not None and outcome.graded:
                        dead[name] = f"{case.id} {outcome.name}: {outcome}"
    return dead


def own_death(twin: Twin) -> str:
    """The failure by which a twin dies by its own rule; empty if it lives."""
    load_catalogue()
    with _links((twin,)) as links:
        return deaths(CATALOGUE[twin.breaks], links).get(twin.name, "")


def matrix(
    twins: Sequence[Twin] = TWINS,
    jobs: int | None = None,
    heard: Callable[[str], None] | None = None,
) -> tuple[Row, ...]:
    """Each twin before each graded rule, in the order of `twins`. jobs: processes, one a core if not given; heard: told the
    id of each rule that is done. twins: found again by their names in the other processes."""
    load_catalogue()
    rules = sorted(
        (rule.id for rule in CATALOGUE.values() if rule.tier in GRADED), key=lambda identity: -len(stored()[identity])
    )
    names = tuple(twin.name for twin in twins)
    killers: dict[str, dict[str, str]] = {name: {} for name in names}
    pool = ProcessPoolExecutor(
        jobs or len(os.sched_getaffinity(0)), get_context("spawn"), initializer=_start, initargs=(names,)
    )
    try:
        futures = {pool.submit(_deaths_here, identity): identity for identity in rules}
        for future in as_completed(futures):
            for name, failure in future.result().items():
                killers[name][futures[future]] = failure
            if heard:
                heard(futures[future])
    finally:
        pool.shutdown(cancel_futures=True)
    return tuple(Row(twin, controls(twin), dict(sorted(killers[twin.name].items()))) for twin in twins)


def gaps(twins: Sequence[Twin] = TWINS) -> list[str]:
    """What is missing before any twin is asked, a sentence each: stored cases, twins, a rule for each twin."""
    load_catalogue()
    broken = {twin.breaks for twin in twins}
    graded = {identity for identity, rule in CATALOGUE.items() if rule.tier in GRADED}
    return [
        *(f"{identity} is declared and has no stored case" for identity in CATALOGUE if not stored().get(identity)),
        *(f"{identity} is graded and has no twin" for identity in CATALOGUE if identity in graded - broken),
        *(f"{twin.name} breaks {twin.breaks}, which is no graded rule" for twin in twins if twin.breaks not in graded),
        *(f"{name} names {n} twins" for name, n in Counter(twin.name for twin in twins).items() if n > 1),
    ]


@contextlib.contextmanager
def _links(twins: Sequence[Twin]) -> Iterator[dict[str, Link]]:
    with contextlib.ExitStack() as stack:
        links: dict[str, Link] = {}
        for twin in twins:
            links[twin.name] = InProcess(reference(twin.parts))
            stack.callback(links[twin.name].close)
        yield links


def concerns(twin: Twin, asked: frozenset[str]) -> bool:
    """Whether a twin may answer otherwise than the right reader where these operations are asked."""
    right = Parts()
    wrong = {field.name for field in fields(Parts) if getattr(twin.parts, field.name) != getattr(right, field.name)}
    return any(part not in SERVES or SERVES[part] & asked for part in wrong)


def operations(rule: Rule) -> frozenset[str]:
    """What the stored cases of a rule ask a right reader."""
    right, asked = reference(), set[str]()

    def noted(request: Request) -> Reply:
        asked.add(request.op)
        return right(request)

    with contextlib.closing(InProcess(noted)) as link:
        for case in stored().get(rule.id, ()):
            ask(rule, case, link)
    return frozenset(asked)


# --- in the other processes ----------------------------------------------------------------------------------------

_HERE: dict[str, Link] = {}
_OPEN = contextlib.ExitStack()


def _start(names: Sequence[str]) -> None:
    import atexit

    load_catalogue()
    _HERE.update(_OPEN.enter_context(_links([twin for twin in TWINS if twin.name in names])))
    atexit.register(_OPEN.close)


def _deaths_here(identity: str) -> dict[str, str]:
    rule = CATALOGUE[identity]
    asked = operations(rule)
    return deaths(rule, {twin.name: _HERE[twin.name] for twin in TWINS if twin.name in _HERE and concerns(twin, asked)})
