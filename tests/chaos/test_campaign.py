"""A short campaign against the product that is installed here."""

from __future__ import annotations

import pytest
import trio

from agentteam_supervisor.chaos.campaign import Campaign

SEED = 20


@pytest.mark.slow
@pytest.mark.req("R40", "R43", "R118", "R121", "R132")
@pytest.mark.bug("B01", "B02", "B06", "B36")
@pytest.mark.inv(6, 7, 8, 9, 12, 13, 15, 19, 21, 22, 32, 35, 36)
async def test_a_short_campaign_finds_nothing() -> None:
    story: list[str] = []
    campaign = Campaign(SEED, story.append, minutes=0.4)
    with trio.fail_after(300):
        proof = await campaign.run()
    assert proof.ok, "\n".join([*story, proof.line()])
    assert proof.faults.total() > 3, proof.line()
    assert proof.states["surfaced"] > 3, proof.line()
