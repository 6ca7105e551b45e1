"""
A peer that plays the runtime's side of a recording to the real driver, in memory.

What the driver sends is held against what was recorded, field by field; where the
recording has a placeholder, the first value that stands there is what it means from then
on. The driver's lines and requests may come in another order than they were recorded in,
as long as none is missing and none is left.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx
import pytest
import trio
import trio.testing
from attrs import asdict, define, field
from tests.kit.scenarios import SCENARIOS, Stage
from tests.kit.scrubber import Scrubber, strings
from tests.kit.transcript import decoded, is_look

from agentteam_runtimes.incarnation import Exit
from agentteam_runtimes.process_tree import ProcessIdentity, TreeIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.kit.corpora import Performer

    from agentteam_runtimes.driver import RuntimeEvent

Entry = dict[str, Any]

PATIENCE = 5.0  # of the mock clock, that no driver's deadline is waited for
PLACEHOLDER = re.compile(r"(<(?:id\d*|time|machine|(?:text|list|object) of [^>]*)>)")
EVENTS = "/event"


class Differs(AssertionError):
    """The driver did not do what was recorded."""


def replay(
    performer: Performer, scenario: str, wire: Sequence[Entry], place: Path
) -> list[Entry]:
    """Play a scenario against a recording; gives what the driver made of it."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(_replay, performer, scenario, wire, place, clock=clock)


async def _replay(
    performer: Performer, scenario: str, wire: Sequence[Entry], place: Path
) -> list[Entry]:
    desk = performer.empty_desk(place)
    desk.home.workdir.mkdir(parents=True)
    # It is looked up, and never run.
    await trio.Path(desk.home.options()["bin"]).touch(0o700)
    async with trio.open_nursery() as nursery:
        peer = Peer(wire, {"<home>": str(desk.home.path)}, nursery.cancel_scope)
        stage = Stage(desk, peer, performer.asking, performer.refused)
        with pytest.MonkeyPatch.context() as patch:
            driver = desk.driver.__module__
            patch.setattr(f"{driver}.open_incarnation", peer.open_incarnation)
            patch.setattr("agentteam_runtimes.opencode.server.transport", lambda: peer)
            nursery.start_soon(peer.run)
            try:
                await SCENARIOS[scenario](stage)
            except* trio.TooSlowError:
                peer.differs(f"the driver waits for something before line {peer.at}")
        nursery.cancel_scope.cancel()
    if peer.fault is not None:
        raise peer.fault
    return peer.scrubbed(stage.events)


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
    places: Mapping[str, str]  # of this replay, by the name that the recording has
    scope: trio.CancelScope
    names: dict[str, str] = field(factory=dict[str, str])
    fault: Differs | None = None
    _next: int = 0
    _sent: list[_Sent] = field(factory=list[_Sent])
    _changed: trio.Event = field(factory=trio.Event)
    _waits: bool = False
    _open: bool = False
    _on_lines: Callable[[list[bytes]], None] | None = None
    _asked: _Sent | None = None  # the request that is answered next
    _looked: dict[str, httpx.Response] = field(factory=dict[str, httpx.Response])
    _stream: _Stream | None = None

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

    def scrubbed(self, events: Sequence[RuntimeEvent]) -> list[Entry]:
        """Write events as the recording writes what is in them."""
        names = {value: name for name, value in self.names.items()}
        places = {place: name for name, place in self.places.items()}
        ours = [s for e in self.entries if e["dir"] == "in" for s in strings(e)]
        told = [{"event": type(e).__name__, **_told(e)} for e in events]
        scrubber = Scrubber(places, ours, names)
        scrubber.learn(told, "our")
        return [scrubber.scrub(event) for event in told]

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
        incarnation = PlayedIncarnation(self, on_exit)
        yield incarnation
        await incarnation.wait()

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

    async def _idle(self) -> None:
        """Answer looks: how often we look is not of the recording."""
        self._waits = True
        while True:
            self._changed = trio.Event()
            self._sent = [s for s in self._sent if not self._look_again(s)]
            await self._changed.wait()

    def _take(self, entry: Entry) -> bool:
        for sent in self._sent:
            names = dict(self.names)
            if self._same(entry, sent.entry, names):
                self.names = names
                self._sent.remove(sent)
                self._asked = sent
                return True
        return False

    def _play(self, entry: Entry) -> None:
        told = self._filled(entry)
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
            self._stream = _Stream()
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

    # Comparing.

    def _same(self, recorded: Any, sent: Any, names: dict[str, str]) -> bool:
        match recorded, sent:
            case dict(), dict():
                return recorded.keys() == sent.keys() and all(
                    self._same(recorded[k], sent[k], names) for k in recorded
                )
            case list(), list():
                return len(recorded) == len(sent) and all(
                    self._same(*pair, names)
                    for pair in zip(recorded, sent, strict=True)
                )
            case str(), str():
                return self._same_text(recorded, self._placed(sent), names)
            case _:
                return bool(recorded == sent)

    def _same_text(self, recorded: str, sent: str, names: dict[str, str]) -> bool:
        parts = PLACEHOLDER.split(recorded)
        pattern = "".join(
            "(.+?)" if i % 2 else re.escape(part) for i, part in enumerate(parts)
        )
        if not (found := re.fullmatch(pattern, sent, re.DOTALL)):
            return False
        for name, value in zip(parts[1::2], found.groups(), strict=True):
            if name[3:-1].isdigit() and names.setdefault(name, value) != value:
                return False
        return True

    def _placed(self, text: str) -> str:
        for name, place in self.places.items():
            text = text.replace(place, name)
        return text

    def _filled(self, value: Any) -> Any:
        """Put in what the placeholders have come to mean."""
        match value:
            case dict():
                return {k: self._filled(v) for k, v in value.items()}
            case list():
                return [self._filled(v) for v in value]
            case str():
                for name, meant in {**self.places, **self.names}.items():
                    value = value.replace(name, meant)
                return value
            case _:
                return value

    def _difference(self, recorded: Entry, sent: Entry) -> str:
        lines = difflib.unified_diff(
            pretty(self._filled(recorded)),
            pretty(sent),
            f"recorded, line {self.at}",
            "sent by the driver",
            lineterm="",
        )
        return "\n".join(lines)


@define(eq=False)
class PlayedIncarnation:
    """What a driver needs of an incarnation; it ends when it is told to."""

    peer: Peer
    on_exit: Callable[[Exit], None]
    end: Exit | None = None
    stderr_tail: str = ""
    alone: bool = True

    @property
    def identity(self) -> TreeIdentity:
        nobody = ProcessIdentity(0, 0)
        return TreeIdentity(nobody, nobody, "")

    def mark(self) -> int:
        return 0

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            await self.peer.send({"dir": "in", "line": line.decode()})

    def close_stdin(self) -> None:
        return

    async def terminate(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait(self) -> Exit:
        await trio.lowlevel.checkpoint()
        if self.end is None:
            self.end = Exit(0, "", None, (), "told")
            self.on_exit(self.end)
        return self.end


class _Stream(httpx.AsyncByteStream):
    """Server-sent events, as they are fed."""

    def __init__(self) -> None:
        self._feed, self._read = trio.open_memory_channel[bytes](10_000)

    def feed(self, event: str) -> None:
        self._feed.send_nowait(f"data: {event}\n\n".encode())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._read:
            yield data

    async def aclose(self) -> None:
        self._read.close()
        self._feed.close()


def pretty(entry: Any) -> list[str]:
    text = json.dumps(entry, indent=1, sort_keys=True, ensure_ascii=False)
    return text.splitlines()


def _told(event: RuntimeEvent) -> Entry:
    """Give the fields of an event that say something."""
    return {k: v for k, v in asdict(event).items() if v not in ("", None, {}, False)}


def _text(told: Any) -> str:
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
