"""Agents of `agentteam.toml` are checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentteam_supervisor.cli.declared import declared_agents
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.settings import FILE, read_settings
from agentteam_supervisor.cli.toml_place import line_of

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
        ("\nagent = 1", r"toml:2: .*unknown key 'agent'; known are agents, limits"),
        ("agents = 1", "toml:1: agents must be a list"),
        ("agents = [1]", r"toml:1: agents\[1\] is not a table"),
        ('[[agents]]\nname = "a"', r"toml:1: agents\[1\] lacks runtime"),
        (
            '[[agents]]\nname = "a"\nruntime = 1',
            r"toml:3: agents\[1\].runtime must be a string \(in quotes\)",
        ),
        (
            '[[agents]]\nname="a"\nruntime="r"\nautoReply=1',
            "autoReply must be a boolean",
        ),
        ('[[agents]]\nname="a"\nruntime="r"\nwork_dir="/"', "unknown key 'work_dir'"),
        (
            '[[agents]]\nname="a"\nruntime="r"\noptions={binary="/x"}',
            r"toml:4: agents\[1\].options has an unknown key 'binary'",
        ),
        (
            '[[agents]]\nname="a"\nruntime="r"\n\n[[agents]]\nname="b"\nruntime="r"\n'
            '[[agents]]\nruntime="r"\nname="a"\n',
            r"toml:10: agents\[3\] is called 'a', as agents\[1\] is",
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


LINES = """\
[limits]
start = 1
silence = "x"

[[agents]]
name = "a"

[[agents]]
name = "b"
options = { args = [], binary = "/x" }

[[agents]]
name = "c"
[agents.options]
args = []
binary = "x"
"""


@pytest.mark.parametrize(
    ("where", "key", "line"),
    [
        ("limits", "silence", 3),
        ("agents[1]", None, 5),
        ("agents[1]", "name", 6),
        ("agents[2].options", "binary", 10),
        ("agents[3].options", "binary", 16),
        ("agents[3]", "runtime", 12),  # it is not there: its table is
        ("", "limits", 1),
        ("tools", "x", None),
    ],
)
def test_the_line_of_a_fault_is_found(
    where: str, key: str | None, line: int | None
) -> None:
    assert line_of(LINES, where, key) == line
