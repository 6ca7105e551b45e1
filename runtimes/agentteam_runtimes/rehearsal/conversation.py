"""Requests and their answers, and events, over the pipes of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from agentteam_protocol.errors import QueueFull, RuntimeExited, RuntimeRefused
from agentteam_runtimes.driver import Emit, Noticed, RuntimeEvent
from agentteam_runtimes.incarnation import Exit, Incarnation
from agentteam_runtimes.jsonlines import JsonObject, encode_line
from agentteam_runtimes.last_words import closing
from agentteam_runtimes.rehearsal import wire
from agentteam_runtimes.rehearsal.reading import Reading, Reply
from agentteam_runtimes.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentteam_runtimes.lines import Overlong

OVER_LIMIT = "line over limit"
HELLO = 0  # its answer is `ready`


class NotWritten(RuntimeRefused):
    """The request did not leave: too much waits for the runtime to read it."""


@define(eq=False)
class Conversation(Waiting):
    """
    One process's stdin and stdout.

    `feed`, `overlong` and `ended` are called by the reader and never wait. A line
    over the limit ends the process: what stood in it cannot be known, the end of a
    turn among it.
    """

    emit: Emit
    reading: Reading = field(factory=Reading)
    incarnation: Incarnation | None = None
    ready: bool = False  # before, the end of the process is the start's to report
    fault: str = ""
    _last_id: int = 0
    _replies: dict[int, JsonObject | None] = field(factory=lambda: {HELLO: None})

    def feed(self, lines: Sequence[bytes]) -> None:
        """Take the lines of one read; events leave in the order of the stream."""
        events: list[RuntimeEvent] = []
        for each in self.reading.read(lines):
            if not isinstance(each, Reply):
                events.append(each)
            elif each.id in self._replies:
                self._replies[each.id] = each.message
            else:
                events.append(Noticed("an answer to no request", str(each.id)))
        if events:
            self.emit(events)
        self.announce()

    def overlong(self, line: Overlong) -> None:
        sample = line.head.decode("utf-8", "replace")
        self.emit([Noticed(OVER_LIMIT, sample)])
        self.fault = OVER_LIMIT
        self.announce()

    def ended(self, end: Exit) -> None:
        if self.ready:
            self.emit(closing(end, self.fault))
        self.exited(RuntimeExited(end.returncode, end.stderr_tail))

    async def end_on_fault(self) -> None:
        """Kill the process when its stream broke."""
        while not self.fault:
            await self._changed.wait()
        if self.incarnation is not None:
            await self.incarnation.kill()

    async def tell(self, op: str, **fields: Any) -> None:
        """Write a line that has no answer; raises `RuntimeExited`, `NotWritten`."""
        await self._write({"op": op, **fields})

    async def ask(
        self, op: str, fields: JsonObject, stop: Callable[[], bool] | None = None
    ) -> JsonObject:
        """
        Write a request and wait for its answer; raises `RuntimeRefused` for an error.

        Empty when `stop` came first. If cancelled, the line is out whole or not at all,
        and an answer that still comes changes nothing.
        """
        self._last_id += 1
        id = self._last_id
        self._replies[id] = None
        try:
            await self._write({"op": op, "id": id, **fields})
            return await self.reply(id, stop)
        finally:
            del self._replies[id]

    async def reply(
        self, id: int, stop: Callable[[], bool] | None = None
    ) -> JsonObject:
        """Wait for an answer; raises `RuntimeRefused` for an error."""
        await self.until(
            lambda: self._replies[id] is not None or (stop is not None and stop())
        )
        reply = self._replies[id] or {}
        if error := wire.refusal(reply):
            raise Refusal(error)
        return reply

    async def _write(self, message: JsonObject) -> None:
        assert self.incarnation is not None, "nothing is written before it is open"
        try:
            await self.incarnation.write(encode_line(message))
        except QueueFull as full:
            raise NotWritten(str(full), "queue_full") from full


class Refusal(RuntimeRefused):
    """The program's error; `named` is the turn that it says is running."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(str(error.get("message", "")), str(error.get("code", "")))
        named = error.get("named")
        self.named = named if isinstance(named, str) else None
