"""How an app-server is started, and what its start can fail with."""

from __future__ import annotations

import json
import os
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.errors import RuntimeExited, RuntimeMissing, RuntimeTooSlow
from agentteam_protocol.ids import AgentId
from agentteam_runtimes.codex import driver as codex_driver
from agentteam_runtimes.codex.command import command, environment, version
from agentteam_runtimes.codex.driver import CodexDriver, thread_settings
from agentteam_runtimes.driver import (
    Exited,
    Options,
    SessionNamed,
    SessionSpec,
    Steer,
)

if TYPE_CHECKING:
    from pathlib import Path


def program(path: Path, script: str) -> str:
    """Write a stand-in for the binary."""
    file = path / "codex"
    file.write_text("#!/bin/sh\n" + script + "\n")
    file.chmod(0o755)
    return str(file)


def spec(path: Path, options: Options, policy: str = "ask") -> SessionSpec:
    return SessionSpec(
        AgentId("agt_1"),
        "codex",
        workdir=path,
        state_dir=path,
        approval_policy=ApprovalPolicy(policy),
        options=options,
    )


def test_config_is_handed_over_as_toml_and_wins_over_our_defaults(
    tmp_path: Path,
) -> None:
    config = {
        "features": {"instant_interrupt": True},
        "model_providers": {"mine": {"name": 'a "name"\n', "retries": 0}},
        "notify": ["a", 1, {"x": True}],
        "sandbox_mode": "read-only",
        "empty": None,
    }
    options = Options(bin=program(tmp_path, ""), config=config, args=("--flag",))
    words = command(options)
    assert words[1] == "app-server"
    assert words[-1] == "--flag"
    read = [tomllib.loads(w) for before, w in pairwise(words) if before == "-c"]
    assert {"check_for_update_on_startup": False} in read
    assert {"features": {"plugins": False}} in read
    mine = [r["model_providers"]["mine"] for r in read if "model_providers" in r]
    assert mine == [{"name": 'a "name"\n'}, {"retries": 0}]
    assert {"notify": ["a", 1, {"x": True}]} in read
    assert not [r for r in read if "sandbox_mode" in r or "empty" in r]
    ours, theirs = [r for r in read if "instant_interrupt" in r.get("features", {})]
    assert (ours["features"], theirs["features"]) == (
        {"instant_interrupt": False},
        {"instant_interrupt": True},
    )


def test_environment_inherits_little_and_the_agents_own_comes_on_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": "/h", "PATH": "/p", "SECRET": "s"})
    assert environment(Options()) == {"HOME": "/h", "PATH": "/p"}
    own = Options(home="/own", env={"PATH": "/q", "X": "1"})
    assert environment(own) == {
        "HOME": "/own",
        "CODEX_HOME": "/own/.codex",
        "PATH": "/q",
        "X": "1",
    }


def test_policy_never_asks_nobody_and_the_agents_sandbox_counts(
    tmp_path: Path,
) -> None:
    plain = thread_settings(spec(tmp_path, Options()))
    assert plain["approvalPolicy"] == "on-request"
    assert plain["sandbox"] == "workspace-write"
    config = {"approval_policy": "untrusted", "sandbox_mode": "read-only", "model": "m"}
    own = thread_settings(spec(tmp_path, Options(config=config)))
    assert (own["approvalPolicy"], own["sandbox"]) == ("untrusted", "read-only")
    assert own["model"] == "m"
    never = thread_settings(spec(tmp_path, Options(config=config), "never"))
    assert never["approvalPolicy"] == "never"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo codex-cli 0.170.9", "older than 0.171"),
        ("echo something else 9.9", "is no Codex"),
        ("exit 1", "is no Codex"),
    ],
)
def test_other_program_or_version_is_named_with_what_to_do(
    tmp_path: Path, script: str, problem: str
) -> None:
    with pytest.raises(RuntimeMissing) as missing:
        version(Options(bin=program(tmp_path, script)))
    assert problem in missing.value.problem
    assert "npm install" in missing.value.what_to_do


def test_missing_program_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMissing) as missing:
        CodexDriver().probe(Options(bin=str(tmp_path / "nothing")))
    assert str(tmp_path / "nothing") in missing.value.problem


@pytest.mark.slow
@pytest.mark.req("R65")
def test_capabilities_are_those_of_the_installed_version(tmp_path: Path) -> None:
    options = Options(bin=program(tmp_path, "echo codex-cli 0.171.0"))
    capabilities = CodexDriver().probe(options)
    assert capabilities.version == "0.171.0"
    assert capabilities.steer is Steer.ack
    assert not capabilities.rewind


@pytest.mark.slow
async def test_start_that_exits_says_why(tmp_path: Path) -> None:
    options = Options(bin=program(tmp_path, "echo broken config >&2; exit 3"))
    seen = SeenEvents()
    with trio.fail_after(20), pytest.raises(RuntimeExited) as exited:
        async with CodexDriver().open(spec(tmp_path, options), None, seen):
            pass
    assert exited.value.returncode == 3
    assert "broken config" in exited.value.stderr_tail
    assert seen.all == []


@pytest.mark.slow
@pytest.mark.bug("B15")
async def test_start_that_never_shakes_hands_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex_driver, "START_SECONDS", 0.5)
    options = Options(bin=program(tmp_path, "echo '{hello}'; exec sleep 60"))
    with trio.fail_after(20), pytest.raises(RuntimeTooSlow):
        async with CodexDriver().open(spec(tmp_path, options), None, SeenEvents()):
            pass


# Asks before it answers anything, as if to refresh a login, and waits for the reply.
ASKS_FIRST = """
read initialize
echo '{"id":"ask-1","method":"account/chatgptAuthTokens/refresh","params":{}}'
read reply
echo "$reply" > reply.json
echo '{"id":1,"result":{}}'
read initialized
read start
echo '{"id":2,"result":{"thread":{"id":"thread-1"}}}'
exec cat
"""


@pytest.mark.slow
@pytest.mark.bug("B26")
async def test_request_during_the_handshake_is_answered(tmp_path: Path) -> None:
    options = Options(bin=program(tmp_path, ASKS_FIRST))
    seen = SeenEvents()
    with trio.fail_after(20):
        async with CodexDriver().open(spec(tmp_path, options), None, seen):
            pass
    reply = json.loads((tmp_path / "reply.json").read_text())
    assert (reply["id"], reply["error"]["code"]) == ("ask-1", -32601)
    # Codex keeps a thread only from its first input on: there is nothing to resume.
    assert not seen.of(SessionNamed)
    assert seen.of(Exited)[0].returncode == 0
