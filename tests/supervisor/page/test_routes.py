"""The page's files, over the real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.daemon_peer import DaemonState, open_daemon

if TYPE_CHECKING:
    from tests.kit.server import RunningServer


async def test_page_loads_from_this_host_alone(server: RunningServer) -> None:
    answer = await server.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "//" not in answer.text.replace("<!doctype html>", "")


async def test_every_module_that_a_module_names_is_served(
    server: RunningServer,
) -> None:
    seen: set[str] = set()
    todo = ["page.js"]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        answer = await server.client.get(f"/page/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["x-content-type-options"] == "nosniff"
        todo += [part.split('"')[0] for part in answer.text.split('from "./')[1:]]
    assert len(seen) > 15


async def test_nothing_else_can_be_asked_for(server: RunningServer) -> None:
    for path in ("/page/", "/page/routes.py", "/page/../app.py", "/page/%2e%2e/x"):
        assert (await server.client.get(path)).status_code == 404


@pytest.mark.bug("B14")
async def test_message_of_an_agent_comes_as_clean_html(server: RunningServer) -> None:
    await server.agent()
    said = await server.say("@ada", "**bold** <img src=x onerror=alert(1)>")
    answer = await server.client.get(f"/page/messages/{said['id']}")
    assert "<strong>bold</strong>" in answer.text
    assert "<img" not in answer.text
    assert "immutable" in answer.headers["cache-control"]
    gone = await server.client.get("/page/messages/msg_none")
    assert gone.status_code == 404


async def test_page_knows_the_runtimes_of_the_daemon(server: RunningServer) -> None:
    assert (await server.get("/page/runtimes")) == {"runtimes": []}
    state = DaemonState(runtimes={"rehearsal": {}, "codex": {}})
    async with open_daemon(server.port, state):
        found = await server.get("/page/runtimes")
    assert found == {"runtimes": ["codex", "rehearsal"]}
