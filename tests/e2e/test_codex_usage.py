"""What a turn of the real Codex cost is in the ledger of turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.coder import open_coder

if TYPE_CHECKING:
    from tests.kit.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


async def test_each_run_shows_the_tokens_that_codex_counted(product: Product) -> None:
    with trio.fail_after(60):
        async with open_coder(product) as coder:
            for body in ("one", "two"):
                await product.surfaced(await coder.agent.deliver(body))
                await coder.agent.idle()
            first, second = await coder.agent.runs()
    assert first["usage"]["totalTokens"] > 0
    assert second["usage"] == first["usage"]  # its own, not the thread's
