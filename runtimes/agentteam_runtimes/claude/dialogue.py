"""
The requests of both sides over the lines of one Claude, and the lines between them.

`feed` is called by the reader and never waits: what a line means for the state is done
in the order of the stream. Callers only wait until it was done. Claude repeats our own
answers on its stdout; an answer counts only under an id of ours that still waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from attrs import define, field

from agentteam_protocol.errors import (
    RuntimeFailure,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.claude import wire
from agentteam_runtimes.driver import Noticed
from agentteam_runtimes.jsonlines import JsonObject, Noise, decode_line
from agentteam_runtimes.noise import NoiseCount
from agentteam_runtimes.waiting import Waiting


@define(eq=False)
class Asking:
    """A request of ours on its way."""

    id: str
    subtype: str
    line: bytes
    then: Callable[[JsonObject], None] | None = None  # called in the stream's order
    answer: JsonObject | None = None
    refusal: str | None = None

    @property
    def answered(self) -> bool:
        return self.answer is not None or self.refusal is not None

    @property
    def result(self) -> JsonObject:
        """The answer; raises `RuntimeRefused` when it is a refusal."""
        if self.refusal is not None:
            raise RuntimeRefused(self.refusal)
        if self.answer is None:
            raise RuntimeTooSlow(f"{self.subtype} was not answered")
        return self.answer


@define(eq=False)
class Dialogue(Waiting):
    """One Claude's stdin and stdout."""

    write: Callable[[bytes], Awaitable[None]]
    on_lines: Callable[[Sequence[JsonObject]], None]
    on_noise: Callable[[Sequence[Noticed]], None]
    noise: NoiseCount = field(factory=NoiseCount)
    _asking: dict[str, Asking] = field(factory=dict[str, Asking])
    _last: int = 0

    def feed(self, lines: Sequence[bytes]) -> None:
        """Take the lines of one read."""
        received: list[JsonObject] = []
        for line in lines:
            if self.noise.swallow(line):
                continue
            message = decode_line(line)
            if isinstance(message, Noise):
                self.on_noise(self.noise.notice(message))
            elif message.get("type") == wire.RESPONSE:
                # What came before it is done before it.
                self._hand_on(received)
                received = []
                self._answered(jsonfields.mapping(message, "response"))
            else:
                received.append(message)
        self._hand_on(received)
        self.announce()

    def prepare(
        self,
        subtype: str,
        then: Callable[[JsonObject], None] | None = None,
        **fields: object,
    ) -> Asking:
        """Make a request that `put` writes."""
        self._last += 1
        id = f"req_{self._last}"
        line = wire.request(id, subtype, **fields)
        asking = self._asking[id] = Asking(id, subtype, line, then)
        return asking

    async def put(self, *askings: Asking) -> None:
        """Write requests at once. If cancelled, they are out whole or not at all."""
        try:
            await self.write(b"".join(asking.line for asking in askings))
        except RuntimeFailure:
            for asking in askings:
                self._asking.pop(asking.id, None)
            raise

    def _hand_on(self, received: Sequence[JsonObject]) -> None:
        if received:
            self.on_lines(received)

    def _answered(self, response: JsonObject) -> None:
        asking = self._asking.pop(jsonfields.text(response, "request_id"), None)
        if asking is None:
            return
        if response.get("subtype") == "error":
            asking.refusal = jsonfields.text(response, "error") or "refused"
            return
        asking.answer = jsonfields.mapping(response, "response")
        if asking.then is not None:
            asking.then(asking.answer)
