"""One effect per Idempotency-Key, also at the same time and after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from sqlalchemy import func, select
from tests.kit.daemon_peer import open_daemon
from tests.kit.server import open_server

from agentteam_supervisor.server.idempotency import KEPT, Reply, make_key, once
from agentteam_supervisor.server.schema import idempotency
from agentteam_supervisor.server.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.server import RunningServer

    from agentteam_supervisor.server.transaction import Tx


async def head(server: RunningServer) -> int:
    return int((await server.get("/api/targets/@ada/messages"))["head"])


@pytest.mark.req("R6", "R132")
@pytest.mark.bug("B36")
async def test_repeat_gives_the_first_answer_and_no_second_effect(
    server: RunningServer,
) -> None:
    await server.agent()
    path, key = "/api/targets/@ada/messages", "k1"
    first = await server.post(path, {"body": "one"}, Idempotency_Key=key)
    async with open_daemon(server.port) as daemon:
        await daemon.surface(await daemon.deliver())
    # The same answer as before, although the delivery has gone on since.
    again = await server.post(path, {"body": "one"}, Idempotency_Key=key)
    assert again == first
    assert await head(server) == 1


@pytest.mark.req("R6", "R132")
@pytest.mark.bug("B36")
async def test_five_at_the_same_time_are_one(server: RunningServer) -> None:
    await server.agent()
    message = await server.say("@ada", "one")
    found: list[Any] = []

    async def mark() -> None:
        path = f"/api/messages/{message['id']}/agent-delivery"
        body = {"interruptPolicy": "interrupt_current_run"}
        found.append(await server.post(path, body, 202, Idempotency_Key="k1"))

    async def send() -> None:
        path = "/api/targets/@ada/messages"
        found.append(
            (await server.post(path, {"body": "two"}, Idempotency_Key="k1"))["id"]
        )

    for action in (mark, send):
        found.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(action)
        assert found == [found[0]] * 5
    assert await head(server) == 2
    shown = await server.get(f"/api/messages/{message['id']}")
    assert len(shown["deliveries"]) == 2


@pytest.mark.bug("B36")
async def test_key_holds_after_a_restart(tmp_path: Path) -> None:
    path = "/api/targets/@ada/messages"
    async with open_server(tmp_path) as server:
        await server.agent()
        first = await server.post(path, {"body": "one"}, Idempotency_Key="k1")
    async with open_server(tmp_path) as server:
        again = await server.post(path, {"body": "one"}, Idempotency_Key="k1")
        assert again == first
        assert await head(server) == 1


@pytest.mark.req("R6")
@pytest.mark.bug("B36")
async def test_same_key_with_another_body_is_a_conflict(server: RunningServer) -> None:
    await server.agent()
    path = "/api/targets/@ada/messages"
    await server.post(path, {"body": "one"}, Idempotency_Key="k1")
    problem = await server.post(path, {"body": "two"}, 409, Idempotency_Key="k1")
    assert problem["type"] == "idempotency_conflict"
    assert await head(server) == 1


async def test_key_belongs_to_one_method_and_path(server: RunningServer) -> None:
    await server.agent("ada")
    await server.agent("eve")
    for target in ("@ada", "@eve"):
        path = f"/api/targets/{target}/messages"
        await server.post(path, {"body": "one"}, Idempotency_Key="k1")
    assert (await server.get("/api/targets/@eve/messages"))["head"] == 1


async def test_refusal_does_not_use_the_key_up(server: RunningServer) -> None:
    path, key = "/api/targets/@ada/messages", "k1"
    await server.post(path, {"body": "one"}, 404, Idempotency_Key=key)
    await server.agent()
    await server.post(path, {"body": "one"}, 201, Idempotency_Key=key)


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_bad_key_is_refused(key: str, server: RunningServer) -> None:
    await server.agent()
    path = "/api/targets/@ada/messages"
    problem = await server.post(path, {"body": "x"}, 422, Idempotency_Key=key)
    assert problem["type"] == "invalid_idempotency_key"


@pytest.mark.bug("B36")
async def test_keys_are_forgotten_after_a_day(tmp_path: Path) -> None:
    calls: list[int] = []

    def command(_: Tx) -> Reply:
        calls.append(1)
        return Reply(201, {"calls": len(calls)})

    async with open_store(tmp_path / "s.db") as store:

        async def call(name: str, now: float) -> Any:
            key = make_key("POST", "/x", name, {})
            reply = await store.write(lambda tx: once(tx, key, command, now))
            return reply.body["calls"]

        assert await call("k1", 0) == 1
        assert await call("k1", KEPT - 1) == 1
        assert await call("k2", KEPT) == 2
        rows = await store.read(
            lambda tx: tx.scalar(select(func.count()).select_from(idempotency))
        )
        assert rows == 1
        assert await call("k1", KEPT) == 3
