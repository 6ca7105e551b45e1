"""What a turn of the real Codex cost is in the ledger of turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


async def test_each_run_shows_the_tokens_that_codex_counted(coder: Coder) -> None:
    for body in ("one", "two"):
        await coder.product.surfaced(await coder.agent.deliver(body))
        await coder.agent.idle()
    first, second = await coder.agent.runs()
    assert first["usage"]["totalTokens"] > 0
    assert second["usage"] == first["usage"]  # its own, not the thread's
