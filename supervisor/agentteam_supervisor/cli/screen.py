"""A terminal's view of the stream of events: names for ids, words that flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.lines import (
    activity_line,
    approval_line,
    delivery_line,
    message_line,
)
from agentteam_supervisor.cli.output import clean
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from agentteam_supervisor.cli.event_stream import Event

# write(text, style): without a line end of its own.
Write = Callable[[str, str], None]

STYLES = {
    "message": "bold",
    "delivery": "dim",
    "activity": "cyan",
    "approval": "yellow",
    "gap": "red",
}


class Screen:
    """
    Prints events as they come.

    Streaming words of one run stay on one line until something else happens. Names
    are learnt from the events that bear them; what has no name shows its id.
    """

    def __init__(self, write: Write, names: dict[str, str]) -> None:
        self._write = write
        self._names = names
        self._flowing: str | None = None
        self._statuses: dict[str, str] = {}

    def show(self, event: Event) -> bool:
        """Print an event; tells whether there was something to print."""
        if event.name == "activity" and event.data.get("kind") == "progress":
            self._flow(event.data)
            return True
        line = self._line(event)
        if line is None:
            return False
        self.end_line()
        self._write(f"{line}\n", STYLES.get(event.name, ""))
        return True

    def end_line(self) -> None:
        if self._flowing is not None:
            self._write("\n", "")
            self._flowing = None

    def _flow(self, item: dict[str, Any]) -> None:
        run = str(item.get("runId"))
        if run != self._flowing:
            self.end_line()
            self._write(f"{self._name(item.get('agentId'))} ... ", "cyan")
            self._flowing = run
        self._write(clean(str(item.get("text", ""))), "")

    def _line(self, event: Event) -> str | None:
        data = event.data
        match event.name:
            case "message":
                return message_line(data, self._name(data.get("target")))
            case "delivery":
                return f"{self._name(data.get('agentId'))}: {delivery_line(data)}"
            case "activity":
                return f"{self._name(data.get('agentId'))}: {activity_line(data)}"
            case "approval":
                return f"{self._name(data.get('agentId'))}: {approval_line(data)}"
            case "agent":
                return self._status(data)
            case "gap":
                return say(
                    "(some events were missed; `agentteam messages` has the messages)",
                    "（有事件遗漏；消息请用 `agentteam messages` 查看）",
                )
            case _:
                return None

    def _status(self, agent: dict[str, Any]) -> str | None:
        """Say the status of an agent, or its problem, only where that is news."""
        self._names[str(agent.get("id"))] = str(agent.get("name"))
        target = part(agent, "target")
        if "name" in target:
            self._names[str(target["id"])] = str(target["name"])
        problem = part(agent, "problem")
        status = clean(str(problem.get("problem", agent.get("status"))))
        if self._statuses.get(str(agent.get("id"))) == status:
            return None
        self._statuses[str(agent.get("id"))] = status
        return f"{agent.get('name')}: {status}"

    def _name(self, id: Any) -> str:
        return self._names.get(str(id), str(id))
