"""One line per thing that happened, as `watch`, `send` and `urgent` print it."""

from __future__ import annotations

from typing import Any

from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.output import clean
from agentteam_supervisor.cli.speech import say

SETTLED = frozenset(
    {"surfaced", "failed", "blocked", "cancelled", "superseded", "unknown"}
)


def message_line(message: dict[str, Any], target: str) -> str:
    """`target` is what the person calls it."""
    author = part(message, "author")
    head = f"[{target} {message['targetSeq']}] {author.get('name', '?')}"
    return f"{head}: {clean(str(message['body']))}"


def delivery_line(delivery: dict[str, Any]) -> str:
    """Say the state and what proves or explains it, with what a person can do."""
    line = f"{delivery['id']} {delivery['state']}"
    if evidence := delivery.get("evidence"):
        line += f" ({evidence['kind']})"
    if diagnostic := delivery.get("diagnostic"):
        line += f": {problem_line(diagnostic)}"
    return line


def problem_line(problem: dict[str, Any]) -> str:
    """Say a diagnostic: what is wrong, and what a person can do."""
    return clean(f"{problem['problem']}; {problem['whatToDo']}")


def activity_line(item: dict[str, Any]) -> str:
    return clean(str(item.get("text", "")))


def approval_line(approval: dict[str, Any]) -> str:
    line = f"{approval['id']} {approval['toolName']}"
    if reason := approval.get("reason"):
        line += f" ({clean(str(reason))})"
    if approval.get("state", "pending") != "pending":
        return f"{line}: {approval['state']}"
    todo = f"agentteam approve {approval['id']}"
    return f"{line}: " + say(f"decide with `{todo}`", f"请运行 `{todo}`")
