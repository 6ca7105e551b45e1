"""What an OpenCode session has recorded: read again where events may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from agentteam_runtimes.driver import Emit, ItemOutcome, RuntimeEvent
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.server import Server
from agentteam_runtimes.opencode.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.jsonlines import JsonObject

# A turn seldom makes more messages between two looks at it.
NEWEST = 60


@define(eq=False)
class Record:
    """The messages of one session and whether it runs, as the server tells them."""

    server: Server
    turns: Turns
    emit: Emit

    async def read(self) -> bool:
        """Take what the newest messages tell; True: the session is busy."""
        busy = await self.busy()
        found = await self.server.get(wire.messages(self.turns.session, NEWEST))
        events: list[RuntimeEvent] = []
        for message in wire.objects(found):
            events += self.turns.message(wire.mapping(message, "info"))
            for part in wire.objects(message.get("parts")):
                events += self.turns.part(part)
        if events:
            self.emit(events)
        return busy

    async def busy(self) -> bool:
        """Idle sessions have no status."""
        status = await self.server.get(wire.STATUS)
        kind = wire.text(wire.mapping(status, self.turns.session), "type")
        return kind not in ("", "idle")

    async def look_up(self, keys: Mapping[str, ItemId]) -> dict[ItemId, ItemOutcome]:
        """
        Tell what became of the entries with these keys.

        An answered one has surfaced. One that stands there unanswered stays with
        OpenCode, which folds it into its next request. While the session is busy
        neither that nor an absence is final: such a key is left out.
        """
        busy = await self.busy()
        found = list(
            wire.objects(await self.server.get(wire.messages(self.turns.session)))
        )
        answered = max((_answered(message) for message in found), default="")
        outcomes: dict[ItemId, ItemOutcome] = {}
        for message in found:
            mine = [key for key in _keys(message) if key in keys]
            id = wire.text(wire.mapping(message, "info"), "id")
            if not mine:
                continue
            if id <= answered:
                outcomes |= {keys[key]: ItemOutcome.surfaced for key in mine}
            elif not busy:
                outcomes |= {keys[key]: ItemOutcome.carried for key in mine}
                self.turns.carry(id, {key: keys[key] for key in mine})
        if not busy:
            missing = dict.fromkeys(keys.values(), ItemOutcome.dropped)
            outcomes = missing | outcomes
        return outcomes


def _keys(message: JsonObject) -> list[str]:
    parts = wire.objects(message.get("parts"))
    return [key for part in parts if (key := wire.key_of(wire.text(part, "id")))]


def _answered(message: JsonObject) -> str:
    """Name the user message that an assistant message certainly answers."""
    parts = wire.objects(message.get("parts"))
    if not any(wire.text(part, "type") == "step-start" for part in parts):
        return ""
    return wire.text(wire.mapping(message, "info"), "parentID")
