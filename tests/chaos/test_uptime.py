"""A Stop is not charged for what kept the product, and for each moment once."""

from __future__ import annotations

import trio

from agentteam_supervisor.chaos.uptime import Uptime


async def test_time_is_lost_once_however_many_things_keep_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    uptime = Uptime()
    began = uptime.now()
    await trio.sleep(1)
    uptime.stop()
    await trio.sleep(2)
    with uptime.kept():
        await trio.sleep(3)
        assert uptime.now() - began == 1
    await trio.sleep(4)
    uptime.go_on()
    await trio.sleep(5)
    assert uptime.now() - began == 6
