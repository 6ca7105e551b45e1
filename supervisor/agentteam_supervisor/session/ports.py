"""What a session needs from the program around it: a journal, services, callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.frames import Frame
from agentteam_protocol.ids import AgentId
from agentteam_protocol.inbox import Item
from agentteam_protocol.journal import JournalEvent
from agentteam_runtimes.driver import Capabilities, Driver, SessionSpec
from agentteam_supervisor.session.effects import JudgeSend, Progress, ReadTarget
from agentteam_supervisor.session.events import HistoryRead, SendAnswered
from agentteam_supervisor.session.state import Ledger, Session
from agentteam_supervisor.session.words import NO_SERVER, UNREAD_NO_SERVER


class Commit(Protocol):
    async def wait(self) -> None:
        """Return when it is durable; raises `JournalUnwritable`."""
        ...


class Journal(Protocol):
    def append(
        self,
        agent: AgentId,
        events: Sequence[JournalEvent],
        frames: Sequence[Frame] = (),
        at: str | None = None,
    ) -> Commit:
        """Queue records, and frames that leave with them; durable in this order."""
        ...


@frozen
class Entered:
    """A listener's word on a batch: these entries go into the step."""

    items: tuple[Item, ...]


@frozen
class Rejected:
    """A listener's word on a batch: it shall not run (R110)."""

    reason: str = ""


# `agent/pre-step`: each listener sees what the one before it let in.
PreStepListener = Callable[[tuple[Item, ...]], Awaitable[Entered | Rejected]]
# Told of each journal event, in order, with its time and the ledger after it; gives what
# is reported of it.
Report = Callable[[JournalEvent, str, Ledger], Sequence[Frame]]
# What the agent's status frame says now; the time is that of the run's start.
Status = Callable[[Session, str | None], Frame]
# Restart intensity, told the time: seconds to wait, or None to give up.
Pace = Callable[[float], float | None]


def _no_frames(*_: object) -> Sequence[Frame]:
    return ()


async def _no_server(send: JudgeSend) -> SendAnswered:
    return SendAnswered(send.send, "rejected", text=NO_SERVER)


async def _no_history(read: ReadTarget) -> HistoryRead:
    return HistoryRead(read.call, read.gen, None, (), UNREAD_NO_SERVER, error=True)


async def _nobody(_: ApprovalRequest) -> ApprovalOutcome:
    return ApprovalOutcome.unavailable


def _ignore(*_: object) -> None:
    """Nobody wants to know."""


def _at_once(_: float) -> float:
    return 0.0


@frozen(kw_only=True)
class Ports:
    """
    All of it injected, so that a session runs the same in a daemon, a host, a test.

    `probe` may be slow; it is bounded by the start limit. `stopped` is told when the
    session ends by a fault: the log is not writable, or a bug, with its exception.
    """

    agent: AgentId
    driver: Driver
    spec: SessionSpec
    journal: Journal
    probe: Callable[[], Awaitable[Capabilities]]
    now: Callable[[], str]
    report: Report = _no_frames
    status: Status | None = None
    judge: Callable[[JudgeSend], Awaitable[SendAnswered]] = _no_server
    read: Callable[[ReadTarget], Awaitable[HistoryRead]] = _no_history
    consult: Callable[[ApprovalRequest], Awaitable[ApprovalOutcome]] = _nobody
    listeners: Sequence[PreStepListener] = ()
    progress: Callable[[Progress], None] = _ignore
    pace: Pace = _at_once
    stopped: Callable[[Diagnostic, BaseException | None], None] = _ignore
    # Maintenance tasks of a host, by the name that the machine is given.
    tasks: dict[str, Callable[[], Awaitable[Any]]] = field(
        factory=dict[str, Callable[[], Awaitable[Any]]]
    )
