"""A run: selected cases, judged by several workers, each with a link of its own.

Law: an exception of ours ends the whole run at once and is the run's failure. Verdicts are handed over as they come, one at
a time; nothing is left running whatever happens.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cmfspec.contract.link import Link
from cmfspec.contract.rule import Rule
from golden.cases import Case
from runner.judge import Judge, Verdict
from runner.reproducer import home_of, smallest, write
from runner.sequence import again

NewLink = Callable[[], Link]
Heard = Callable[[Verdict], None]


@dataclass
class Campaign:
    """new_link: makes a worker's link; alone: whether its `renew` gives a fresh process; folder: where reproducers go, None
    for none; rerun: the command line that asks one case again, with `{case}` in it."""

    new_link: NewLink
    heard: Heard
    alone: bool = True
    folder: Path | None = None
    rerun: str = "cmfspec run -k {case}"
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _todo: deque[tuple[Rule, Case]] = field(default_factory=deque)
    _shrunk: set[tuple[str, str]] = field(default_factory=set)
    _error: BaseException | None = None

    def run(self, cases: tuple[tuple[Rule, Case], ...], jobs: int = 1) -> None:
        """Judge the cases. Raises what any worker raised that is no outcome."""
        self._todo = deque(cases)
        if jobs <= 1:
            self._work()
        else:
            workers = [threading.Thread(target=self._work, daemon=True) for _ in range(min(jobs, len(cases)))]
            for worker in workers:
                worker.start()
            try:
                for worker in workers:
                    worker.join()
            except BaseException:
                self._todo.clear()
                for worker in workers:
                    worker.join(30)
                raise
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ask no further case; those in hand are still heard."""
        self._todo.clear()

    def _work(self) -> None:
        try:
            link = self.new_link()
            try:
                judge = Judge(link, self.alone)
                while True:
                    try:
                        rule, case = self._todo.popleft()
                    except IndexError:
                        return
                    self._hand_over(self.keep(judge.judge(rule, case), judge))
            finally:
                link.close()
        except BaseException as error:
            self._todo.clear()
            self._error = self._error or error

    def keep(self, verdict: Verdict, judge: Judge) -> Verdict:
        """The verdict with its reproducer; the file is made smallest for the first of each rule and outcome."""
        if not verdict.failed or self.folder is None:
            return verdict
        key = (verdict.rule.id, verdict.outcome)
        with self._lock:
            first = key not in self._shrunk
            self._shrunk.add(key)
        rerun = again(self.rerun, verdict.case, verdict.after, str(home_of(verdict, self.folder)))
        case, evidence = verdict.case, verdict.evidence
        if first:
            case, evidence = smallest(verdict, judge.link)
            judge.forget()
        return replace(verdict, evidence=evidence, reproducer=write(verdict, case, evidence, self.folder, rerun))

    def _hand_over(self, verdict: Verdict) -> None:
        with self._lock:
            self.heard(verdict)
