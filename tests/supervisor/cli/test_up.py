"""`agentteam up` as a person meets it: real processes, from the first start on."""

from __future__ import annotations

import json
import signal
import socket
import stat
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.kit.service import open_service, run_command

from agentteam_supervisor.cli.failure import ExitCode
from agentteam_supervisor.cli.server_record import read_record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SLOW_TURN = '#do [{"say": "one two three four five six seven eight", "ms": 500}]'
WITH_A_CHILD = '#do [{"run": "sleep 300"}, {"say": "never"}]'


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.bug("B01")
def test_it_ends_by_a_signal_and_leaves_nothing(tmp_path: Path, ending: int) -> None:
    with open_service(tmp_path) as service:
        assert service.line == f"listening on {service.url}\n"
        sent = run_command(tmp_path, "send", "@demo", WITH_A_CHILD, "--wait")
        assert sent.code == 0, sent.stderr
        tree = service.tree()
        assert len(tree) > 1
        done = service.end(ending)
    assert (done.code, done.stdout) == (0, ""), done.stderr
    _, alive = psutil.wait_procs(tree, timeout=5)
    assert alive == []
    assert read_record(tmp_path) is None


@pytest.mark.req("R2", "R11", "R29", "R32")
def test_the_first_three_commands_show_the_product(tmp_path: Path) -> None:
    with open_service(tmp_path):
        long = run_command(tmp_path, "send", "@demo", SLOW_TURN, "--wait")
        assert long.code == 0, long.stderr
        sent = run_command(tmp_path, "send", "@demo", "what is new?")
        assert sent.code == 0, sent.stderr
        urgent = run_command(tmp_path, "urgent", "--last")
        assert urgent.code == 0, urgent.stderr
        *lines, proof = urgent.stdout.splitlines()
        assert lines == [
            "@user asked to interrupt the current run",
            "Stopping the current run…",
            "The current run was interrupted",
            "Working on the new request of @user",
        ]
        assert "surfaced" in proof
        ledger = run_command(tmp_path, "replay", "demo").stdout
        assert "= aborted (urgent)" in ledger
        assert ledger.index("[cut here]") < ledger.index("> what is new?")
        assert "eight" not in ledger.split("> what is new?")[1]


def test_json_lines_for_programs(tmp_path: Path) -> None:
    with open_service(tmp_path, "--json") as service:
        assert json.loads(service.line) == {"listening": service.url}
        status = json.loads(run_command(tmp_path, "status", "--json").stdout)
        assert status["pid"] == service.process.pid
        assert [agent["name"] for agent in status["agents"]] == ["demo"]


def test_down_ends_it_and_waits(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        tree = service.tree()
        done = run_command(tmp_path, "down")
        assert (done.code, done.stdout) == (0, "stopped\n")
        assert service.process.wait(5) == 0
    assert psutil.wait_procs(tree[1:], timeout=0)[1] == []
    assert run_command(tmp_path, "status").code == ExitCode.unreachable


def test_who_removes_demo_does_not_get_it_back(tmp_path: Path) -> None:
    with open_service(tmp_path):
        assert run_command(tmp_path, "agents", "rm", "demo").code == 0
    with open_service(tmp_path):
        found = run_command(tmp_path, "agents", "list", "--json")
        assert json.loads(found.stdout)["agents"] == []


def test_declared_agents_are_there_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "agentteam.toml").write_text(
        '[[agents]]\nname = "worker"\nruntime = "rehearsal"\napprovalPolicy = "never"\n'
    )
    for _ in range(2):
        with open_service(tmp_path):
            found = run_command(tmp_path, "agents", "list", "--json")
            agents = json.loads(found.stdout)["agents"]
            assert [a["name"] for a in agents] == ["worker", "demo"]
            assert agents[0]["approvalPolicy"] == "never"


@pytest.mark.bug("B12")
def test_a_second_one_is_refused_by_name(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        second = run_command(tmp_path, "up", "--port", "0")
        assert second.code == ExitCode.failed
        assert f"in use by pid {service.process.pid}" in second.stderr
        assert "agentteam down" in second.stderr
        assert run_command(tmp_path, "status").code == 0


@pytest.mark.bug("B12")
def test_a_second_daemon_is_refused_by_the_name_of_the_first(tmp_path: Path) -> None:
    with open_service(tmp_path / "up") as service:
        second = run_command(tmp_path / "other", "daemon", "--server", service.url)
        assert second.code == ExitCode.failed
        assert "holds the agents already" in second.stderr
        assert "stop that daemon first" in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.bug("B12")
def test_a_killed_one_is_in_nobodys_way(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        tree = service.tree()
        service.end(signal.SIGKILL)
    _, alive = psutil.wait_procs(tree, timeout=10)
    assert alive == []
    assert run_command(tmp_path, "down").stdout == "nothing is running\n"
    with open_service(tmp_path):
        assert run_command(tmp_path, "status").code == 0


@pytest.mark.bug("B12")
def test_a_taken_port_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_command(tmp_path, "up", "--port", port)
    assert done.code == ExitCode.failed
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_directory_of_another_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("99\n")
    done = run_command(tmp_path, "up", "--port", "0")
    assert done.code == ExitCode.failed
    assert "99" in done.stderr
    assert "choose another state directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    done = run_command(tmp_path, "up", "--state-dir", "/proc/agentteam")
    assert done.code == ExitCode.failed
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_runtime_in_the_file_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "agentteam.toml").write_text(
        '[[agents]]\nname = "a"\nruntime = "no-such"\n'
    )
    done = run_command(tmp_path, "up", "--port", "0")
    assert done.code == ExitCode.failed
    assert "no-such" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.req("R54", "R55", "R56")
def test_an_agent_that_cannot_run_says_what_to_do(tmp_path: Path) -> None:
    with open_service(tmp_path):
        add = ("agents", "add", "x", "--runtime", "rehearsal")
        made = run_command(tmp_path, *add, "--workdir", str(tmp_path / "none"))
        assert made.code == 0, made.stderr
        ordinary = run_command(tmp_path, "send", "@x", "hello", "--wait")
        assert ordinary.code == ExitCode.failed
        assert "does not exist" in ordinary.stderr
        assert "stays queued" in ordinary.stderr
        urgent = run_command(tmp_path, "urgent", "--last", "--agent", "x")
        assert urgent.code == ExitCode.failed
        assert urgent.stdout.splitlines()[-1].startswith("The new request of")
        assert "mend it, or choose another" in urgent.stderr
        assert "hello" in run_command(tmp_path, "messages", "@x").stdout
        assert "does not exist" in run_command(tmp_path, "status").stdout


def pending(state_dir: Path) -> list[dict[str, str]]:
    """Look until something is asked; each look is a process of its own."""
    for _ in range(50):
        done = run_command(state_dir, "approvals", "--json")
        if found := json.loads(done.stdout)["approvals"]:
            return list(found)
    raise AssertionError("nothing was asked")


def test_a_person_decides_an_approval_once(tmp_path: Path) -> None:
    with open_service(tmp_path):
        body = '#do [{"ask": "shell"}, {"say": "done"}]'
        assert run_command(tmp_path, "send", "@demo", body, "--wait").code == 0
        (approval,) = pending(tmp_path)
        assert run_command(tmp_path, "approve", approval["id"]).code == 0
        again = run_command(tmp_path, "approve", approval["id"], "--reject")
        assert again.code == ExitCode.failed
        assert "decided before: allowed-once" in again.stderr
        none = run_command(tmp_path, "approvals").stdout
        assert none == "nothing waits for approval\n"


def test_the_state_directory_is_for_its_owner(tmp_path: Path) -> None:
    with open_service(tmp_path / "state"):
        mode = stat.S_IMODE((tmp_path / "state").stat().st_mode)
    assert mode == 0o700


def test_server_and_daemon_apart_do_the_same(tmp_path: Path) -> None:
    here = tmp_path / "server"
    with open_service(here, verb="server") as server:
        assert "rehearsal" not in run_command(here, "agents", "list").stdout
        there = tmp_path / "daemon"
        joining = ("--server", server.url)
        with open_service(there, *joining, verb="daemon") as daemon:
            assert daemon.line == f"joined {server.url}\n"
            made = run_command(here, "agents", "add", "x", "--runtime", "rehearsal")
            assert made.code == 0, made.stderr
            sent = run_command(here, "send", "x", "hello", "--follow")
            assert "[x 2] x: Heard: hello" in sent.stdout, sent.stderr
