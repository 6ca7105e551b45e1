"""A link whose network is gone, though no transport says so, ends on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.deaf_proxy import DeafProxy
from tests.kit.server import open_server

from agentteam_supervisor.daemon.app import run_daemon
from agentteam_supervisor.daemon.config import DaemonConfig
from agentteam_supervisor.daemon.dialing import LinkLimits

if TYPE_CHECKING:
    from pathlib import Path

BEAT = 0.1
SILENCE = 0.5

pytestmark = pytest.mark.slow


def connected(agent: Any) -> bool:
    return bool(agent["daemon"]["connected"])


@pytest.mark.bug("B20")
async def test_a_daemon_whose_network_fell_silent_counts_as_gone(
    tmp_path: Path,
) -> None:
    limits = LinkLimits(beat=BEAT, handshake=0.5, longest_pause=0.2)
    config = DaemonConfig(tmp_path / "daemon", link=limits)
    async with (
        open_server(tmp_path / "server", daemon_silence=SILENCE) as server,
        trio.open_nursery() as nursery,
    ):
        proxy = DeafProxy(server.port)
        await nursery.start(proxy.run)
        await nursery.start(run_daemon, config, f"http://127.0.0.1:{proxy.port}")
        await server.agent()
        # An idle link speaks often enough.
        with trio.move_on_after(3 * SILENCE):
            await server.until("/api/agents/ada", lambda a: not connected(a))
        assert connected(await server.get("/api/agents/ada"))
        proxy.deaf = True
        began = trio.current_time()
        await server.until("/api/agents/ada", lambda a: not connected(a))
        assert trio.current_time() - began < 10 * SILENCE
        proxy.deaf = False
        await server.until("/api/agents/ada", connected)
        nursery.cancel_scope.cancel()
