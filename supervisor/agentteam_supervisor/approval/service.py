"""
The answerers of `approval/request`: a waterfall of whoever was composed in.

Each one answers, or hands on by awaiting `following()`; who does not hand on keeps
the later ones from running (R83). Nothing here can turn a fault into a yes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import trio
from attrs import frozen

from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.ids import AgentId
from agentteam_supervisor.approval.policy import decide_before_dispatch, read_outcome

Following = Callable[[], Awaitable[ApprovalOutcome]]
# Sync or async; anything but a word of the vocabulary counts as no answer.
Answerer = Callable[[ApprovalRequest, Following], Any]


@frozen(eq=False)
class _Seat:
    answerer: Answerer
    scope: AgentId | None


class ApprovalService:
    """Asks the answerers that are composed for an agent or one of its ancestors."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._seats: list[_Seat] = []

    def add(
        self,
        answerer: Answerer,
        *,
        prepend: bool = False,
        scope: AgentId | None = None,
    ) -> Callable[[], None]:
        """Compose an answerer in, for one agent's tree or for all; undo by calling."""
        seat = _Seat(answerer, scope)
        self._seats.insert(0 if prepend else len(self._seats), seat)

        def remove() -> None:
            if seat in self._seats:
                self._seats.remove(seat)

        return remove

    async def request(
        self,
        request: ApprovalRequest,
        lineage: Collection[AgentId] = (),
        *,
        policy: ApprovalPolicy = ApprovalPolicy.ask,
        aborted: bool = False,
    ) -> ApprovalOutcome:
        """
        Decide one ask; `lineage` are the agent and its ancestors.

        If cancelled, nobody has decided: the cut that cancels it has done so.
        """
        decided = decide_before_dispatch(policy, aborted=aborted)
        if decided is not None:
            return decided
        seats = [s for s in self._seats if s.scope is None or s.scope in lineage]
        outcome = ApprovalOutcome.unavailable
        with trio.move_on_after(
            float("inf") if self._timeout is None else self._timeout
        ):
            outcome = await _ask(seats, request)
        return outcome


async def _ask(seats: list[_Seat], request: ApprovalRequest) -> ApprovalOutcome:
    """Ask the first seat, which may ask the rest; an empty table says nothing."""
    if not seats:
        return ApprovalOutcome.unavailable
    first, *rest = seats
    try:
        answer = first.answerer(request, lambda: _ask(rest, request))
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:
        # The boundary of one answerer: its fault is no answer, and never a yes.
        return ApprovalOutcome.unavailable
    return read_outcome(answer)


async def wait_for_person(_: ApprovalRequest, __: Following) -> ApprovalOutcome:
    """
    Answerer: a person decides, on the page or the command line.

    Their decision goes straight to the session, which then withdraws the ask, so this
    only keeps it open: it ends by being cancelled.
    """
    await trio.sleep_forever()
    raise AssertionError("unreachable")
