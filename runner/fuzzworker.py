"""One worker of a campaign: a process of ours with a process of theirs, mutating, asking, judging.

Law: our reader is the oracle of accept, refuse and value (`runner.misjudged`). A find is asked again twice, in fresh
processes, before it is one. What is kept for mutation is what was answered in a new way: which of our fields is at fault,
what the implementation said to each question, without numbers. An exception of ours ends the campaign, with the file.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import parent_process
from multiprocessing.queues import Queue, SimpleQueue
from multiprocessing.synchronize import Event
from random import Random
from typing import Any, cast

import cmfspec
from cmfspec.contract.link import Link
from cmfspec.contract.protocol import Opened, Reply
from cmfspec.contract.rule import load_catalogue
from cmfspec.errors import Fault
from fuzz.corpus import shipped
from fuzz.minimize import SLOW_TRIALS
from fuzz.structure import Mutator
from runner.driver import CannotStart
from runner.finds import Find, normal, signature, subsumed, tagged
from runner.minimizing import Trials, smallest
from runner.misjudged import Misjudged, misjudged
from runner.run import target_of
from runner.silence import excused

TRIALS = 400  # of a find that is made smaller
SECONDS = 60.0
TELL = 0.5  # seconds between reports
KEPT = 4096  # inputs of the corpus
LAST_WORDS = ("thread '", "Traceback (most recent", "panic: ", "Uncaught ", "Exception in thread")
NOT_AGAIN = 64  # times that one kind of find is confirmed in vain: it needs what went before it


@dataclass(frozen=True)
class Plan:
    """What a worker is to do. options: as `target_of` takes them; corpus: inputs besides the seeds; known: signatures
    that are found already; budget: executions at most; without: fields that are not mutated by name."""

    options: dict[str, Any]
    seed: str
    number: int
    workers: int
    corpus: tuple[bytes, ...] = ()
    known: frozenset[str] = frozenset()
    budget: int | None = None
    without: frozenset[str] = frozenset()


class Watched:
    """A link, and what was said over it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.said: set[tuple[Any, ...]] = set()
        self.questions = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def ask(self, op: str, file: str = "", **members: Any) -> Reply:
        """Ask, and note the shape of the answer."""
        self.questions += 1
        reply = self._link.ask(op, file, **members)
        shape = tuple(reply.value.sections or ()) if isinstance(reply.value, Opened) else ()
        self.said.add((op, reply.status, reply.kind, normal(reply.message)[:48], shape))
        return reply


@dataclass
class Report:
    """What a worker has done since it last told."""

    executions: int = 0
    questions: int = 0
    accepted: int = 0
    repeated: int = 0
    unconfirmed: int = 0
    novel: list[bytes] = field(default_factory=list)


def work(plan: Plan, events: Queue[Any], told: SimpleQueue[str], stop: Event) -> None:
    """The process: ("report", Report), ("find", Find, smallest, original), ("broken", text, file or None), ("done",)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    try:
        load_catalogue()
        target = target_of(dict(plan.options))
        link = target.new_link()
        try:
            _Campaign(plan, events, told, stop, Watched(link)).run()
        finally:
            link.close()
        events.put(("done",))
    except CannotStart as error:
        events.put(("broken", f"cannot run: {error}", None))
    except Exception:
        events.put(("broken", traceback.format_exc(), None))


@dataclass
class _Campaign:
    plan: Plan
    events: Queue[Any]
    told: SimpleQueue[str]
    stop: Event
    watched: Watched
    known: set[str] = field(default_factory=set)
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    corpus: list[bytes] = field(default_factory=list)
    vain: dict[str, int] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    executions: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def link(self) -> Link:
        """The link that is watched."""
        return cast(Link, self.watched)

    def run(self) -> None:
        """Until it is stopped or the budget is used up."""
        self.known |= self.plan.known
        last = time.monotonic()
        for content in self._inputs():
            if self.stop.is_set() or (self.plan.budget is not None and self.executions >= self.plan.budget):
                break
            try:
                self._one(content)
            except CannotStart:
                raise
            except Exception:
                self.events.put(("broken", traceback.format_exc(), content))
                return
            if time.monotonic() - last > TELL:
                last = time.monotonic()
                if _alone():
                    self.events.cancel_join_thread()
                    return
                self._tell()
        self._tell()

    def _inputs(self) -> Iterator[bytes]:
        """Our share of the seeds and of the corpus, then mutants of all of them, half of the time of what is new here."""
        seeds: Sequence[bytes] = (*shipped(), *self.plan.corpus)
        yield from seeds[self.plan.number :: self.plan.workers]
        dice, mutate = Random(f"{self.plan.seed}/{self.plan.number}"), Mutator(self.plan.without)
        while True:
            parents = self.corpus if self.corpus and dice.randrange(2) else seeds
            recent = parents[-64:] if parents is self.corpus and dice.randrange(2) else parents
            yield mutate(dice, dice.choice(recent), seeds)

    def _tell(self) -> None:
        self.report.questions, self.watched.questions = self.watched.questions, 0
        self.events.put(("report", self.report))
        self.report = Report()
        while not self.told.empty():
            self.known.add(self.told.get())

    def _one(self, content: bytes) -> None:
        faults = tuple(cmfspec.faults(content))
        self.watched.said = set()
        found = _said(misjudged(content, self.link, faults), self.link)
        self.executions += 1
        self.report.executions += 1
        self.report.accepted += not faults
        excuse = excused(found, content) if found else ""
        if found is not None and not excuse:
            self._found(content, faults, found)
            return
        first = (faults[0].rule, "".join(c for c in faults[0].field if not c.isdigit())) if faults else ()
        what = (first, frozenset(self.watched.said))
        if what not in self.seen and len(self.seen) < KEPT:
            self.seen.add(what)
            self.corpus.append(content)
            self.report.novel.append(content)

    def _found(self, content: bytes, faults: tuple[Fault, ...], first: Misjudged) -> None:
        """A new find is confirmed and made smaller."""
        first = tagged(first, faults)
        if subsumed(first, self.known):
            self.report.repeated += 1
            return
        name = signature(first)
        if self.vain.get(name, 0) >= NOT_AGAIN:
            self.report.unconfirmed += 1
            return
        if not all(self._again(content, first) for _ in range(2)):
            self.vain[name] = self.vain.get(name, 0) + 1
            self.report.unconfirmed += 1
            return
        trials = Trials(
            self.link, first, content, SLOW_TRIALS if first.outcome in ("TIMEOUT", "RESOURCE") else TRIALS,
            time.monotonic() + SECONDS, _silent, _judged,
        )  # fmt: skip
        smallest(trials)
        best, way = trials.best, trials.way
        self.link.renew()
        again = _judged(best, self.link)
        if again is None or not way.is_like(again) or len(best) > len(content):
            best, again = content, first
        self.known |= {name, signature(again)}
        rules = tuple(dict.fromkeys(fault.rule for fault in cmfspec.faults(best)))
        find = Find(
            signature(again), again.outcome, again.op, tuple(sorted(again.about)), rules, again.expected, again.got,
            again.stderr[-4000:], len(best), self.executions, round(time.monotonic() - self.started, 1),
        )  # fmt: skip
        self.events.put(("find", find, best, content))

    def _again(self, content: bytes, first: Misjudged) -> bool:
        self.link.renew()
        found = _judged(content, self.link)
        return found is not None and first.is_like(found)


def _alone() -> bool:
    """Whether whoever started this worker is dead: nobody would stop it."""
    parent = parent_process()
    return parent is not None and not parent.is_alive()


def _silent(steps: int = 1, note: str = "") -> None:
    """The bar of a worker."""


def _judged(content: bytes, link: Link) -> Misjudged | None:
    faults = tuple(cmfspec.faults(content))
    found = _said(misjudged(content, link, faults), link)
    return tagged(found, faults) if found and not excused(found, content) else None


def _said(found: Misjudged | None, link: Link) -> Misjudged | None:
    """With the last words on stderr of one that lives, and has told of an error that it caught."""
    if found is None or found.outcome != "ERROR" or found.stderr:
        return found
    tail = str(getattr(link, "stderr_tail", str)())
    start = max(tail.rfind(word) for word in LAST_WORDS)
    return replace(found, stderr=tail[start:]) if start >= 0 else found
