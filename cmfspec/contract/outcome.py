"""What can come of a case (DESIGN: judging).

Law: one exception class per outcome, so that a shrinking run never slides from one failure into another. Raising none of
them is PASS. An outcome is *graded* if it can fail a rule, *quiet* if it says that nothing was judged.
"""

from __future__ import annotations

from typing import ClassVar


class Outcome(Exception):
    """The end of a case other than PASS. `expected` and `got` are sentences for a person."""

    name: ClassVar[str] = ""
    graded: ClassVar[bool] = True

    def __init__(self, expected: str, got: str, *, stderr: str = "") -> None:
        super().__init__(f"expected {expected}; got {got}")
        self.expected = expected
        self.got = got
        self.stderr = stderr


class WrongAccept(Outcome):
    """Accepted what must be refused."""

    name = "WRONG_ACCEPT"


class WrongReject(Outcome):
    """Refused what must be accepted."""

    name = "WRONG_REJECT"


class WrongReason(Outcome):
    """Refused, but with another kind than §1.2 names."""

    name = "WRONG_REASON"


class WrongValue(Outcome):
    """Answered, but not with the right answer."""

    name = "WRONG_VALUE"


class ErrorReply(Outcome):
    """An `error` reply (a panic or an exception that the adapter caught), or `unsupported` for what hello declares."""

    name = "ERROR"


class Crash(Outcome):
    """Died while a request was in flight, by a signal or by exiting."""

    name = "CRASH"


class Timeout(Outcome):
    """Did not answer before the wall deadline."""

    name = "TIMEOUT"


class Resource(Outcome):
    """Memory, a line of output or the scratch folder went past its limit."""

    name = "RESOURCE"


class Protocol(Outcome):
    """Noise, half a line, two replies, a wrong id, bad UTF-8, a changed input file."""

    name = "PROTOCOL"


class StateLeak(Outcome):
    """Fails only after other questions in the same process."""

    name = "STATE_LEAK"


class Flaky(Outcome):
    """Not the same twice under the same conditions."""

    name = "FLAKY"


class NotApplicable(Outcome):
    """Needs something that hello does not declare."""

    name = "NOT_APPLICABLE"
    graded = False


class Beyond(Outcome):
    """Declared to be known beyond this revision of the text: neither passed nor failed."""

    name = "BEYOND"
    graded = False


class Observed(Outcome):
    """An OBSERVATION: what was seen, where the text is silent."""

    name = "OBSERVED"
    graded = False


PASS = "PASS"  # noqa: S105
UNFAILED = frozenset(
    {PASS, *(cls.name for cls in Outcome.__subclasses__() if not cls.graded)}
)  # names that fail no rule
