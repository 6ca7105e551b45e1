"""The service itself: start, description, health, words for failures, and the end."""

from __future__ import annotations

import re
import resource
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from tests.kit.daemon_peer import open_daemon
from tests.kit.server import open_server

from agentteam_supervisor.server.app import run_server
from agentteam_supervisor.server.config import ServerConfig
from agentteam_supervisor.server.http import PortInUse
from agentteam_supervisor.server.openapi import DESCRIPTION
from agentteam_supervisor.server.routes import HTTP, build_app, http_routes
from agentteam_supervisor.server.shapes import SCHEMAS
from agentteam_supervisor.server.store import StateUnusable
from agentteam_supervisor.server.writer import StoreUnwritable

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.websockets import WebSocket
    from tests.kit.server import RunningServer

    from agentteam_supervisor.server.commands import Services


@pytest.mark.bug("B12")
async def test_port_in_use_is_a_clear_error_and_nothing_is_half_started(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = ServerConfig(tmp_path / "state", port=taken.getsockname()[1])
        with pytest.raises(PortInUse) as caught:
            await run_server(config)
        assert str(config.port) in caught.value.problem
        assert "--port" in caught.value.what_to_do
        assert not (tmp_path / "state").exists()


async def test_bad_state_directory_leaves_the_port_free(tmp_path: Path) -> None:
    config = ServerConfig(tmp_path, port=0)
    config.database.write_bytes(b"not a database" * 100)
    with pytest.raises(StateUnusable):
        await run_server(config)


async def test_address_beyond_loopback_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match="not a loopback"):
        await run_server(ServerConfig(tmp_path, host="0.0.0.0", port=0))


async def test_description_names_every_route_that_is_served(
    server: RunningServer,
) -> None:
    described = await server.get("/openapi.json")
    assert described == DESCRIPTION
    served = {
        (route.path, method.lower())
        for route in http_routes()
        for method in route.methods or ()
        if method != "HEAD"
    }
    documented = {
        (path, method) for path, ms in described["paths"].items() for method in ms
    }
    assert documented == served
    assert len(HTTP) == len(served)


@pytest.mark.parametrize(
    ("method", "path", "described", "body", "status"),
    [
        ("GET", "/api/agents?limit=0", "/api/agents", None, 422),
        ("GET", "/api/agents/nobody", "/api/agents/{agent}", None, 404),
        ("POST", "/api/agents", "/api/agents", "[]", 400),
        ("POST", "/api/agents", "/api/agents", "{}", 422),
        ("POST", "/api/agents", "/api/agents", '{"name":"ada","runtime":"r"}', 409),
        (
            *("GET", "/api/agents/ada/journal", "/api/agents/{agent}/journal"),
            *(None, 503),
        ),
        (
            *("POST", "/api/agents/ada/interventions"),
            *("/api/agents/{agent}/interventions", '{"method":"when_idle"}', 200),
        ),
    ],
)
async def test_description_knows_what_a_call_is_answered(
    method: str,
    path: str,
    described: str,
    body: str | None,
    status: int,
    server: RunningServer,
) -> None:
    await server.agent()
    headers = {} if body is None else {"Content-Type": "application/json"}
    answer = await server.client.request(method, path, content=body, headers=headers)
    assert answer.status_code == status
    responses = DESCRIPTION["paths"][described][method.lower()]["responses"]
    kind = answer.headers["content-type"]
    assert kind in responses[str(status)]["content"]


def test_description_refers_only_to_schemas_that_are_there() -> None:
    references = re.findall(r"#/components/schemas/(\w+)", str(DESCRIPTION))
    assert set(references) <= set(SCHEMAS)


def _matches(value: Any, schema: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return value in schema["enum"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        return "null" in kinds
    if isinstance(value, dict):
        properties = schema.get("properties")
        return "object" in kinds and (
            properties is None
            or (
                set(schema.get("required", ())) <= set(value) <= set(properties)
                and all(_matches(v, properties[k]) for k, v in value.items())
            )
        )
    if isinstance(value, list):
        return "array" in kinds and all(_matches(v, schema["items"]) for v in value)
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return names[type(value)] in kinds


async def test_answers_have_the_shape_that_is_described(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        message = await server.say("@ada", "one")
        await daemon.run(agent["id"], "run_1")
        shown = {
            "Agent": await server.get("/api/agents/ada"),
            "Target": (await server.get("/api/targets"))["targets"][0],
            "Message": message,
            "Delivery": message["deliveries"][0],
            "Run": (await server.get("/api/agents/ada/runs"))["runs"][0],
            "Problem": await server.post("/api/targets", {}, 422),
        }
    for name, value in shown.items():
        value.pop("field", None)
        assert _matches(value, SCHEMAS[name]), (name, value)


async def test_health_readiness_and_numbers(server: RunningServer) -> None:
    assert await server.get("/healthz") == {"status": "ok"}
    ready = await server.get("/readyz")
    assert ready == {"status": "ready", "daemon": {"connected": False}}
    await server.agent()
    await server.say("@ada", "one")
    text = (await server.client.get("/metrics")).text
    assert 'agentteam_deliveries{state="queued"} 1' in text
    assert "agentteam_agents 1" in text


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/api/agents/", 404, "not_found"),
        ("DELETE", "/api/targets", 405, "method_not_allowed"),
        ("GET", "/api/agents/ada/control", 405, "method_not_allowed"),
        ("GET", "/api/agents/ada", 404, "unknown_agent"),
        ("GET", "/api/agents/ada/activity", 404, "unknown_agent"),
        ("GET", "/api/agents/ada/runs", 404, "unknown_agent"),
        ("GET", "/api/agents/ada/journal", 404, "unknown_agent"),
        ("DELETE", "/api/agents/ada", 404, "unknown_agent"),
        ("GET", "/api/messages/msg_1", 404, "unknown_message"),
    ],
)
async def test_what_is_not_there_is_a_problem_with_what_to_do(
    method: str, path: str, status: int, slug: str, server: RunningServer
) -> None:
    answer = await server.client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["type"], problem["status"]) == (slug, status)
    assert problem["detail"]


async def test_full_disk_is_a_clear_error_and_the_server_goes_on(
    server: RunningServer,
) -> None:
    await server.agent()
    wal = server.state_dir / "server.sqlite3-wal"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    body = {"body": "x" * 500_000}
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, before[1]))
    try:
        problem = await server.post("/api/targets/@ada/messages", body, 507)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        unready = await server.client.get("/readyz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (unready.status_code, unready.json()["type"]) == (503, "store_unwritable")
    assert "sqlalche.me" not in problem["detail"] + unready.text
    assert (await server.client.get("/readyz")).status_code == 200
    assert problem["type"] == "store_unwritable"
    assert "disk" in problem["detail"]
    assert (await server.get("/api/targets/@ada/messages"))["head"] == 0
    assert (await server.post("/api/targets/@ada/messages", body))["targetSeq"] == 1


async def test_one_connection_may_make_many_requests(server: RunningServer) -> None:
    for _ in range(1010):
        answer = await server.client.get("/healthz")
        assert answer.headers.get("connection") != "close"


async def test_waiting_requests_are_answered_when_the_server_goes_down(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, grace=5) as server:
        await server.agent()
        message = await server.say("@ada", "one")
        path = f"/api/deliveries/{message['deliveries'][0]['id']}?wait=60"
        found: list[Any] = []

        async def wait() -> None:
            found.append(await server.get(path))

        async with trio.open_nursery() as nursery, open_daemon(server.port):
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            started = trio.current_time()
            server.stop()
            with trio.fail_after(5):
                await server.stopped.wait()
            assert trio.current_time() - started < 2
        assert found[0]["state"] == "queued"


async def test_port_can_be_taken_again_at_once(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        await server.get("/healthz")
        port = server.port
    async with open_server(tmp_path, port=port) as server:
        await server.get("/healthz")


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_link_that_fails_is_closed_as_a_link(grouped: bool) -> None:
    """An answer of HTTP on an accepted WebSocket is an error of its own."""

    class Full:
        async def serve(self, websocket: WebSocket) -> None:
            await websocket.accept()
            error = StoreUnwritable("the disk is full")
            raise ExceptionGroup("both", [error]) if grouped else error

    parts = SimpleNamespace(config=SimpleNamespace(max_body=1), link=Full())
    app = build_app(cast("Services", parts))
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "websocket", "path": "/link", "headers": headers}
    await app(scope, receive, send)
    assert sent == ["websocket.accept", "websocket.close"]
