"""The thin client: sentences for problems, safe retries, events that resume."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click
import pytest

from agentteam_supervisor.cli.client import Client, agent_path, segment
from agentteam_supervisor.cli.event_stream import Event, parse_events
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tests.kit.api_server import ApiServer


def test_a_post_that_broke_is_repeated_with_the_same_key(api: ApiServer) -> None:
    api.answer("POST /api/agents", None, status=0)
    api.answer("POST /api/agents", {"id": "agt_1"}, status=201)
    with Client(api.url) as client:
        assert client.post("/api/agents", {"name": "a"}) == {"id": "agt_1"}
    keys = [r.headers["idempotency-key"] for r in api.seen("POST /api/agents")]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_two_posts_have_two_keys(api: ApiServer) -> None:
    api.answer("POST /api/agents", {"id": "agt_1"})
    with Client(api.url) as client:
        client.post("/api/agents", {"name": "a"})
        client.post("/api/agents", {"name": "a"})
    keys = [r.headers["idempotency-key"] for r in api.seen("POST /api/agents")]
    assert len(set(keys)) == 2


def test_a_connection_that_always_breaks_ends_after_three_tries(api: ApiServer) -> None:
    api.answer("POST /api/agents", None, status=0)
    with Client(api.url) as client, pytest.raises(CommandFailed) as caught:
        client.post("/api/agents", {})
    assert caught.value.exit_code == ExitCode.unreachable
    assert len(api.seen("POST /api/agents")) == 3


def test_a_delete_is_not_repeated_blindly(api: ApiServer) -> None:
    api.answer("DELETE /api/agents/a", None, status=0)
    with Client(api.url) as client, pytest.raises(CommandFailed):
        client.delete("/api/agents/a")
    assert len(api.seen("DELETE /api/agents/a")) == 1


def test_a_refusal_speaks_in_the_servers_words(api: ApiServer) -> None:
    api.problem("GET /api/agents/x", 404, "unknown_agent", "there is no agent 'x'")
    with Client(api.url) as client, pytest.raises(CommandFailed) as caught:
        client.get("/api/agents/x")
    assert caught.value.message == "there is no agent 'x'"
    assert caught.value.exit_code == ExitCode.failed
    assert caught.value.problem["type"] == "unknown_agent"


def test_an_answer_that_is_no_problem_document_is_told_by_its_status(
    api: ApiServer,
) -> None:
    api.answer("GET /api/agents", ["not", "an", "object"], status=500)
    with Client(api.url) as client, pytest.raises(CommandFailed) as caught:
        client.get("/api/agents")
    assert caught.value.message == "HTTP 500 Internal Server Error"


def test_another_program_at_that_address_is_told_apart(api: ApiServer) -> None:
    api.answer("GET /healthz", "hello")
    with Client(api.url) as client, pytest.raises(CommandFailed) as caught:
        client.get("/healthz")
    assert "does not speak our protocol" in caught.value.message


def test_an_answer_that_takes_too_long_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, seconds=0.1) as client, pytest.raises(CommandFailed) as caught:
            client.post("/api/agents", {})
    assert caught.value.exit_code == ExitCode.timeout


@pytest.mark.parametrize("name", ["", "#a b", "../../agents", "a/b", "@", "a\n"])
def test_what_is_no_name_makes_no_path(name: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        segment(name)
    assert "/api" not in caught.value.message
    assert agent_path("@ada") == agent_path("ada") == "/api/agents/ada"


def test_a_bare_agent_name_means_its_direct_target(api: ApiServer) -> None:
    api.answer("GET /api/targets/@demo/messages", {"messages": [], "head": 0})
    with Client(api.url) as client:
        client.at_target("demo", lambda path: client.get(f"{path}/messages"))


def test_a_proxy_of_the_environment_is_not_asked(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    api.answer("GET /healthz", {})
    with Client(api.url) as client:
        assert client.get("/healthz") == {}


def test_the_stream_resumes_after_the_last_event_it_saw(api: ApiServer) -> None:
    with Client(api.url) as client, client.events(10) as events:
        stream = iter(events)
        api.emit("s.1", "message", {"n": 1})
        assert next(stream).data == {"n": 1}
        api.emit("", "activity", {"kind": "progress"})  # live only, has no id
        assert next(stream).id == ""
        api.break_stream()
        api.emit("s.2", "message", {"n": 2})
        assert next(stream).data == {"n": 2}
    heads = [r.headers.get("last-event-id") for r in api.seen("GET /api/events")]
    assert heads == [None, "s.1"]


def test_a_stream_without_the_awaited_event_ends_in_time(api: ApiServer) -> None:
    with Client(api.url) as client, client.events(1.5) as events:
        with pytest.raises(CommandFailed) as caught:
            next(iter(events))
        assert caught.value.exit_code == ExitCode.timeout


def test_comments_keep_the_line_alive_and_not_the_wait(api: ApiServer) -> None:
    api.pings = 100  # some seconds of them
    with Client(api.url) as client, client.events(1.0) as events:
        with pytest.raises(CommandFailed) as caught:
            next(iter(events))
        assert caught.value.exit_code == ExitCode.timeout
        assert api.pings > 50


def test_comments_and_noise_are_no_events() -> None:
    lines = [": hi", "", "event: x", "data: {", 'data: "a": 1}', "", "data: no", ""]
    assert list(parse_events(lines)) == [Event("x", {"a": 1})]


def test_an_id_alone_tells_the_position() -> None:
    assert list(parse_events(["id: s.4", ""])) == [Event("", {}, "s.4")]


def test_half_an_event_at_the_end_is_dropped() -> None:
    assert list(parse_events(["event: x", "data: {}"])) == []
