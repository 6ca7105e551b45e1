"""The tree of errors, split by whose fault it is."""

from __future__ import annotations


class AgentTeamError(Exception):
    """Anything this project raises on purpose."""


class ProtocolError(AgentTeamError):
    """Somebody broke a protocol; see the two subclasses."""


class LocalProtocolError(ProtocolError):
    """We broke it: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """A peer broke it: a runtime, a daemon or a server."""

    def __init__(self, message: str, frame: str = "") -> None:
        super().__init__(message)
        self.frame = frame[:500]


class UnexpectedEvent(AgentTeamError):
    """A machine got one of our own events that it has no rule for."""


class QueueFull(AgentTeamError):
    """A bounded queue refused an entry; nothing was accepted."""


class JournalUnwritable(AgentTeamError):
    """The journal could not make a record durable (disk full, no permission)."""


class RuntimeFailure(AgentTeamError):
    """What a driver may raise, and nothing else."""


class RuntimeMissing(RuntimeFailure):
    """There is no such program, or one of a version we do not speak."""

    def __init__(self, problem: str, what_to_do: str) -> None:
        super().__init__(f"{problem}; {what_to_do}")
        self.problem = problem
        self.what_to_do = what_to_do


class RuntimeUnset(RuntimeMissing):
    """Nothing is missing here, but the agent must say which program it means."""


class RuntimeExited(RuntimeFailure):
    """The runtime's process is gone. A negative code is the signal that ended it."""

    def __init__(self, returncode: int | None, stderr_tail: str = "") -> None:
        super().__init__(f"the runtime exited with {returncode}")
        self.returncode = returncode
        self.stderr_tail = stderr_tail


class RuntimeRefused(RuntimeFailure):
    """The runtime answered with an error."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class RuntimeTooSlow(RuntimeFailure):
    """
    A bounded wait for the runtime ran out.

    Not a `trio.TooSlowError`: a stray handler of that must not swallow this one.
    """
