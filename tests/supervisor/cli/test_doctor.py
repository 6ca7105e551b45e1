"""The doctor names what stands in the way and leaves the rest alone."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from agentteam_supervisor.cli.doctor import examine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.supervisor.cli.conftest import Run


def test_every_check_has_a_verdict(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--json", "--state-dir", str(tmp_path))
    checks = {c["name"]: c for c in json.loads(result.stdout)["checks"]}
    assert {"python", "containment", "state directory", "port", "disk"} <= set(checks)
    assert checks["state directory"]["state"] == "ok"
    assert {c["state"] for c in checks.values()} <= {"ok", "warn", "bad"}
    assert result.exit_code == any(c["state"] == "bad" for c in checks.values())


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (check,) = [c for c in examine(tmp_path, port) if c.name == "port"]
    assert check.state == "warn"
    assert str(port) in check.detail


def test_a_state_directory_that_cannot_be_is_bad(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("doctor", "--state-dir", str(tmp_path / "file" / "x"))
    assert result.exit_code == 1
    assert "bad" in result.stdout
