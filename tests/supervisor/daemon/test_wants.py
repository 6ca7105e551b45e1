"""What an agent could not start for is looked for again, and its problem is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.roster_stage import A, B, grant, staged

from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.errors import RuntimeFailure, RuntimeMissing
from agentteam_protocol.frames import ActivityReported
from agentteam_protocol.ids import AgentId
from agentteam_protocol.journal import RunProblem
from agentteam_supervisor.daemon.wants import Wants

if TYPE_CHECKING:
    from pathlib import Path


MISSING = RuntimeMissing("there is no program codex", "install it")


@pytest.mark.parametrize("later", [None, RuntimeFailure("it is not logged in")])
async def test_it_is_looked_for_until_it_is_there(
    autojump_clock: trio.testing.MockClock, later: RuntimeFailure | None
) -> None:
    wants, looks, found = Wants(3.0), list[float](), list[AgentId]()
    wants.add(A)
    wants.add(B)
    wants.drop(B)  # it has started meanwhile

    async def look(agent: AgentId) -> None:
        looks.append(trio.current_time())
        if len(looks) < 4:
            raise MISSING
        if later is not None:
            raise later

    with trio.move_on_after(100):
        await wants.keep_looking(look, found.append)
    assert found == [A]
    assert len(looks) == 4  # and nothing is looked for any more
    assert 9 <= looks[-1] - looks[0] <= 10


async def test_a_mended_agent_forgets_its_problem_and_says_so(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant())
        first = stage.actor()
        why = Diagnostic("there is no program codex", "install it")
        stage.journal.append(A, [RunProblem(why)])
        await stage.settle()
        seat = stage.roster.seat(A)
        assert seat is not None
        seat.mended()
        await stage.settle()
        assert stage.actor() is not first
        assert stage.actor().session.ledger.problem is None
        told = [f.words for f in await stage.told() if isinstance(f, ActivityReported)]
        assert any("there now" in str(words) for words in told)
