"""
Requests and answers over the pipes of one JSON-RPC peer.

`feed` is called by the reader and never waits: an answer is taken, and what it means
for the state is done, in the order of the stream. Callers only wait until it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from agentteam_protocol.errors import (
    RuntimeFailure,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes.jsonlines import Noise
from agentteam_runtimes.jsonrpc import Answer, Notification, Peer, Refusal, Request
from agentteam_runtimes.noise import NoiseCount
from agentteam_runtimes.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentteam_runtimes.jsonrpc import RequestId

ANSWER_SECONDS = 30.0

Received = Notification | Request | Noise


@define(eq=False)
class Call:
    """A request of ours on its way."""

    id: int
    method: str
    line: bytes
    then: Callable[[Answer | Refusal], None] | None
    outcome: Answer | Refusal | None = None

    @property
    def result(self) -> Any:
        """The answer; raises `RuntimeRefused` when it is a refusal."""
        match self.outcome:
            case Answer(result=result):
                return result
            case Refusal(code=code, message=message):
                raise RuntimeRefused(message, str(code))
            case None:
                raise RuntimeTooSlow(f"{self.method} was not answered")


@define(eq=False)
class Connection(Waiting):
    """One peer's stdin and stdout, as calls and events."""

    write: Callable[[bytes], Awaitable[None]]
    on_received: Callable[[Sequence[Received]], None]
    noise: NoiseCount = field(factory=NoiseCount)
    _peer: Peer = field(factory=Peer, alias="peer")
    _calls: dict[int, Call] = field(factory=dict[int, Call])

    def feed(self, lines: Sequence[bytes]) -> None:
        """Take the lines of one read."""
        received: list[Received] = []
        for line in lines:
            if self.noise.swallow(line):
                continue
            message = self._peer.receive(line)
            if isinstance(message, Answer | Refusal):
                # What came before it is done before it.
                self._hand_on(received)
                received = []
                self._answered(message)
            else:
                received.append(message)
        self._hand_on(received)
        self.announce()

    def prepare(
        self,
        method: str,
        params: Mapping[str, object],
        then: Callable[[Answer | Refusal], None] | None = None,
    ) -> Call:
        """
        Make a request that `put` writes.

        `then` is called in the stream's order when it is answered.
        """
        id, line = self._peer.request(method, params)
        call = self._calls[id] = Call(id, method, line, then)
        return call

    async def put(self, call: Call) -> None:
        """Write a request. If cancelled, the line is out whole or not at all."""
        try:
            await self.write(call.line)
        except RuntimeFailure:
            del self._calls[call.id]
            raise

    async def call(
        self,
        method: str,
        params: Mapping[str, object],
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Ask and wait for the answer, at most so long."""
        call = self.prepare(method, params)
        await self.put(call)
        with trio.move_on_after(seconds):
            await self.until(lambda: call.outcome is not None)
        return call.result

    async def notify(
        self, method: str, params: Mapping[str, object] | None = None
    ) -> None:
        await self.write(self._peer.notification(method, params))

    async def reply(self, id: RequestId, result: object) -> None:
        """Reply to a request of the runtime, unless it has its reply."""
        if line := self._peer.result(id, result):
            await self.write(line)

    async def refuse(self, id: RequestId, code: int, message: str) -> None:
        if line := self._peer.error(id, code, message):
            await self.write(line)

    def withdraw(self, id: RequestId) -> None:
        self._peer.withdraw(id)

    def _hand_on(self, received: Sequence[Received]) -> None:
        if received:
            self.on_received(received)

    def _answered(self, message: Answer | Refusal) -> None:
        call = self._calls.pop(message.id, None)
        if call is None:
            return
        call.outcome = message
        if call.then is not None:
            call.then(message)
