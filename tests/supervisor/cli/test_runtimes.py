"""`agentteam runtimes`: what is there, what it can do, how the rest is had."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from typing import TYPE_CHECKING

import pytest

from agentteam_runtimes.opencode import managed
from agentteam_supervisor.cli import recording

if TYPE_CHECKING:
    from pathlib import Path

    from tests.supervisor.cli.conftest import Run

SCRIPT = f"#!/bin/sh\necho {managed.VERSION}\n"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "published"
    program.write_text(SCRIPT)
    build = managed.Build("small", hashlib.sha256(SCRIPT.encode()).hexdigest())
    machine = (sys.platform, platform.machine())
    monkeypatch.setattr(managed, "BUILDS", {machine: build})
    monkeypatch.setenv("PATH", "/nowhere:/usr/bin:/bin")
    return program


def test_what_is_missing_is_listed_with_the_way_to_get_it(
    run: Run, published: Path
) -> None:
    listed = run("runtimes", "list", "--json")
    found = {r["name"]: r for r in json.loads(listed.stdout)["runtimes"]}
    assert {"rehearsal", "codex", "opencode", "builtin"} <= set(found)
    assert found["rehearsal"]["found"]
    assert not found["opencode"]["found"]
    assert "npm install" in found["opencode"]["whatToDo"]
    assert "runtimes install builtin" in found["builtin"]["whatToDo"]
    shown = run("runtimes", "list").stdout
    assert "rehearsal" in shown
    assert "runtimes install builtin" in shown
    assert run("runtimes", "check", "opencode").exit_code == 1
    assert run("runtimes", "check", "nobody").exit_code == 1


@pytest.mark.req("R65", "R67", "R68")
def test_builtin_is_installed_checked_and_removed(run: Run, published: Path) -> None:
    done = run("runtimes", "install", "builtin", "--from", str(published))
    assert (done.exit_code, managed.VERSION in done.stdout) == (0, True)
    checked = run("runtimes", "check", "builtin")
    assert checked.exit_code == 0, checked.stdout
    for line in ("interrupt: turn", "evidence: answered", "rewind: no"):
        assert line in checked.stdout
    listed = json.loads(run("runtimes", "list", "--json").stdout)["runtimes"]
    (builtin,) = [r for r in listed if r["name"] == "builtin"]
    assert (builtin["version"], builtin["problem"]) == (managed.VERSION, None)
    program = managed.program(managed.state_directory())
    program.write_text(SCRIPT + "# changed\n")
    assert "SHA-256" in run("runtimes", "check", "builtin").stdout
    assert "removed builtin" in run("runtimes", "remove", "builtin").stdout
    assert "not installed" in run("runtimes", "remove", "builtin").stdout
    assert run("runtimes", "check", "builtin").exit_code == 1


def test_a_wrong_program_is_refused_in_words(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("no program")
    done = run("runtimes", "install", "builtin", "--from", str(wrong))
    assert done.exit_code == 1
    assert "SHA-256" in done.output or "pinned for" in done.output


def test_a_runtime_that_each_agent_sets_says_so_and_is_not_missing(run: Run) -> None:
    checked = run("runtimes", "check", "acp")
    assert checked.exit_code == 0
    assert """--options '{"command": ["opencode", "acp"]}'""" in checked.stdout
    listed = json.loads(run("runtimes", "list", "--json").stdout)["runtimes"]
    (acp,) = [r for r in listed if r["name"] == "acp"]
    assert (acp["found"], "`command`" in acp["problem"]) == (False, True)
    row = next(r for r in run("runtimes", "list").stdout.splitlines() if "acp" in r)
    assert "by agent" in row


def test_recording_says_what_it_needs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("runtimes", "check", "--record", str(tmp_path)).exit_code == 2
    monkeypatch.setattr(recording, "CHECKOUT", tmp_path)
    refused = run("runtimes", "check", "codex", "--record", str(tmp_path / "new"))
    assert refused.exit_code == 1
    assert "checkout" in refused.output
    assert not (tmp_path / "new").exists()


def test_recording_leaves_the_persons_keys_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("AGENTTEAM_TOKEN", "secret")
    monkeypatch.setenv("AGENTTEAM_CODEX_BIN", "/opt/codex")
    env = recording.recording_environment("/nowhere")
    assert "secret" not in env.values()
    assert (env["HOME"], env["AGENTTEAM_CODEX_BIN"]) == ("/nowhere", "/opt/codex")
