"""What an OpenCode session has recorded: read again where events may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from agentteam_protocol.errors import RuntimeExited, RuntimeFailure
from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import Emit, ItemOutcome, Noticed, RuntimeEvent
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
        for message in jsonfields.objects(found):
            events += self.turns.message(jsonfields.mapping(message, "info"))
            for part in jsonfields.objects(message.get("parts")):
                events += self.turns.part(part)
        if events:
            self.emit(events)
        return busy

    async def busy(self) -> bool:
        """Idle sessions have no status."""
        status = await self.server.get(wire.STATUS)
        kind = jsonfields.text(jsonfields.mapping(status, self.turns.session), "type")
        return kind not in ("", "idle")

    async def withdraw(self, message: str) -> bool:
        """Take an unanswered message back; False: OpenCode keeps it."""
        try:
            for id in [*self.turns.unstarted(message), message]:
                await self.server.delete(wire.message(self.turns.session, id))
        except RuntimeExited:
            raise
        except RuntimeFailure as failure:
            self.emit(
                [Noticed("OpenCode keeps a message it did not read", str(failure))]
            )
            return False
        self.turns.withdrawn(message)
        return True

    async def look_up(self, keys: Mapping[str, ItemId]) -> dict[ItemId, ItemOutcome]:
        """
        Tell what became of the entries with these keys.

        An answered one has surfaced. One that stands there unanswered would be folded
        into the next request, behind what is sent with it: it is taken back, so that
        it can be sent in its order, or else stays with OpenCode. While the session is
        busy nothing of that is final: such a key is left out.
        """
        busy = await self.busy()
        path = wire.messages(self.turns.session)
        found = list(jsonfields.objects(await self.server.get(path)))
        answered = max((_answered(message) for message in found), default="")
        outcomes: dict[ItemId, ItemOutcome] = {}
        for message in found:
            mine = {key: keys[key] for key in _keys(message) if key in keys}
            id = jsonfields.text(jsonfields.mapping(message, "info"), "id")
            if not mine:
                continue
            if id <= answered:
                outcomes |= dict.fromkeys(mine.values(), ItemOutcome.surfaced)
            elif not busy and not await self.withdraw(id):
                outcomes |= dict.fromkeys(mine.values(), ItemOutcome.carried)
                self.turns.carry(id, mine)
        if not busy:
            outcomes = dict.fromkeys(keys.values(), ItemOutcome.dropped) | outcomes
        return outcomes


def _keys(message: JsonObject) -> list[str]:
    parts = jsonfields.objects(message.get("parts"))
    return [key for part in parts if (key := wire.key_of(jsonfields.text(part, "id")))]


def _answered(message: JsonObject) -> str:
    """Name the user message that an assistant message certainly answers."""
    parts = jsonfields.objects(message.get("parts"))
    if not any(jsonfields.text(part, "type") == "step-start" for part in parts):
        return ""
    return jsonfields.text(jsonfields.mapping(message, "info"), "parentID")
