"""Agents of `agentteam.toml` are checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentteam_supervisor.cli.declared import declared_agents
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.settings import FILE, read_settings

if TYPE_CHECKING:
    from pathlib import Path


def test_without_the_file_nothing_is_declared(tmp_path: Path) -> None:
    assert declared_agents(read_settings(tmp_path)) == []


def test_the_keys_are_those_of_the_api(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        """
        [[agents]]
        name = "coder"
        runtime = "codex"
        workdir = "/src"
        model = "m"
        approvalPolicy = "never"
        autoReply = false
        [agents.options]
        args = ["-v"]
        env = {A = "b"}
        [[agents]]
        name = "demo"
        runtime = "rehearsal"
        """
    )
    first, second = declared_agents(read_settings(tmp_path))
    assert first["options"] == {"args": ["-v"], "env": {"A": "b"}}
    assert first["autoReply"] is False
    assert second == {"name": "demo", "runtime": "rehearsal"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = [", "cannot be read"),
        ("agent = 1", "unknown key 'agent'; known are agents, limits"),
        ("agents = 1", "agentteam.toml.agents must be a list"),
        ("agents = [1]", r"agents\[1\] is not a table"),
        ('[[agents]]\nname = "a"', r"agents\[1\] lacks runtime"),
        ('[[agents]]\nname = "a"\nruntime = 1', r"agents\[1\].runtime must be a str"),
        ('[[agents]]\nname="a"\nruntime="r"\nautoReply=1', "autoReply must be a bool"),
        ('[[agents]]\nname="a"\nruntime="r"\nwork_dir="/"', "unknown key 'work_dir'"),
        (
            '[[agents]]\nname="a"\nruntime="r"\noptions={binary="/x"}',
            r"agents\[1\].options has an unknown key 'binary'",
        ),
    ],
)
def test_a_fault_names_its_place_and_what_to_do(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CommandFailed, match=problem) as caught:
        declared_agents(read_settings(tmp_path))
    assert str(tmp_path / FILE) in caught.value.message
    assert "start again" in caught.value.message
