"""
A peer that plays the runtime's side of a recording to the real driver, in memory.

What the driver sends is held against what was recorded, field by field. Its lines and
requests may come in another order than they were recorded in, as long as none is missing
and none is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from difflib import unified_diff
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx
import trio
import trio.testing
from attrs import define, field
from tests.kit.meanings import Meanings
from tests.kit.played import EventStream, PlayedIncarnation
from tests.kit.transcript import decoded, is_look

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentteam_runtimes.incarnation import Exit

Entry = dict[str, Any]

PATIENCE = 5.0  # of the mock clock, that no driver's deadline is waited for
EVENTS = "/event"


class Differs(AssertionError):
    """The driver did not do what was recorded."""


@define(eq=False)
class _Sent:
    """Something that the driver sent and that has no place in the recording yet."""

    entry: Entry
    answered: trio.Event = field(factory=trio.Event)
    answer: httpx.Response | None = None


@define(eq=False)
class Peer(httpx.AsyncBaseTransport):
    """Stands where an incarnation, or an HTTP server, would be: a `Wire`."""

    entries: Sequence[Entry]
    meanings: Meanings
    scope: trio.CancelScope
    fault: Differs | None = None
    _next: int = 0
    _sent: list[_Sent] = field(factory=list[_Sent])
    _changed: trio.Event = field(factory=trio.Event)
    _waits: bool = False
    _open: bool = False
    _on_lines: Callable[[list[bytes]], None] | None = None
    _asked: _Sent | None = None  # the request that is answered next
    _looked: dict[str, httpx.Response] = field(factory=dict[str, httpx.Response])
    _stream: EventStream | None = None

    # The wire, for the scenario.

    def on(self) -> None:
        self._open = True

    def off(self) -> None:
        """Insist that all of this incarnation was played, and nothing else sent."""
        self._open = False
        rest = self.entries[self._next :]
        if rest and "start" not in rest[0]:
            self.differs(f"line {self.at} was never reached: {rest[0]}")
        elif unknown := [s for s in self._sent if not self._look_again(s)]:
            self.differs(f"this was not recorded: {unknown[0].entry}")
        self._sent.clear()

    async def quiet(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        while not self._waits:
            await trio.testing.wait_all_tasks_blocked()

    @property
    def at(self) -> int:
        """The line that is played next."""
        return self._next + 1

    async def run(self) -> None:
        """Play all of it; what differs ends the scope."""
        try:
            for entry in self.entries:
                if entry["dir"] == "in":
                    await self._expect(entry)
                else:
                    await trio.testing.wait_all_tasks_blocked()
                    self._play(entry)
                self._next += 1
            await self._idle()
        except Differs as fault:
            self.differs(str(fault))

    def differs(self, how: str) -> None:
        """End the replay; the first difference is the one to know."""
        self.fault = self.fault or Differs(how)
        self.scope.cancel()

    # The driver's side.

    async def send(self, entry: Entry) -> _Sent:
        await trio.lowlevel.checkpoint()
        sent = _Sent(decoded(entry))
        if self._open:
            self._sent.append(sent)
            self._changed.set()
        return sent

    @asynccontextmanager
    async def open_incarnation(
        self,
        command: Sequence[str],
        *,
        on_lines: Callable[[list[bytes]], None],
        on_exit: Callable[[Exit], None],
        **_: Any,
    ) -> AsyncIterator[PlayedIncarnation]:
        """Be what a driver opens."""
        self._on_lines = on_lines
        await self.send({"dir": "in", "start": list(command[1:])})
        incarnation = PlayedIncarnation(self._hear, on_exit)
        yield incarnation
        await incarnation.wait()

    async def _hear(self, line: str) -> None:
        await self.send({"dir": "in", "line": line})

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Be the server of one that is asked over HTTP."""
        path = unquote(request.url.raw_path.decode())
        body = request.content.decode()
        asked = {"method": request.method, "path": path, "body": body}
        if not self._open:
            return httpx.Response(200, json=True)
        sent = await self.send({"dir": "in", "request": asked})
        await sent.answered.wait()
        assert sent.answer is not None
        return sent.answer

    # Playing.

    async def _expect(self, entry: Entry) -> None:
        """Wait until the driver has sent this."""
        # A start comes when the incarnation before it has ended.
        with trio.move_on_after(inf if "start" in entry else PATIENCE):
            while True:
                self._changed = trio.Event()
                if self._take(entry):
                    return
                await trio.testing.wait_all_tasks_blocked()
                if self._take(entry):
                    return
                if unknown := [s for s in self._sent if not self._look_again(s)]:
                    raise Differs(self._difference(entry, unknown[0].entry))
                self._sent.clear()
                self._waits = True
                await self._changed.wait()
                self._waits = False
        raise Differs(f"line {self.at} was not sent: {entry}")

    def _difference(self, recorded: Entry, sent: Entry) -> str:
        before, after = pretty(self.meanings.filled(recorded)), pretty(sent)
        told = f"recorded, line {self.at}"
        return "\n".join(unified_diff(before, after, told, "sent", lineterm=""))

    async def _idle(self) -> None:
        """Answer looks: how often we look is not of the recording."""
        self._waits = True
        while True:
            self._changed = trio.Event()
            self._sent = [s for s in self._sent if not self._look_again(s)]
            await self._changed.wait()

    def _take(self, entry: Entry) -> bool:
        for sent in self._sent:
            if self.meanings.same(entry, sent.entry):
                self._sent.remove(sent)
                self._asked = sent
                return True
        return False

    def _play(self, entry: Entry) -> None:
        told = self.meanings.filled(entry)
        if "line" in told:
            assert self._on_lines is not None
            self._on_lines([_text(told["line"]).encode()])
        elif "event" in told:
            assert self._stream is not None
            self._stream.feed(_text(told["event"]))
        else:
            self._answer(told["answer"])

    def _answer(self, told: Entry) -> None:
        assert self._asked is not None
        if self._asked.entry["request"]["path"] == EVENTS:
            self._stream = EventStream()
            answer = httpx.Response(told["status"], stream=self._stream)
        else:
            answer = httpx.Response(told["status"], text=_text(told.get("body", "")))
        if is_look(self._asked.entry):
            self._looked[self._asked.entry["request"]["path"]] = answer
        self._asked.answer = answer
        self._asked.answered.set()

    def _look_again(self, sent: _Sent) -> bool:
        """Tell a look what it was told before; False: it is none."""
        if not is_look(sent.entry):
            return False
        before = self._looked.get(sent.entry["request"]["path"])
        if before is None:
            return False
        sent.answer = httpx.Response(before.status_code, text=before.text)
        sent.answered.set()
        return True


def pretty(entry: Any) -> list[str]:
    text = json.dumps(entry, indent=1, sort_keys=True, ensure_ascii=False)
    return text.splitlines()


def _text(told: Any) -> str:
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
