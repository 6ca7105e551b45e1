"""Mark urgent, with the real Codex below: what is cut, what is read next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.coder import Coder
    from tests.kit.product_agent import Live

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

CUT = ["requested", "stopping", "interrupted", "started"]


async def shown(live: Live, coder: Coder, kind: str) -> int:
    """Wait until a line of this kind is shown live; gives its place."""
    with trio.fail_after(30):
        while True:
            for place, event in enumerate(live.of(coder.agent)):
                if event["kind"] == kind:
                    return place
            await trio.sleep(0.002)


COMMANDS = {
    "plain": "touch begun; sleep 2; touch late",
    "deaf to TERM": "trap '' TERM INT HUP; touch begun; sleep 2; touch late",
}


@pytest.mark.req("R42", "R53", "R58")
@pytest.mark.bug("B01", "B24")
@pytest.mark.parametrize("kind", COMMANDS)
async def test_a_command_that_codex_has_not_told_of_is_gone_before_the_cut_is_told(
    coder: Coder, live: Live, kind: str
) -> None:
    """Codex tells of a command only some 100 ms after its start, or never if cut."""
    await coder.runs(COMMANDS[kind], "begun")
    began = trio.current_time()
    assert coder.processes("sleep 2")
    urgent = await coder.agent.urge("leave that")
    await shown(live, coder, "interrupted")
    left = [p.cmdline() for p in coder.processes("sleep")]
    await coder.product.surfaced(urgent)
    await coder.agent.idle()
    assert await coder.agent.lines(urgent) == CUT
    await trio.sleep_until(began + 2.3)
    calls = await coder.agent.journal("tool/call", "tool/result")
    assert left == []
    assert not coder.file("late").exists()
    assert [c["kind"] for c in calls] in ([], ["tool/call", "tool/result"])
    after = coder.model.told("leave that")[0]
    assert after.user_texts[-1] == "leave that"
    assert "aborted" in after.outputs[-1]


@pytest.mark.req("R78")
@pytest.mark.bug("B26")
async def test_what_a_person_allows_runs_once_and_what_they_reject_never(
    asking_coder: Coder,
) -> None:
    asking = do({"run": "touch allowed"}, {"run": "touch rejected"})
    await asking_coder.agent.deliver(asking)
    first = await asking_coder.agent.approval()
    await asking_coder.product.decide(first["id"], "allowed-once")
    second = await asking_coder.agent.until(
        lambda view: (
            {a["id"] for a in view["pendingApprovals"]} not in (set(), {first["id"]})
        )
    )
    await asking_coder.product.decide(second["pendingApprovals"][-1]["id"], "rejected")
    await asking_coder.agent.idle()
    assert asking_coder.file("allowed").exists()
    assert not asking_coder.file("rejected").exists()


@pytest.mark.bug("B07")
@pytest.mark.inv(4, 5, 20)
async def test_an_approval_answered_in_the_tick_of_the_cut_has_one_outcome(
    asking_coder: Coder,
) -> None:
    """Whichever comes first holds, for the person and for the command."""
    for number in range(6):
        await allowed_while_cut(asking_coder, number)
    events = await asking_coder.agent.journal("approval/asked", "approval/decided")
    kinds = [e["kind"] for e in events]
    assert kinds == ["approval/asked", "approval/decided"] * 6


async def allowed_while_cut(coder: Coder, number: int) -> None:
    """Send the allow and the urgent at once; check that both tell one story."""
    await coder.agent.deliver(do({"run": f"touch racing{number}"}))
    approval = (await coder.agent.approval())["id"]
    message = await coder.agent.send(f"instead {number}")
    path = f"/api/approvals/{approval}/decision"
    answers: list[Any] = []

    async def allow() -> None:
        body = {"outcome": "allowed-once"}
        answers.append(await coder.product.client.post(path, json=body))

    async with trio.open_nursery() as nursery:
        if number % 2:
            nursery.start_soon(allow)
        urgent = (await coder.agent.mark(message))["id"]
        if not number % 2:
            nursery.start_soon(allow)
    await coder.product.surfaced(urgent)
    await coder.agent.idle()
    decided = (await coder.agent.journal("approval/decided"))[-1]["outcome"]
    ran = coder.file(f"racing{number}").exists()
    allowed = answers[0].status_code == 200
    assert allowed or not ran, "it ran and the person was told that it would not"
    if decided == "cancelled":
        assert not ran
    assert coder.read[-1] == f"instead {number}"
