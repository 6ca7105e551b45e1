"""What the threads of the program share. Standard library only."""

from __future__ import annotations

import itertools
import threading

from agentteam_runtimes.rehearsal.habits import Habits
from agentteam_runtimes.rehearsal.script import (
    ScriptError,
    Step,
    complain,
    parse_turns,
    plan_bodies,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentteam_runtimes.rehearsal.outlet import Outlet
    from agentteam_runtimes.rehearsal.record import Record
    from agentteam_runtimes.rehearsal.shells import Shell

AFTER_THE_SCRIPT = "The script has no further turn."


class Turn:
    """One turn: what is left to play, and what was accepted and not yet read."""

    def __init__(self, id: str, batch: str, bodies: dict[str, str]) -> None:
        self.id = id
        self.batch = batch
        self.unread = list(bodies)  # keys of the batch
        self.waiting: dict[str, str] = {}  # bodies of steers by key, in order
        self.unsigned: list[str] = []  # read without a sign
        self.plan: list[Step] = []
        self.late: list[Step] = []
        self.text = ""
        self.interrupted = False
        self.closing = False  # the last look at what waits is over


class Stage:
    """
    The state of one session's process.

    `changed` guards all of it. Whoever holds it may write to the outlet, never the
    other way round.
    """

    def __init__(
        self, outlet: Outlet, record: Record, config: dict[str, Any], agent: str
    ) -> None:
        self.outlet = outlet
        self.record = record
        self.config = config
        self.agent = agent
        self.habits = Habits()
        self.changed = threading.Condition(threading.RLock())
        self.turn: Turn | None = None
        self.maintaining: object | None = None  # the task that runs
        self.shells: set[Shell] = set()
        self.stdin_closed = False
        self.wake: Callable[[], None] = lambda: None  # makes the reader look again
        self._replies: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    def name(self, kind: str) -> str:
        """Name an ask or a call: unique in this process, and in no other."""
        return f"{kind}-{next(self._numbers)}"

    def plan_turn(self, number: int, bodies: list[str]) -> list[Step]:
        """Plan a turn: from the script of the session if it has one."""
        if "script" not in self.config:
            return plan_bodies(bodies)
        try:
            turns = parse_turns(self.config["script"])
        except ScriptError as exc:
            return [complain(str(exc))]
        if number > len(turns):
            return [Step("say", AFTER_THE_SCRIPT, {"ms": 0})]
        return turns[number - 1]

    def plan_steer(self, body: str) -> list[Step]:
        """Plan what an entry adds to its turn; a scripted session reads no body."""
        return [] if "script" in self.config else plan_bodies([body])

    def expect(self, name: str) -> None:
        """Open a question to the host; replies to others are ignored."""
        with self.changed:
            self._replies[name] = None

    def settle(self, name: str, reply: Any) -> None:
        """Take the host's first reply to an open question."""
        with self.changed:
            if name in self._replies and self._replies[name] is None:
                self._replies[name] = reply
                self.changed.notify_all()

    def reply_to(self, name: str) -> Any:
        """Return the reply, or None while there is none."""
        return self._replies.get(name)

    def forget(self, name: str) -> None:
        """Close a question, answered or not."""
        with self.changed:
            self._replies.pop(name, None)

    def kill_shells(self) -> None:
        """End the tools; what was spawned stays."""
        for shell in tuple(self.shells):
            shell.kill()
