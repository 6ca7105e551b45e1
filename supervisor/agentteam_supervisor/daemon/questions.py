"""What the sessions ask the server: sends to be judged, histories to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio
from attrs import define, field

from agentteam_protocol.frames import (
    Frame,
    HistoryAsked,
    HistoryGiven,
    SendAsked,
    SendJudged,
    SendRequested,
)
from agentteam_supervisor.daemon import answers
from agentteam_supervisor.session import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_protocol.ids import AgentId, SendId
    from agentteam_supervisor.session.effects import JudgeSend, ReadTarget
    from agentteam_supervisor.session.events import HistoryRead, SendAnswered

T = TypeVar("T")


@define(eq=False)
class _Waiting(Generic[T]):
    """A caller that waits for one frame of the server."""

    answer: T
    sent: bool = False
    over: trio.Event = field(factory=trio.Event)


class Questions:
    """Every question gets an answer: the server's, or what is true without it."""

    def __init__(self, tell: Callable[[Frame], None], patience: float) -> None:
        self._tell = tell
        self._patience = patience
        self._sends: dict[SendId, _Waiting[SendAnswered]] = {}
        self._reads: dict[int, _Waiting[HistoryGiven]] = {}
        self._to_ask: dict[SendId, AgentId] = {}
        self._last_ref = 0

    async def judge(self, send: JudgeSend, agent: AgentId) -> SendAnswered:
        """Take a visible send to the server, once; unknown if the link is lost then."""
        waiting = _Waiting(answers.unknown(send.send))
        self._sends[send.send] = waiting
        self._tell(
            SendRequested(
                send.send, agent, send.gen, send.target, send.text, send.auto_reply
            )
        )
        try:
            with trio.move_on_after(self._patience):
                await waiting.over.wait()
        finally:
            self._sends.pop(send.send, None)
        return waiting.answer

    async def read(self, read: ReadTarget, agent: AgentId) -> HistoryRead:
        """Fetch messages of a target for the agent."""
        self._last_ref += 1
        ref = self._last_ref
        lost = HistoryGiven(ref, None, problem=words.UNREAD_LINK_LOST)
        waiting = _Waiting(lost)
        self._reads[ref] = waiting
        self._tell(HistoryAsked(ref, agent, read.target, read.after))
        try:
            with trio.move_on_after(self._patience):
                await waiting.over.wait()
        finally:
            self._reads.pop(ref, None)
        return answers.history(read, waiting.answer)

    def ask_again(self) -> None:
        """Ask by its id what became of each send that a lost link may have carried."""
        for send, agent in self._to_ask.items():
            self._tell(SendAsked(send, agent))
        self._to_ask.clear()

    def leaving(self, frames: list[Frame]) -> None:
        """These are about to be on the wire: from now on their fate is open."""
        for frame in frames:
            if isinstance(frame, SendRequested) and frame.send in self._sends:
                self._sends[frame.send].sent = True
                self._to_ask[frame.send] = frame.agent

    def judged(self, frame: SendJudged) -> None:
        self._to_ask.pop(frame.send, None)
        waiting = self._sends.get(frame.send)
        if waiting is not None:
            waiting.answer = answers.verdict(frame)
            waiting.over.set()

    def given(self, frame: HistoryGiven) -> None:
        waiting = self._reads.get(frame.ref)
        if waiting is not None:
            waiting.answer = frame
            waiting.over.set()

    def cut_off(self) -> None:
        """The connection is gone: everybody who waits for an answer gets one."""
        for send, waiting in self._sends.items():
            if not waiting.sent:
                waiting.answer = answers.refused(send)
            waiting.over.set()
        for reading in self._reads.values():
            reading.over.set()
