"""What a fault is called for people, and how it is found in a nursery's group."""

from __future__ import annotations

from typing import cast

from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.errors import (
    JournalUnwritable,
    QueueFull,
    RuntimeExited,
    RuntimeFailure,
    RuntimeMissing,
    RuntimeTooSlow,
)

# What was sent still waits: a second one would be a second request.
RESUME = "then resume the agent (agentteam resume NAME)"
REPORT = (
    "resume the agent (agentteam resume NAME); please report this with the"
    " supervisor's log"
)
_LOOK = f"look at the runtime (agentteam doctor), {RESUME}"


def first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return error


def only_failure(group: BaseExceptionGroup[BaseException]) -> RuntimeFailure:
    """Take a driver's failure out of its nursery's group; a bug goes on as it is."""
    failures, rest = group.split(RuntimeFailure)
    if rest is not None or failures is None:
        raise group
    failure = first_of(failures)
    assert isinstance(failure, RuntimeFailure)
    return failure


def diagnose_start(failure: RuntimeFailure | None, limit: float | None) -> Diagnostic:
    """Say why a runtime did not come up; None: it was not ready in time."""
    match failure:
        case None:
            return Diagnostic(f"the runtime was not ready within {limit} s", _LOOK)
        case RuntimeMissing():
            return Diagnostic(failure.problem, f"{failure.what_to_do}, {RESUME}")
        case RuntimeExited():
            last = failure.stderr_tail.strip()
            problem = f"{failure} during its start" + (f": {last}" if last else "")
            return Diagnostic(problem, f"read its last words, {RESUME}")
        case RuntimeTooSlow():
            return Diagnostic(str(failure), _LOOK)
        case RuntimeFailure():
            problem = f"the runtime did not start: {failure}"
            return Diagnostic(problem, f"check its settings and login, {RESUME}")


def diagnose_end(error: BaseException) -> Diagnostic:
    """Say why a session ended that nobody asked to end."""
    first = first_of(error)
    if isinstance(first, JournalUnwritable | QueueFull):
        return Diagnostic(
            f"the log is not writable: {first}",
            f"free space or mend the disk, {RESUME}",
        )
    return Diagnostic(
        f"the session ended by a fault of the supervisor: {first!r}",
        REPORT,
    )
