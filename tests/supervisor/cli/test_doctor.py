"""The doctor names what stands in the way and leaves the rest alone."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from agentteam_supervisor.cli import check_service, doctor
from agentteam_supervisor.cli.check_agents import agents_checked
from agentteam_supervisor.cli.check_files import damage_of, files_checked
from agentteam_supervisor.cli.check_service import port_checked, service_checked
from agentteam_supervisor.cli.disk import disk_advice
from agentteam_supervisor.cli.server_record import ServerRecord, announced
from agentteam_supervisor.cli.state_dir import locked
from agentteam_supervisor.server.disk import ROOM, Disk

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.kit.api_server import ApiServer
    from tests.supervisor.cli.conftest import Run

    from agentteam_supervisor.cli.check import Check


@contextmanager
def running(directory: Path, url: str) -> Generator[None]:
    """A service that holds the directory and says that it is at the address."""
    with (
        locked(directory, "server"),
        announced(directory, ServerRecord(url, os.getpid(), "", "", daemon=True)),
    ):
        yield


def left_behind(directory: Path, url: str) -> None:
    """What a service leaves that was killed."""
    record = {"url": url, "pid": 4_000_000, "started": "", "version": ""}
    (directory / "server.json").write_text(json.dumps(record))


def store_of(directory: Path, *agents: tuple[str, str | None, str]) -> None:
    with closing(sqlite3.connect(directory / "server.sqlite3")) as db:
        db.execute("CREATE TABLE agents (name, runtime, workdir, options, deleted_at)")
        for agent in agents:
            values = (agent[0], "codex", *agent[1:])
            db.execute("INSERT INTO agents VALUES (?, ?, ?, ?, NULL)", values)
        db.commit()


def agents_of(directory: Path) -> dict[str, Check]:
    return {check.name: check for check in agents_checked(directory, ask=True)}


def test_every_check_has_a_verdict(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--json", "--state-dir", str(tmp_path))
    checks = {c["name"]: c for c in json.loads(result.stdout)["checks"]}
    asked = {"python", "containment", "state directory", "port", "disk", "service"}
    assert asked <= set(checks)
    assert checks["state directory"]["state"] == "ok"
    assert {c["state"] for c in checks.values()} <= {"ok", "warn", "bad"}
    assert result.exit_code == any(c["state"] == "bad" for c in checks.values())


def test_containment_is_not_praised_beyond_what_holds(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--json", "--state-dir", str(tmp_path))
    checks = {c["name"]: c for c in json.loads(result.stdout)["checks"]}
    assert "outlive" in checks["containment"]["detail"]
    if not checks["containment"]["detail"].startswith("group"):
        assert "live until the next start" in checks["containment"]["detail"]


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = port_checked(tmp_path, port)
    assert check.state == "warn"
    assert str(port) in check.detail


def test_the_port_of_a_dead_service_is_not_our_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        left_behind(tmp_path, f"http://127.0.0.1:{port}")
        check = port_checked(tmp_path, None)
    assert (check.state, "another program" in check.detail) == ("warn", True)
    service = service_checked(tmp_path)
    assert service.state == "warn"
    assert "4000000" in service.detail
    assert "dead" in service.detail


def test_the_port_that_is_looked_at_is_that_of_the_service(
    api: ApiServer, tmp_path: Path
) -> None:
    with running(tmp_path, api.url):
        check = port_checked(tmp_path, None)
    assert check.detail == f"{api.url.rsplit(':', 1)[1]}, our own server"


def test_a_service_that_answers_is_well(api: ApiServer, tmp_path: Path) -> None:
    api.answer("GET /readyz", {"status": "ready", "daemon": {"connected": True}})
    with running(tmp_path, api.url):
        assert service_checked(tmp_path).state == "ok"


def test_a_service_without_its_daemon_is_not(api: ApiServer, tmp_path: Path) -> None:
    api.answer("GET /readyz", {"status": "ready", "daemon": {"connected": False}})
    with running(tmp_path, api.url):
        check = service_checked(tmp_path)
    assert check.state == "warn"
    assert "no daemon is connected" in check.detail


def test_a_service_that_cannot_write_says_what_to_do(
    api: ApiServer, tmp_path: Path
) -> None:
    api.problem("GET /readyz", 503, "store_unwritable", "disk is full; free the disk")
    with running(tmp_path, api.url):
        check = service_checked(tmp_path)
    assert (check.state, check.detail) == ("bad", "disk is full; free the disk")


def test_a_service_that_answers_nobody_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_service, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with running(tmp_path, url):
            check = service_checked(tmp_path)
            monkeypatch.setattr(check_service, "_is_stopped", lambda _: True)
            stopped = service_checked(tmp_path)
    assert (check.state, "does not answer" in check.detail) == ("bad", True)
    assert f"kill -CONT {os.getpid()}" in stopped.detail


@pytest.mark.parametrize("name", ["server.sqlite3", "journal.sqlite3"])
def test_a_database_of_garbage_is_bad(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"garbage" * 1000)
    (check,) = files_checked(tmp_path)
    assert check.state == "bad"
    assert name in check.detail
    assert "agentteam down" in check.detail


def test_a_sound_database_is_left_as_it_is(tmp_path: Path) -> None:
    store_of(tmp_path)
    before = (tmp_path / "server.sqlite3").read_bytes()
    assert [check.state for check in files_checked(tmp_path)] == ["ok"]
    assert damage_of(tmp_path / "server.sqlite3") is None
    assert (tmp_path / "server.sqlite3").read_bytes() == before


def test_a_program_of_an_agents_own_is_looked_at(tmp_path: Path) -> None:
    own = tmp_path / "codex"
    store_of(tmp_path, ("ada", None, json.dumps({"bin": str(own)})))
    check = agents_of(tmp_path)["agent ada"]
    assert (check.state, str(own) in check.detail) == ("warn", True)
    own.write_text("#!/bin/sh\necho codex-cli 0.171.0\n")
    own.chmod(0o700)
    check = agents_of(tmp_path)["agent ada"]
    assert (check.state, "0.171.0" in check.detail) == ("ok", True)


def test_the_place_of_an_agent_is_looked_at_anew(tmp_path: Path) -> None:
    place = tmp_path / "work"
    store_of(tmp_path, ("ada", str(place), "{}"), ("bob", None, "{}"))
    checks = agents_of(tmp_path)
    assert list(checks) == ["agent ada"]
    assert "agents set ada --workdir" in checks["agent ada"].detail
    place.mkdir()
    assert agents_of(tmp_path) == {}


def test_what_a_session_says_of_itself_is_told(api: ApiServer, tmp_path: Path) -> None:
    trouble = {"problem": "it is not logged in", "whatToDo": "run `codex login`"}
    api.answer("GET /api/agents", {"agents": [{"name": "ada", "problem": trouble}]})
    store_of(tmp_path, ("ada", None, "{}"))
    with running(tmp_path, api.url):
        checks = agents_of(tmp_path)
    assert checks["agent ada"].detail == "it is not logged in; run `codex login`"
    assert agents_of(tmp_path) == {}  # no service, no word of it


def test_a_full_disk_is_bad_with_how_much_to_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in (Disk(0), Disk(1 << 40, inodes=False), Disk(1 << 40, read_only=True)):
        monkeypatch.setattr(doctor, "look_at_disk", lambda _, found=found: found)
        (check,) = [c for c in doctor.examine(tmp_path) if c.name == "disk"]
        assert check.state == "bad"
        assert check.detail == disk_advice(tmp_path, found)
    assert f"free at least {ROOM} MiB" in disk_advice(tmp_path, Disk(0))


def test_a_state_directory_that_cannot_be_is_bad(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("doctor", "--state-dir", str(tmp_path / "file" / "x"))
    assert result.exit_code == 1
    assert "bad" in result.stdout
