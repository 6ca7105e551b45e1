"""What the disk did not take is known and shown, until the store knows better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.frames import AgentTroubled, StatusReported
from agentteam_protocol.ids import AgentId
from agentteam_supervisor.server import disk
from agentteam_supervisor.server.disk import Disk, what_is_wrong
from agentteam_supervisor.server.unstored import Unstored

if TYPE_CHECKING:
    from pathlib import Path

A = AgentId("agt_a")
TROUBLED = AgentTroubled(A, 1, Diagnostic("the log is not writable", "free the disk"))
RUNNING: dict[str, Any] = {
    "id": A,
    "status": "running",
    "currentRun": {"id": "run_1"},
    "detail": {"phase": "running", "leaseEpoch": 1},
    "daemon": {"id": "dmn_1", "connected": True},
    "problem": None,
}


def test_without_trouble_the_store_is_right(tmp_path: Path) -> None:
    assert Unstored(tmp_path).over(RUNNING, connected=False) == RUNNING


def test_a_dead_run_is_not_shown_as_running(tmp_path: Path) -> None:
    unstored = Unstored(tmp_path, "disk is full")
    unstored.keep([TROUBLED])
    shown = unstored.over(RUNNING, connected=False)
    assert (shown["status"], shown["currentRun"]) == ("idle", None)
    assert shown["detail"] == {"phase": "offline", "leaseEpoch": 1}
    assert shown["daemon"]["connected"] is False
    assert shown["problem"] == unstored.problem
    assert unstored.runs(A) is False


def test_what_is_known_outlasts_the_trouble_until_it_is_stored(tmp_path: Path) -> None:
    unstored = Unstored(tmp_path, "disk is full")
    unstored.keep([TROUBLED])
    unstored.trouble = None
    shown = unstored.over(RUNNING, connected=True)
    assert (shown["status"], shown["problem"]) == ("idle", None)
    unstored.stored([StatusReported(A, 1, True, "running", False)])
    assert unstored.over(RUNNING, connected=True) == RUNNING
    assert unstored.runs(A) is None


def test_a_run_that_goes_on_is_shown_as_such(tmp_path: Path) -> None:
    unstored = Unstored(tmp_path, "disk is full")
    unstored.keep([StatusReported(A, 1, True, "running", False)])
    shown = unstored.over(RUNNING, connected=True)
    assert shown["currentRun"] == {"id": "run_1"}
    assert shown["problem"] is not None


@pytest.mark.parametrize(
    ("found", "problem", "todo"),
    [
        (Disk(0), "is full (0.0 MiB left)", "free at least 64 MiB"),
        (Disk(1 << 40, inodes=False), "is full (no file left)", "free at least"),
        (Disk(1 << 40, read_only=True), "is read-only", "mount it"),
        (Disk(1 << 40), "said so", "see that it can be written"),
    ],
)
def test_the_advice_is_of_the_disk_as_it_is_now(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Disk,
    problem: str,
    todo: str,
) -> None:
    monkeypatch.setattr(disk, "look_at_disk", lambda _: found)
    words = what_is_wrong(tmp_path, "said so")
    assert problem in words[0]
    assert todo in words[1]


def test_a_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    problem, _ = what_is_wrong(tmp_path / "gone", "said so")
    assert "cannot be looked at" in problem
