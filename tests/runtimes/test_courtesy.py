"""Who has much to do rests only where somebody else wants to run."""

from __future__ import annotations

import time

import trio
import trio.testing
from attrs import define

from agentteam_runtimes import courtesy
from agentteam_runtimes.courtesy import give_way

LONG = 30.0


@define(eq=False)
class Thread:
    owes: bool = True


async def test_nobody_there_is_nobody_waited_for() -> None:
    began = time.perf_counter()
    await give_way(LONG)
    assert time.perf_counter() - began < LONG / 2


async def test_tasks_that_never_rest_get_their_time() -> None:
    async def work() -> None:
        while True:
            time.sleep(0.001)  # noqa: ASYNC251 - this is its work
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        began = time.perf_counter()
        await give_way(0.05)
        assert time.perf_counter() - began >= 0.05
        nursery.cancel_scope.cancel()


async def test_a_thread_that_owes_something_gets_the_interpreter_until_it_is_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    thread = Thread()
    courtesy.respect(thread)

    async def finish() -> None:
        await trio.sleep(1)
        thread.owes = False

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish)
            began = trio.current_time()
            await give_way(LONG)
            assert trio.current_time() - began >= 1


async def test_a_worker_thread_gets_the_interpreter() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, time.sleep, 0.05)
        await trio.lowlevel.checkpoint()
        began = time.perf_counter()
        await give_way(LONG)
        assert 0.03 < time.perf_counter() - began < LONG / 2
