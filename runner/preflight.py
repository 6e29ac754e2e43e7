"""Before judging: does the adapter answer at all? (`cmfspec doctor`)

Law: one message, with a hint, instead of a thousand failures. A command that can't be executed is the run's failure; one that
starts and does not answer hello, ping or the plainest file has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cmfspec.contract.link import Link
from cmfspec.contract.outcome import Outcome, WrongValue
from cmfspec.contract.protocol import MINIMAL
from cmfspec.contract.subject import Subject
from golden.files import File

PLAINEST = "tiny"


@dataclass(frozen=True)
class Step:
    """One step. problem: empty if it went well; hint: what usually helps."""

    name: str
    problem: str = ""
    hint: str = ""
    stderr: str = ""


def _hello(link: Link) -> None:
    missing = [op for op in MINIMAL if op not in link.hello.operations]
    if missing:
        raise WrongValue(f"at least the operations {', '.join(MINIMAL)}", f"no {', '.join(missing)}")
    if not link.hello.dtypes:
        raise WrongValue("at least one dtype that it decodes", "none: who reads no tensor is no reader")


def _ping(link: Link) -> None:
    reply = link.ask("ping")
    if reply.status != "ok":
        raise WrongValue("ok", f"{reply.status} {reply.message}")


def _open(link: Link) -> None:
    file = File(PLAINEST)
    Subject(link).open(file).must_be_accepted(len(file.tensors))


def _tensor(link: Link) -> None:
    file = File(PLAINEST)
    if file.tensors[0].dtype in link.hello.dtypes:
        Subject(link).tensor(file, 0).must_decode(file.tensors[0])


STEPS: tuple[tuple[str, Callable[[Link], None], str], ...] = (
    (
        "hello",
        _hello,
        'answer the first line with {"id":…,"ok":{"protocol":1,…}} and a newline, and flush; --argv needs open= and tensor=',
    ),
    ("ping", _ping, 'answer {"id":…,"ok":{}}; nothing but replies may go to stdout'),
    ("open", _open, "this file has one f16 tensor and nothing else; it is the plainest that there is"),
    ("tensor", _tensor, "write 32 little-endian float32 to the path in `out`, then answer"),
)


def preflight(link: Link) -> Iterator[Step]:
    """Each step's result, up to and including the first that fails. Raises CannotStart."""
    for name, step, hint in STEPS:
        try:
            step(link)
            link.settle()
        except Outcome as outcome:
            yield Step(name, f"{outcome.name}: expected {outcome.expected}; got {outcome.got}", hint, outcome.stderr)
            return
        yield Step(name)


def stop_of(step: Step) -> dict[str, str]:
    """The footer's member `preflight`."""
    return {"step": step.name, "problem": step.problem, "hint": step.hint, "stderr": step.stderr[-4000:]}
