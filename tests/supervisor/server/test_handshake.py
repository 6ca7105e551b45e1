"""Who is let in by the link, and what the others are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from tests.kit.daemon_peer import DaemonState, RefusedByServer, open_daemon, open_link
from tests.kit.server import open_server
from trio_websocket import ConnectionClosed

from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.frames import AgentGranted, Envelope, Refused
from agentteam_protocol.ids import DaemonId

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.server import RunningServer


async def test_other_version_is_refused_with_what_to_do(server: RunningServer) -> None:
    hello = attrs.evolve(DaemonState().hello(), version=99)
    with pytest.RaisesGroup(RefusedByServer, allow_unwrapped=True) as caught:
        async with open_daemon(server.port, hello=hello):
            pass
    refused = _refused(caught.value)
    assert "99" in refused.problem
    assert refused.what_to_do


@pytest.mark.bug("B12")
async def test_second_daemon_is_refused_by_the_name_of_the_first(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port, DaemonState(name="laptop")) as first:
        other = DaemonState(daemon=DaemonId("dmn_two"), name="desktop")
        with pytest.RaisesGroup(RefusedByServer, allow_unwrapped=True) as caught:
            async with open_daemon(server.port, other):
                pass
        refused = _refused(caught.value)
        assert "laptop" in refused.problem
        assert "dmn_one" in refused.problem
        # The first one is not disturbed.
        await server.agent()
        await first.take(AgentGranted)


@pytest.mark.parametrize(
    "text", ["hello", "{}", '{"frames": [{"kind": "link:receipt"}]}', "[1]"]
)
async def test_connection_that_does_not_begin_with_hello_is_refused(
    text: str, server: RunningServer
) -> None:
    async with open_link(server.port) as websocket:
        await websocket.send_message(text)
        (frame,) = decode_envelope(await websocket.get_message()).frames
        assert isinstance(frame, Refused)
        with pytest.raises(ConnectionClosed):
            await websocket.get_message()


async def test_a_server_that_goes_down_says_so_and_refuses_nobody(
    server: RunningServer,
) -> None:
    async with open_link(server.port) as websocket:
        server.stop()
        await trio.testing.wait_all_tasks_blocked(0.05)
        hello = encode_envelope(Envelope((DaemonState().hello(),))).decode()
        await websocket.send_message(hello)
        with pytest.raises(ConnectionClosed) as closed:
            await websocket.get_message()
    assert closed.value.reason is not None
    assert closed.value.reason.code == 1001
    assert closed.value.reason.reason == "the server is going down"


async def test_silent_connection_is_ended(tmp_path: Path) -> None:
    async with open_server(tmp_path, handshake_timeout=0.05) as server:
        with trio.fail_after(5):
            async with open_link(server.port) as websocket:
                (frame,) = decode_envelope(await websocket.get_message()).frames
                assert isinstance(frame, Refused)


def _refused(error: BaseException) -> Refused:
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, RefusedByServer)
    return error.refused
