"""An agent of the Agent Client Protocol in memory: the test plays its side, line by line."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.errors import RuntimeExited
from agentteam_protocol.ids import ItemId
from agentteam_runtimes.acp.record import Memory, Record
from agentteam_runtimes.acp.session import AcpSession
from agentteam_runtimes.connection import Connection, Received
from agentteam_runtimes.driver import Batch, InputItem, TurnRef
from agentteam_runtimes.jsonrpc import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

SESSION = "ses-1"

Message = dict[str, Any]


class FakeAcp:
    """What the session wrote, and the means to send it anything."""

    def __init__(self, nursery: trio.Nursery, place: Path, *, loads: bool) -> None:
        self.sent: list[Message] = []
        self.seen = SeenEvents()
        self._wrote = trio.Event()
        self.connection = Connection(self._write, self._received, peer=Peer("2.0"))
        memory = Memory(place / "acp.json")
        self.session = AcpSession(
            self.connection, None, place, memory, self.seen, nursery, SESSION, loads
        )
        self.session.turns.record = Record(SESSION, known=True)

    async def _write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += [json.loads(line) for line in data.splitlines()]
        self._wrote.set()
        self._wrote = trio.Event()

    def _received(self, received: Sequence[Received]) -> None:
        self.session.receive(received)

    # The agent's side.

    def send(self, *messages: Message | bytes) -> None:
        """Send lines, as if one read had brought them all."""
        lines = [
            m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages
        ]
        self.connection.feed(lines)

    def exit(self, returncode: int) -> None:
        self.connection.exited(RuntimeExited(returncode))

    async def asked(self, method: str, count: int = 1) -> Message:
        """Wait for the n-th request or notification with this method."""
        while len(found := self.told(method)) < count:
            await self._wrote.wait()
        return found[count - 1]

    async def replied(self, id: int) -> Message:
        """Wait for the reply to a request of the agent."""
        while not (
            found := [m for m in self.sent if m.get("id") == id and "method" not in m]
        ):
            await self._wrote.wait()
        (reply,) = found
        return reply

    def told(self, method: str) -> list[Message]:
        return [m for m in self.sent if m.get("method") == method]

    async def stop(self, reason: str = "end_turn", **more: Any) -> None:
        """Answer the newest prompt."""
        prompt = self.told("session/prompt")[-1]
        self.send({"id": prompt["id"], "result": {"stopReason": reason} | more})

    async def refuse(self, method: str, message: str, count: int = 1) -> None:
        request = await self.asked(method, count)
        error = {"code": -32603, "message": message}
        self.send({"id": request["id"], "error": error})

    async def replay(self, *updates: Message, count: int = 1) -> None:
        """Answer a load of the session with its past."""
        load = await self.asked("session/load", count)
        self.send(*updates, {"id": load["id"], "result": {}})

    async def turn(self, key: str = "k1", text: str = "") -> TurnRef:
        """Start a turn with one entry."""
        return await self.session.start_turn(
            Batch(f"batch-{key}", (an_item(key, text),))
        )


@asynccontextmanager
async def open_fake_acp(
    place: Path, *, loads: bool = True, within: float = 60
) -> AsyncIterator[FakeAcp]:
    """Play an agent; a test that still waits after so long fails."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_give_up, within)
        yield FakeAcp(nursery, place, loads=loads)
        nursery.cancel_scope.cancel()


async def _give_up(within: float) -> None:
    await trio.sleep(within)
    raise trio.TooSlowError(f"the session still waits after {within:g} s")


def an_item(key: str, text: str = "") -> InputItem:
    return InputItem(ItemId(f"item-{key}"), key, text or f"text of {key}")


def update(kind: str, /, session: str = SESSION, **more: Any) -> Message:
    told = {"sessionUpdate": kind} | more
    params = {"sessionId": session, "update": told}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def words(text: str, message: str = "", **more: Any) -> Message:
    """A piece of what the agent says, of a message with a name or without."""
    return chunk("agent_message_chunk", text, message, **more)


def echo(text: str, message: str = "") -> Message:
    """A message of the user, as the agent repeats it."""
    return chunk("user_message_chunk", text, message)


def chunk(kind: str, text: str, message: str = "", **more: Any) -> Message:
    named = {"messageId": message} if message else {}
    return update(kind, content={"type": "text", "text": text}, **named, **more)


def call(id: str, status: str = "pending", **more: Any) -> Message:
    return update("tool_call", toolCallId=id, kind="execute", status=status, **more)


def called(id: str, status: str, **more: Any) -> Message:
    return update("tool_call_update", toolCallId=id, status=status, **more)


def permission(id: int, call_id: str = "c1", session: str = SESSION) -> Message:
    """Ask for a permission, with an option that is more than was decided."""
    options = [
        {"optionId": "always", "kind": "allow_always", "name": "Always"},
        {"optionId": "once", "kind": "allow_once", "name": "Once"},
        {"optionId": "no", "kind": "reject_once", "name": "No"},
    ]
    asked: Message = {"toolCallId": call_id, "title": "touch x", "kind": "execute"}
    asked["rawInput"] = {"command": "touch x"}
    params = {"sessionId": session, "toolCall": asked, "options": options}
    return {"id": id, "method": "session/request_permission", "params": params}
