"""An agent on Claude Code is made: without the program, on a session, with our tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.claude_coder import ClaudeCoder, open_claude_coder
from tests.kit.claude_desk import ClaudeDesk
from tests.kit.claude_home import VERSIONS
from tests.kit.product_agent import until
from tests.kit.service import open_service, run_command

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product

pytestmark = pytest.mark.slow

either = pytest.mark.parametrize(
    "version", [pytest.param(v, marks=pytest.mark.needs(v)) for v in VERSIONS]
)


@pytest.mark.req("R55", "R56", "R57")
def test_without_the_program_a_person_is_told_at_once_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_service(tmp_path):
        made = run_command(tmp_path, "agents", "add", "coder", "--runtime", "claude")
        run_command(tmp_path, "send", "@coder", "are you there?")
        urged = run_command(tmp_path, "urgent", "--last")
    assert made.code == 0
    assert "there is no program claude" in made.stderr
    assert "npm install -g @anthropic-ai/claude-code" in made.stderr
    assert urged.code != 0
    assert "there is no program claude" in urged.stdout + urged.stderr


@either
async def test_a_session_that_a_person_already_has_goes_on_as_an_agent(
    product: Product, version: str
) -> None:
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as first:
            desk = ClaudeDesk(first.model, first.home)
            async with desk.open() as runtime:
                await desk.ended(await desk.begin(runtime, desk.item("said by hand. ")))
            options = {**first.home.options(), "resume": desk.session}
            workdir = str(first.home.workdir)
            agent = await product.agent(
                runtime="claude", workdir=workdir, options=options
            )
            second = ClaudeCoder(product, first.model, first.home, agent)
            await product.surfaced(await agent.deliver("and as an agent. "))
            await agent.idle()
            second.runtime().kill()
            await agent.recorded("run/process", alive=False)
            forget(second)
            await product.surfaced(await agent.deliver("who am I? "))
            await agent.idle()
            notices = await agent.journal("run/notice")
            await product.client.delete(agent.path)
    told = first.model.told("and as an agent. ")[0]
    assert told.user_texts == ["said by hand. ", "and as an agent. "]
    # What is lost is begun anew, once, and said to be.
    (anew,) = second.read
    assert anew.endswith("who am I? ")
    assert "history of this session is not available" in anew
    assert sum("history not available" in n["text"] for n in notices) == 1


def forget(coder: ClaudeCoder) -> None:
    """Delete what Claude has kept of its sessions."""
    for record in coder.home.records:
        record.unlink()


@either
@pytest.mark.req("R23", "R24")
async def test_the_agent_reads_and_sends_with_tools_of_ours_and_needs_no_approval(
    product: Product, version: str
) -> None:
    with trio.fail_after(90):
        async with open_claude_coder(product, version, {}) as coder:
            here = f"@{coder.agent.name}"
            steps = (
                ours("read_history", target=here),
                ours("send_message", target=here, text="here is my report"),
            )
            await coder.agent.deliver(do(*steps, {"say": "done"}))
            said = await until(coder.agent.said, bool)
            await coder.agent.idle()
            calls = await coder.agent.journal("tool/call", "tool/result")
    assert said == ["here is my report"]
    assert [c["kind"] for c in calls] == ["tool/call", "tool/result"] * 2
    read, sent = coder.model.requests[-1].outputs
    assert "read_history" in read
    assert "Not sent" not in sent


def ours(tool: str, **given: Any) -> dict[str, Any]:
    return {"call": f"mcp__agentteam__{tool}", "with": given}
