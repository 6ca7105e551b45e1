"""Agents that exist without anybody adding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentteam_supervisor.cli.client import Client
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.first_start import make_agents
from agentteam_supervisor.cli.settings import FILE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.api_server import ApiServer


def made(api: ApiServer, directory: Path, *declared: dict[str, Any]) -> list[str]:
    with Client(api.url) as client:
        make_agents(client, directory, declared)
    return [post.body["name"] for post in api.seen("POST /api/agents")]


def test_the_first_start_makes_demo(api: ApiServer, tmp_path: Path) -> None:
    api.answer("GET /api/agents", {"agents": []})
    api.answer("POST /api/agents", {})
    assert made(api, tmp_path) == ["demo"]


def test_a_later_start_does_not(api: ApiServer, tmp_path: Path) -> None:
    api.answer("GET /api/agents", {"agents": []})
    api.answer("POST /api/agents", {})
    made(api, tmp_path)
    assert made(api, tmp_path) == ["demo"]  # of the first start


def test_declared_agents_come_once_and_take_the_name_demo_if_they_like(
    api: ApiServer, tmp_path: Path
) -> None:
    api.answer("GET /api/agents", {"agents": [{"name": "old"}]})
    api.answer("POST /api/agents", {})
    declared = [{"name": name, "runtime": "codex"} for name in ("old", "new", "demo")]
    assert made(api, tmp_path, *declared) == ["new", "demo"]


def test_a_start_that_failed_half_way_is_taken_up_again(
    api: ApiServer, tmp_path: Path
) -> None:
    api.answer("GET /api/agents", {"agents": [{"name": "demo"}]})
    assert made(api, tmp_path) == []
    assert made(api, tmp_path) == []


def test_what_the_server_refuses_is_told_with_its_place_in_the_file(
    api: ApiServer, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_text('[[agents]]\nruntime = "x"\nname = "user"\n')
    api.answer("GET /api/agents", {"agents": []})
    refusal = {"type": "reserved_name", "detail": "choose another", "field": "name"}
    api.answer("POST /api/agents", refusal, status=422)
    with pytest.raises(CommandFailed) as caught:
        made(api, tmp_path, {"name": "user", "runtime": "x"})
    assert caught.value.message.startswith(f"{tmp_path / FILE}:3: agents[1]: choose")
