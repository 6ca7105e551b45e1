"""The real Codex does not take its session up again: held by another, or damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.codex_desk import CodexDesk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


async def begun(coder: Coder) -> str:
    """Have one whole turn and lose the process; gives the thread."""
    await coder.product.surfaced(await coder.agent.deliver("remember me. "))
    await coder.agent.idle()
    coder.runtime().kill()
    await coder.agent.recorded("run/process", alive=False)
    return str((await coder.agent.journal("run/session"))[-1]["token"])


@pytest.mark.req("R54", "R55", "R56", "R57")
@pytest.mark.bug("B03", "B12")
@pytest.mark.inv(12, 13, 21, 35)
async def test_a_session_that_another_process_has_is_waited_for_and_not_replaced(
    coder: Coder,
) -> None:
    thread = await begun(coder)
    desk = CodexDesk(coder.model, coder.home)
    async with desk.open(resume=thread):
        note = await coder.agent.deliver("and then? ")
        view = await coder.agent.until(lambda v: v["problem"])
        assert "already has an active writer" in view["problem"]["problem"]
        urgent = await coder.agent.urge("now! ")
        found = await coder.product.ended(urgent)
        assert found["state"] == "failed"
        assert found["diagnostic"]["whatToDo"]
        assert (await coder.product.delivery(note))["state"] == "queued"
    await coder.agent.resume()
    await coder.product.surfaced(note)
    await coder.agent.idle()
    assert coder.home.calls.count("thread/start") == 1
    assert "".join(coder.read) == "remember me. and then? now! "


@pytest.mark.req("R44", "R56")
@pytest.mark.bug("B03", "B10")
@pytest.mark.inv(12, 13)
@pytest.mark.parametrize("left", [None, b"", b"\0no record\n" * 400])
async def test_a_history_that_is_lost_is_begun_anew_once_and_said_to_be(
    coder: Coder, left: bytes | None
) -> None:
    await begun(coder)
    rollout = history_file(coder)
    if left is None:
        rollout.unlink()
    else:
        rollout.write_bytes(left)
    await coder.product.surfaced(await coder.agent.deliver("who am I? "))
    await coder.agent.idle()
    (told,) = coder.read
    assert told.endswith("who am I? ")
    assert "history of this session is not available" in told
    assert coder.home.calls.count("thread/start") == 2
    notices = [e["text"] for e in await coder.agent.journal("run/notice")]
    assert sum("history not available" in text for text in notices) == 1
    shown = [item["text"] for item in await coder.agent.activity()]
    assert any("history not available" in text for text in shown)


@pytest.mark.bug("B03", "B10")
async def test_a_history_with_a_torn_end_is_taken_up_again(coder: Coder) -> None:
    await begun(coder)
    rollout = history_file(coder)
    rollout.write_bytes(rollout.read_bytes()[:-30])
    await coder.product.surfaced(await coder.agent.deliver("who am I? "))
    await coder.agent.idle()
    assert coder.read == ["remember me. ", "who am I? "]
    assert coder.home.calls.count("thread/start") == 1


def history_file(coder: Coder) -> Path:
    (rollout,) = (coder.home.path / ".codex" / "sessions").rglob("*.jsonl")
    return rollout
