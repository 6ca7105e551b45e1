"""Agents that exist without anybody adding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_supervisor.cli.client import Client
from agentteam_supervisor.cli.first_start import make_agents

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
