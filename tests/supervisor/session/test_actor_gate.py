"""Effects that wait leave after their records, in order; deadlines fire by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.memory_journal import MemoryCommit

if TYPE_CHECKING:
    from agentteam_supervisor.session.events import DeadlinePassed
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.errors import JournalUnwritable
from agentteam_supervisor.session.deadlines import Deadlines, Limits
from agentteam_supervisor.session.effects import Effect, Reply
from agentteam_supervisor.session.gate import DurableGate


def _refs(effects: list[Effect]) -> list[int]:
    return [effect.ref for effect in effects if isinstance(effect, Reply)]


async def test_effects_leave_in_order_behind_their_own_records() -> None:
    done: list[Effect] = []
    gate = DurableGate(done.append)
    first, second = MemoryCommit(), MemoryCommit()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gate.run)
            gate.add(Reply(0))  # nothing was recorded: at once
            assert _refs(done) == [0]
            gate.note(first)
            gate.add(Reply(1))
            gate.note(second)
            gate.add(Reply(2))
            gate.add(Reply(3))
            await wait_all_tasks_blocked()
            assert _refs(done) == [0]
            first.settle()
            await wait_all_tasks_blocked()
            assert _refs(done) == [0, 1]
            gate.add(Reply(4))
            second.settle()
            await wait_all_tasks_blocked()
            assert _refs(done) == [0, 1, 2, 3, 4]
            gate.add(Reply(5))
            assert _refs(done) == [0, 1, 2, 3, 4, 5]
            nursery.cancel_scope.cancel()


async def test_failed_commit_lets_nothing_through_and_is_noticed_by_itself() -> None:
    done: list[Effect] = []
    gate = DurableGate(done.append)
    commit = MemoryCommit()
    gate.note(commit)
    gate.add(Reply(1))
    commit.settle(JournalUnwritable("disk full"))
    with trio.fail_after(5), pytest.raises(JournalUnwritable):
        await gate.run()
    assert done == []
    lonely = DurableGate(done.append)
    lonely.note(commit)
    with trio.fail_after(5), pytest.raises(JournalUnwritable):
        await lonely.run()


async def test_deadline_fires_once_at_the_earlier_time_and_not_after_clear(
    autojump_clock: MockClock,
) -> None:
    passed: list[tuple[str, float]] = []
    deadlines = Deadlines(
        Limits(interrupt=5, sweep=3, kill=None),
        lambda e: passed.append((e.name, trio.current_time())),
        lambda: False,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        deadlines.set("interrupt")
        deadlines.set("sweep")
        deadlines.set("kill")  # never
        await trio.sleep(2)
        deadlines.set("interrupt")
        deadlines.clear("sweep")
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert passed == [("interrupt", 5.0)]


async def test_deadline_that_another_one_clears_in_the_same_moment_never_comes(
    autojump_clock: MockClock,
) -> None:
    passed: list[str] = []

    def passing(event: DeadlinePassed) -> None:
        passed.append(event.name)
        deadlines.clear("sweep")

    deadlines = Deadlines(
        Limits(interrupt=5, sweep=5),
        passing,
        lambda: False,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        deadlines.set("interrupt")
        deadlines.set("sweep")
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert passed == ["interrupt"]
