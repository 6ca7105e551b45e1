"""The processes of one incarnation, in the words of the driver contract."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attrs import asdict, frozen

from agentteam_runtimes.driver import Survivor
from agentteam_runtimes.incarnation import Incarnation
from agentteam_runtimes.process_tree import ProcessIdentity, TreeIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentteam_runtimes.process_tree import TreeProcess


# Whoever waits for it does so for 2 s, and wants to hear who survived. A warden that
# does not take the order has half a second before it is done without it.
KILL_SECONDS = 1.0


@frozen
class Contained:
    """The `Containment` of a runtime that runs as an incarnation."""

    incarnation: Incarnation

    @property
    def identity(self) -> str:
        return json.dumps(asdict(self.incarnation.identity))

    def mark(self) -> int:
        return self.incarnation.mark()

    def alone(self) -> bool:
        return self.incarnation.alone

    async def sweep(self, born_after: int) -> Sequence[Survivor]:
        swept = await self.incarnation.sweep(born_after)
        return _survivors(swept.survivors)

    async def terminate(self) -> None:
        await self.incarnation.terminate()

    async def kill(self) -> Sequence[Survivor]:
        return _survivors(await self.incarnation.kill(KILL_SECONDS))


def read_identity(text: str) -> TreeIdentity | None:
    """Read what `identity` wrote; None for what somebody else wrote."""
    try:
        named = json.loads(text)
        return TreeIdentity(
            ProcessIdentity(**named["warden"]),
            ProcessIdentity(**named["runtime"]),
            str(named["boot"]),
            str(named.get("cgroup", "")),
        )
    except (ValueError, TypeError, KeyError):
        return None


def _survivors(processes: Iterable[TreeProcess]) -> list[Survivor]:
    return [Survivor(p.pid, p.ticks, str(p)) for p in processes]
