"""An app-server in memory: the test plays its side of the wire, line by line."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.errors import RuntimeExited
from agentteam_protocol.ids import ItemId
from agentteam_runtimes.codex.session import CodexSession
from agentteam_runtimes.codex.turns import Turns
from agentteam_runtimes.connection import Connection, Received
from agentteam_runtimes.driver import Batch, InputItem, TurnRef

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

THREAD = "thread-p"

Message = dict[str, Any]


class FakeAppServer:
    """What the session wrote, and the means to send it anything."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.sent: list[Message] = []
        self.seen = SeenEvents()
        self._wrote = trio.Event()
        connection = Connection(self._write, self._received)
        self.connection = connection
        self.session = CodexSession(connection, Turns(THREAD), None, self.seen, nursery)

    async def _write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += [json.loads(line) for line in data.splitlines()]
        self._wrote.set()
        self._wrote = trio.Event()

    def _received(self, received: Sequence[Received]) -> None:
        self.session.receive(received)

    # The app-server's side.

    def send(self, *messages: Message | bytes) -> None:
        """Send lines, as if one read had brought them all."""
        self.connection.feed(
            [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        )

    def exit(self, returncode: int) -> None:
        self.connection.exited(RuntimeExited(returncode))

    async def asked(self, method: str, count: int = 1) -> Message:
        """Wait for the n-th request with this method."""
        while len(found := self.requests(method)) < count:
            await self._wrote.wait()
        return found[count - 1]

    def requests(self, method: str) -> list[Message]:
        return [m for m in self.sent if m.get("method") == method]

    @property
    def replies(self) -> list[Message]:
        return [m for m in self.sent if "method" not in m]

    async def answer(self, method: str, result: Message, count: int = 1) -> None:
        request = await self.asked(method, count)
        self.send({"id": request["id"], "result": result})

    async def refuse(self, method: str, message: str, count: int = 1) -> None:
        request = await self.asked(method, count)
        error = {"code": -32600, "message": message}
        self.send({"id": request["id"], "error": error})

    # Short ways to a running turn.

    async def running_turn(self, turn: str = "T1", key: str = "k1") -> TurnRef:
        """Start a turn as codex does: answer, `turn/started`, our input recorded."""
        async with trio.open_nursery() as nursery:
            batch = Batch(f"batch-{key}", (an_item(key),))
            nursery.start_soon(self.session.start_turn, batch)
            number = len(self.requests("turn/start")) + 1
            await self.answer("turn/start", {"turn": {"id": turn}}, number)
            self.send(started(turn), recorded(turn, key))
        return TurnRef(turn)

    async def answer_clean_up(self, count: int = 1) -> None:
        """Tell that the cut turn left no command running."""
        await self.answer("thread/backgroundTerminals/list", {"data": []}, count)


@asynccontextmanager
async def open_fake_app_server(within: float = 60) -> AsyncIterator[FakeAppServer]:
    """Play an app-server; a test that still waits after so long fails."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_give_up, within)
        yield FakeAppServer(nursery)
        nursery.cancel_scope.cancel()


async def _give_up(within: float) -> None:
    await trio.sleep(within)
    raise trio.TooSlowError(f"the session still waits after {within:g} s")


def an_item(key: str) -> InputItem:
    return InputItem(ItemId(f"item-{key}"), key, f"text of {key}")


def note(method: str, thread: str | None = THREAD, **params: Any) -> Message:
    """Make a notification."""
    where = {} if thread is None else {"threadId": thread}
    return {"method": method, "params": where | params, "emittedAtMs": 1}


def started(turn: str, thread: str | None = THREAD, root: str | None = None) -> Message:
    return note("turn/started", thread, turn={"id": turn, "rootTurnId": root or turn})


def completed(
    turn: str, status: str = "completed", thread: str | None = THREAD, **more: Any
) -> Message:
    return note("turn/completed", thread, turn={"id": turn, "status": status} | more)


def recorded(turn: str, client: str, thread: str = THREAD) -> Message:
    """The sign that an input is in the thread's history."""
    item = {"type": "userMessage", "id": f"u-{client}", "clientId": client}
    return note("item/completed", thread, turnId=turn, item=item)


def said(turn: str, text: str, thread: str = THREAD, **more: Any) -> Message:
    item = {"type": "agentMessage", "id": "m", "text": text} | more
    return note("item/completed", thread, turnId=turn, item=item)


def command(turn: str, call: str, thread: str = THREAD, **more: Any) -> Message:
    """A command that starts, or with `status` one that ended."""
    item = {"type": "commandExecution", "id": call, "command": "make"} | more
    method = "item/completed" if "status" in more else "item/started"
    return note(method, thread, turnId=turn, item=item)
