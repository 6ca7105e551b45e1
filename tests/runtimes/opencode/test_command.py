"""How OpenCode is started, and how a person learns that it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.errors import RuntimeMissing
from agentteam_protocol.ids import AgentId
from agentteam_runtimes.driver import Options, SessionSpec
from agentteam_runtimes.opencode.command import config, environment, serving, version
from agentteam_runtimes.opencode.driver import LISTENING, OpenCodeDriver

if TYPE_CHECKING:
    from pathlib import Path


def spec(path: Path, given: dict[str, Any], **more: Any) -> SessionSpec:
    options = Options(config=given, home=str(path))
    return SessionSpec(AgentId("a"), "a", path, path, options=options, **more)


def test_with_the_policy_ask_what_changes_something_is_asked_for(
    tmp_path: Path,
) -> None:
    wanted = {"permission": {"bash": {"ls *": "allow", "*": "ask"}}}
    asking = config(spec(tmp_path, wanted))["permission"]
    assert asking == {**wanted["permission"], "edit": "ask", "webfetch": "ask"}
    never = config(spec(tmp_path, {}, approval_policy=ApprovalPolicy.never))
    assert "permission" not in never


def test_the_agents_model_and_its_own_config_win(tmp_path: Path) -> None:
    built = config(spec(tmp_path, {"model": "a/b", "share": "auto"}, model="c/d"))
    assert (built["model"], built["share"], built["autoupdate"]) == (
        "c/d",
        "auto",
        False,
    )


def test_a_home_of_its_own_holds_all_its_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/of/the/user")
    monkeypatch.setenv("SECRET", "s")
    env = environment(Options(home=str(tmp_path), env={"OPENCODE_X": "1"}))
    assert env["HOME"] == str(tmp_path)
    assert env["XDG_DATA_HOME"] == str(tmp_path / ".local/share")
    assert (env["OPENCODE_X"], "SECRET" in env) == ("1", False)
    assert environment(Options())["XDG_DATA_HOME"] == "/of/the/user"
    served = serving(spec(tmp_path, {}), "pw", tmp_path / "tmp")
    assert served["TMPDIR"] == str(tmp_path / "tmp")
    assert served["OPENCODE_SERVER_PASSWORD"] == "pw"


PROGRAMS = {
    "missing": (None, "there is no program"),
    "of an old version": ("echo 1.17.9", "older than"),
    "another program": ("echo GNU sed 4.9", "is no OpenCode"),
    "one that fails": ("exit 1", "is no OpenCode"),
}


@pytest.mark.req("R55", "R65")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_is_no_opencode_is_named_with_what_to_do(
    tmp_path: Path, kind: str
) -> None:
    text, problem = PROGRAMS[kind]
    program = tmp_path / "opencode"
    if text is not None:
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    with pytest.raises(RuntimeMissing, match=problem) as missing:
        version(Options(bin=str(program)))
    assert "opencode-ai" in missing.value.what_to_do


@pytest.mark.req("R65", "R67")
def test_the_version_is_read_and_rewind_is_never_offered(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\necho 1.18.33\n")
    program.chmod(0o755)
    capabilities = OpenCodeDriver().probe(Options(bin=str(program)))
    assert (capabilities.version, capabilities.rewind) == ("1.18.33", False)


def test_only_a_loopback_address_is_where_it_listens() -> None:
    line = b"opencode server listening on http://127.0.0.1:4096"
    found = LISTENING.search(line)
    assert found is not None
    assert found[1] == b"http://127.0.0.1:4096"
    assert not LISTENING.search(b"listening on http://0.0.0.0:4096")
