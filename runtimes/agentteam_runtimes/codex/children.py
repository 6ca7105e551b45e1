"""
The turns of sub-agents: they share our connection, not our turn. Pure.

Every turn of theirs names the turn its work goes back to (`rootTurnId`). That is all
that ties it to us: its tools and its asks belong to that turn of ours, and its end ends
nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from agentteam_runtimes import jsonfields
from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.items import tool_ended, tool_started
from agentteam_runtimes.driver import Noticed, RuntimeEvent, TurnRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_runtimes.jsonlines import JsonObject
    from agentteam_runtimes.jsonrpc import Notification

MOST_REMEMBERED = 256


@define
class Children:
    """Which turn of ours each turn of a sub-agent goes back to, and which still run."""

    _roots: OrderedDict[str, str] = field(factory=OrderedDict[str, str])
    _latest: dict[str, str] = field(factory=dict[str, str])  # thread -> turn
    _running: set[str] = field(factory=set[str])  # turns

    def root(self, turn: str) -> str | None:
        return self._roots.get(turn)

    def threads(self, root: str) -> list[str]:
        """Name the threads that work, or worked last, for this turn of ours."""
        return [k for k, t in self._latest.items() if self._roots.get(t) == root]

    def running(self, root: str | None = None) -> list[tuple[str, str]]:
        """Name the threads and turns that still work, for this turn of ours or any."""
        return [
            (thread, turn)
            for thread, turn in self._latest.items()
            if turn in self._running and root in (None, self._roots.get(turn))
        ]

    def receive(
        self, event: Notification, ours: Callable[[str], bool]
    ) -> list[RuntimeEvent]:
        """Say what a notification of another thread than ours means."""
        thread = jsonfields.text(event.params, "threadId")
        turn = wire.turn_id(event.params)
        if event.method == wire.TURN_STARTED:
            return self._started(thread, turn, event.params, ours)
        root = self._roots.get(turn)
        if root is None:
            return []
        if event.method == wire.TURN_COMPLETED:
            self._running.discard(turn)
            return [Noticed("a sub-agent's turn ended", f"{thread} {turn}")]
        return self._tool(TurnRef(root), thread, event)

    def _started(
        self, thread: str, turn: str, params: JsonObject, ours: Callable[[str], bool]
    ) -> list[RuntimeEvent]:
        said = jsonfields.text(jsonfields.mapping(params, "turn"), "rootTurnId")
        root = said if ours(said) else self._roots.get(said)
        if root is None:
            return [Noticed("a turn of an unknown thread", f"{thread} {turn}")]
        self._roots[turn] = root
        if len(self._roots) > MOST_REMEMBERED:
            self._roots.popitem(last=False)
        self._latest[thread] = turn
        self._running.add(turn)
        return [Noticed("a sub-agent's turn started", f"{thread} {turn}")]

    def _tool(
        self, root: TurnRef, thread: str, event: Notification
    ) -> list[RuntimeEvent]:
        item = jsonfields.mapping(event.params, "item")
        if item.get("type") not in wire.TOOLS:
            return []
        if event.method == wire.ITEM_STARTED:
            return [tool_started(root, item, thread)]
        if event.method == wire.ITEM_COMPLETED:
            return [tool_ended(root, item, thread)]
        return []
