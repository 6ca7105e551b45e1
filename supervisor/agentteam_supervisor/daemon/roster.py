"""All agents of this daemon: which frame goes to which seat, and who has none."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from agentteam_protocol.control import ControlResult
from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.frames import (
    AgentControl,
    AgentDeliver,
    AgentGranted,
    AgentIntervene,
    AgentResolve,
    AgentRevoked,
    Answer,
    ApprovalDecide,
    Frame,
    Query,
    SendJudged,
)
from agentteam_protocol.ids import RunId
from agentteam_supervisor.daemon.restarts import Intensity
from agentteam_supervisor.daemon.seat import Done, MakeActor, Seat
from agentteam_supervisor.daemon.translation import entries_body, undeliverable
from agentteam_supervisor.session.events import (
    DisposeRequested,
    LeaseLost,
    ShutdownRequested,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentteam_protocol.ids import AgentId
    from agentteam_supervisor.daemon.loading import Reporter
    from agentteam_supervisor.journal.log import Journal

_log = logging.getLogger(__name__)

MAX_ENTRIES = 1000

_UNKNOWN = Diagnostic(
    "this daemon does not hold the agent",
    "look whether the agent still exists, then redeliver",
)

ForAgent = (
    AgentDeliver
    | AgentControl
    | AgentResolve
    | ApprovalDecide
    | SendJudged
    | AgentIntervene
)


class Roster:
    """`handle` is the link's; `answer` takes what goes back without a number."""

    def __init__(
        self,
        journal: Journal,
        make_actor: MakeActor,
        answer: Callable[[Frame], None],
        intensity: Intensity | None = None,
        loaded: Mapping[AgentId, Reporter] | None = None,
    ) -> None:
        self._journal = journal
        self._make_actor = make_actor
        self._answer = answer
        self._intensity = intensity or Intensity()
        self._loaded = dict(loaded or {})
        self._seats: dict[AgentId, Seat] = {}
        self._nursery: trio.Nursery | None = None
        self._closing = False

    def seat(self, agent: AgentId) -> Seat | None:
        return self._seats.get(agent)

    def troubles(self) -> list[Frame]:
        """List what keeps sessions down, for a server that may not have heard it."""
        troubles = (seat.trouble for seat in self._seats.values())
        return [trouble for trouble in troubles if trouble is not None]

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Be the parent of all sessions, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def shut_down(self) -> None:
        """End every session, to be taken up again later; the caller sets the limit."""
        self._closing = True
        for seat in self._seats.values():
            seat.leave(ShutdownRequested())
        for seat in tuple(self._seats.values()):
            await seat.over.wait()

    # --- frames ----------------------------------------------------------------------

    def handle(self, frame: Frame, done: Done) -> None:
        """Take a frame of the server; never waits and never loses one in silence."""
        match frame:
            case AgentGranted():
                self._grant(frame)
                done()
            case AgentRevoked():
                self._revoke(frame)
                done()
            case Query():
                self._spawn_query(frame)
            case (
                AgentDeliver()
                | AgentControl()
                | AgentResolve()
                | ApprovalDecide()
                | SendJudged()
                | AgentIntervene()
            ):
                self._pass_on(frame, done)
            case _:
                done()  # of a newer server, or of the other direction

    def _pass_on(self, frame: ForAgent, done: Done) -> None:
        seat = self._seats.get(frame.agent)
        if seat is None:
            _log.warning("a frame came for an agent that is not ours: %s", frame.agent)
            self._refuse(frame, done, _UNKNOWN)
            return
        seat.take(frame, done)

    def _refuse(self, frame: ForAgent, done: Done, why: Diagnostic) -> None:
        if frames := undeliverable(frame, why):
            self._journal.send(frames)
        done()

    def _grant(self, granted: AgentGranted) -> None:
        self._journal.keep(granted)
        seat = self._seats.get(granted.agent)
        if seat is not None and not seat.leaving:
            if granted.epoch >= seat.granted.epoch:
                seat.regrant(granted)
            return
        if self._nursery is None or self._closing:
            return
        new = Seat(
            granted,
            self._journal,
            self._make_actor,
            self._intensity,
            self._answer,
            self._loaded.pop(granted.agent, None),
        )
        self._seats[granted.agent] = new
        self._nursery.start_soon(self._keep, new, seat)

    async def _keep(self, seat: Seat, before: Seat | None) -> None:
        if before is not None:
            await before.over.wait()
        await seat.run()
        if self._seats.get(seat.granted.agent) is seat and not self._closing:
            del self._seats[seat.granted.agent]

    def _revoke(self, revoked: AgentRevoked) -> None:
        seat = self._seats.get(revoked.agent)
        if revoked.forget:
            self._journal.forget(revoked.agent)
        if seat is not None and revoked.epoch >= seat.granted.epoch:
            seat.leave(DisposeRequested() if revoked.forget else LeaseLost())

    # --- queries -----------------------------------------------------------------------

    def _spawn_query(self, query: Query) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._answer_query, query)

    async def _answer_query(self, query: Query) -> None:
        match query.what:
            case "journal":
                await self._read_journal(query)
            case "stop":
                self._stop(query)
            case _:
                problem = {"problem": f"this daemon knows no query {query.what!r}"}
                self._answer(Answer(query.ref, False, problem))

    def _stop(self, query: Query) -> None:
        """Stop at once: the server's disk keeps nothing, and a Stop must act."""

        def answer(result: ControlResult) -> None:
            self._answer(Answer(query.ref, True, {"result": result}))

        run, who = query.arguments.get("runId"), query.arguments.get("who")
        seat = self._seats.get(query.agent)
        if seat is None or not isinstance(run, str):
            answer(ControlResult.not_running)
        else:
            seat.stop(RunId(run), str(who), answer)

    async def _read_journal(self, query: Query) -> None:
        after = _number(query.arguments.get("after"), 0, 2**62)
        limit = _number(query.arguments.get("limit"), 100, MAX_ENTRIES)
        entries = await self._journal.entries(query.agent, after, limit)
        self._answer(Answer(query.ref, True, entries_body(entries)))


def _number(value: object, default: int, most: int) -> int:
    return max(0, min(value, most)) if isinstance(value, int) else default
