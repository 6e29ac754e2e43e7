"""A reader that is only a command, as a `Link`: each question is one run, its exit code the answer.

Law: no shell; a template is split once, and placeholders are replaced word by word. Exit 0 accepts, an exit in
`refuse_exit` refuses, anything else is a crash; so is a refusing exit with an uncaught exception on stderr, for those
exit 1 too. A command is asked the same questions as an adapter, under the same supervisor and limits.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from cmfspec.contract.outcome import NotApplicable, Outcome, Timeout
from cmfspec.contract.protocol import PROTOCOL, Hello, Nothing, Opened, Reply, Verified
from runner.child import LOOK, Child, Exchange, Limits, how_it_ended, new_transcript, noted
from runner.crashtext import crash_text
from runner.scratch import Fault, Scratch

PLACEHOLDER = re.compile(r"\{(file|index|out|as)\}")
ACCEPTED: dict[str, Any] = {
    "open": Opened(),
    "header": Nothing(),
    "tensors": Nothing(),
    "tensor": Nothing(),
    "verify": Verified(sound=True),
}
"""What exit 0 says. An operation that is not here is answered in words, which an exit code has not."""
ALWAYS = ("hello", "ping", "bye")  # answered here, without a run
REFUSED: dict[str, Reply] = {"verify": Reply("ok", Verified(sound=False))}
"""What a refusing exit says, where it is not a refusal."""


class Command:
    """Operation → template such as `./r dump {file} {index} {out}`; dtypes and features are what `hello` would say."""

    def __init__(
        self,
        templates: Mapping[str, str],
        limits: Limits | None = None,
        scratch: str | None = None,
        *,
        dtypes: Sequence[int] = (),
        features: Sequence[int] = (0, 1, 2, 6),
        refuse_exit: Set[int] = frozenset({1}),
    ) -> None:
        unknown = sorted(set(templates) - set(ACCEPTED))
        if unknown or not templates:
            raise ValueError(f"a command can be asked {', '.join(ACCEPTED)}, not {', '.join(unknown) or 'nothing'}")
        self.templates = {op: tuple(shlex.split(template)) for op, template in templates.items()}
        if not all(self.templates.values()):
            raise ValueError("a template is empty")
        self.limits = limits or Limits()
        self.refuse_exit = frozenset(refuse_exit)
        self.transcript: deque[Exchange] = new_transcript()
        self.hello = Hello(
            protocol=PROTOCOL,
            name=os.path.basename(next(iter(self.templates.values()))[0]),
            version="",
            operations=[*ALWAYS, *self.templates],
            features=list(features),
            dtypes=list(dtypes),
            kinds=False,
            forms=["f32"],
            artifacts=files_of(self.templates.values()),
        )
        self._scratch = Scratch(scratch, self.limits.scratch)
        self._tail = ""

    def place(self, content: bytes, hole: tuple[int, int] | None = None) -> str:
        """Write `content` to a fresh file, with a hole of zeros (where, how long), and return its path."""
        return self._scratch.place(content, hole)

    def new_out(self) -> str:
        """A path that does not exist yet, for an answer that goes to a file."""
        return self._scratch.new_out()

    def ask(self, op: str, file: str = "", **members: Any) -> Reply:
        """Run the operation's command. Raises Crash, Timeout, Resource; Protocol (an `out` that is no file);
        NotApplicable (a form that the command can't be told); CannotStart."""
        if op in ALWAYS:
            return Reply("ok", self.hello if op == "hello" else Nothing())
        if op not in self.templates:
            return Reply("unsupported")
        template = self.templates[op]
        form = members.get("form")
        if form == "raw" and not any("{as}" in word for word in template):
            raise NotApplicable("a command that can be asked for the raw payload", "a template without {as}")
        given = {"file": file, "as": form or "", "index": members.get("index", ""), "out": members.get("out", "")}
        argv = [PLACEHOLDER.sub(lambda found: str(given[found[1]]), word) for word in template]
        child = Child(argv, self.limits, self._scratch)
        try:
            child.hang_up()
            fault = self._wait(child) or self._scratch.wrong_out(str(given["out"])) or self._scratch.overfull()
            reply = None if fault else self._reply(op, child)
        finally:
            child.end()
            self._tail = child.said()
            self._scratch.sweep()
        line = shlex.join(argv)
        if fault:
            raise self._outcome(fault, line)
        if reply is None:
            expected = f"exit 0, or one of {sorted(self.refuse_exit)} without a crash on stderr"
            raise self._outcome(child.death(expected, f"to `{op}`"), line)
        self.transcript.append((line, how_it_ended(child.status)))
        return reply

    def settle(self) -> None:
        """End of a case: delete its files. Raises Protocol if one was changed, Resource for a full scratch folder."""
        fault = self._scratch.settle()
        if fault:
            raise self._outcome(fault, "")

    def reset_peak(self) -> None:
        """Nothing lives between two questions."""

    def peak(self) -> int | None:
        """Not measured: the process is gone when one could ask."""
        return None

    def stderr_tail(self) -> str:
        """The end of what the last command said on stderr."""
        return self._tail

    def renew(self) -> None:
        """Every question has a fresh process."""

    def close(self) -> None:
        """Delete the scratch folder. Idempotent."""
        self._scratch.close()

    def _wait(self, child: Child) -> Fault | None:
        """Until it has exited, or the fault that ends it first."""
        started = time.monotonic()
        deadline, look = started + self.limits.seconds, started + LOOK
        while not child.over:
            child.pump(max(0.0, min(LOOK, deadline - time.monotonic())))
            now = time.monotonic()
            if now >= deadline and not child.over:
                return Fault(Timeout, f"an exit within {self.limits.seconds:g} s", "it still runs")
            if now >= look:
                look = now + LOOK
                if fault := child.overuse(scratch_too=True):
                    return fault
        return None

    def _reply(self, op: str, child: Child) -> Reply | None:
        """What the exit says; None if it is a crash."""
        child.end()
        code = -1 if child.status is None else os.waitstatus_to_exitcode(child.status)
        if code == 0:
            return Reply("ok", ACCEPTED[op])
        said = child.said()
        if code not in self.refuse_exit or crash_text(said):
            return None
        lines = said.strip().splitlines()
        return REFUSED.get(op) or Reply("refused", None, "Other", lines[-1] if lines else "")

    def _outcome(self, fault: Fault, line: str) -> Outcome:
        outcome = fault.kind(fault.expected, fault.got, stderr=self._tail)
        self.transcript.append((line, noted(outcome)))
        return outcome


def files_of(templates: Iterable[Sequence[str]]) -> list[str]:
    """The files that a command line names: the program, and scripts or jars among its words."""
    found: dict[str, None] = {}
    for program, *words in templates:
        path = shutil.which(program)
        found.update(dict.fromkeys(os.path.abspath(path) for path in [path] if path))
        found.update(dict.fromkeys(os.path.abspath(word) for word in words if os.path.isfile(word)))
    return list(found)
