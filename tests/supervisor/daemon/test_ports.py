"""What a session of the daemon is given: its place, and who answers its asks."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.errors import RuntimeMissing
from agentteam_protocol.frames import AgentGranted
from agentteam_protocol.ids import AgentId, ApprovalId, RunId
from agentteam_runtimes.plugins import find_plugins
from agentteam_supervisor.daemon.config import DaemonConfig
from agentteam_supervisor.daemon.lock import StateDirectory
from agentteam_supervisor.daemon.ports import Workshop, compose_answerers

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from agentteam_supervisor.approval.service import Answerer, Following
    from agentteam_supervisor.session.ports import Ports

A = AgentId("agt_a")
ASK = ApprovalRequest(ApprovalId("apr_1"), RunId("run_1"), "shell")


def ports(path: Path, workdir: str | None, *answerers: Answerer) -> Ports:
    """Make what the session of an agent is given; its link and journal stay unused."""
    config = DaemonConfig(path)
    unused = cast("Any", None)
    approvals = compose_answerers(answerers)
    workshop = Workshop(config, StateDirectory(path), unused, find_plugins(), approvals)
    granted = AgentGranted(A, "ada", "rehearsal", 1, workdir)
    reporter = cast("Any", SimpleNamespace(take=None))
    return workshop.make_ports(unused, unused, granted, reporter)


async def test_a_directory_that_is_there_is_worked_in(tmp_path: Path) -> None:
    assert (await ports(tmp_path, str(tmp_path)).probe()).version


@pytest.mark.parametrize(
    ("workdir", "problem"),
    [
        ("/no/such", "does not exist"),
        ("/" + "x" * 300, "cannot be used .File name too long"),
        ("~nobody-of-this-name/src", "does not exist"),
        (os.devnull, "does not exist"),
    ],
)
async def test_where_no_process_can_work_is_a_problem_with_what_to_do(
    tmp_path: Path, workdir: str, problem: str
) -> None:
    given = ports(tmp_path, workdir)
    with pytest.raises(RuntimeMissing, match=problem) as caught:
        await given.probe()
    assert "agentteam agents set NAME --workdir DIR" in str(caught.value)


@pytest.mark.req("R83")
async def test_an_answerer_of_the_host_decides_before_a_person_is_asked(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def cautious(request: ApprovalRequest, following: Following) -> Any:
        if request.tool_name == "shell":
            return ApprovalOutcome.rejected
        return await following()

    consult = ports(tmp_path, None, cautious).consult
    assert await consult(ASK) is ApprovalOutcome.rejected
    with trio.move_on_after(3600) as waited:  # for a person
        await consult(ApprovalRequest(ApprovalId("apr_2"), RunId("run_1"), "read"))
    assert waited.cancelled_caught


async def test_without_answerers_a_person_is_waited_for(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with trio.move_on_after(3600) as waited:
        await ports(tmp_path, None).consult(ASK)
    assert waited.cancelled_caught
