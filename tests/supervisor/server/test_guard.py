"""Who may talk to the server: checked on every route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_supervisor.server.routes import HTTP

if TYPE_CHECKING:
    from tests.kit.server import RunningServer

PATHS = sorted({(method, path) for method, path, _ in HTTP})


@pytest.mark.parametrize(
    ("header", "value", "slug"),
    [
        ("Host", "evil.example", "foreign_host"),
        ("Host", "127.0.0.1.evil.example:80", "foreign_host"),
        ("Origin", "http://evil.example", "foreign_origin"),
        ("Origin", "null", "foreign_origin"),
        ("Origin", "http://localhost:1", "foreign_origin"),
    ],
)
async def test_foreign_names_are_refused_on_every_route(
    header: str, value: str, slug: str, server: RunningServer
) -> None:
    headers = {header: value, "Content-Type": "application/json"}
    for method, path in PATHS:
        answer = await server.client.request(method, path, headers=headers)
        assert answer.status_code == 403, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == slug


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
async def test_own_names_and_the_own_origin_pass(
    host: str, server: RunningServer
) -> None:
    name = f"{host}:{server.port}"
    headers = {"Host": name, "Origin": f"http://{name}"}
    answer = await server.client.get("/api/agents", headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [("Host", "evil.example"), ("Origin", "http://evil.example"), ("X-Nothing", "")],
)
async def test_foreign_names_are_refused_on_the_websocket(
    header: tuple[str, str], server: RunningServer
) -> None:
    names = {"Host": f"127.0.0.1:{server.port}", **dict([header])}
    head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
    request = (
        "GET /link HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"{head}\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all(request.encode())
        answer = await stream.receive_some()
    status = 403 if header[1] != "" else 101
    assert answer.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", ""]
)
async def test_bodies_that_are_not_called_json_are_refused(
    kind: str, server: RunningServer
) -> None:
    for method, path, _ in HTTP:
        if method in {"POST", "PATCH"}:
            answer = await server.client.request(
                method, path, content=b"{}", headers={"Content-Type": kind}
            )
            assert answer.status_code == 415, path
            assert answer.json()["type"] == "unsupported_media_type"


@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_are_bounded(chunked: bool, server: RunningServer) -> None:
    await server.agent()
    body = b'{"body": "' + b"x" * (1024 * 1024) + b'"}'

    async def chunks() -> object:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    answer = await server.client.post(
        "/api/targets/@ada/messages",
        content=chunks() if chunked else body,  # type: ignore[arg-type] # bytes in the end
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 413
    assert answer.json()["type"] == "body_too_large"
    assert (await server.get("/api/targets/@ada/messages"))["head"] == 0
