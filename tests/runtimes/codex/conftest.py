"""The desk of the tests that start the real Codex, and one session of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.codex_desk import CodexDesk, open_codex_desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentteam_runtimes.driver import Runtime

SESSION_SECONDS = 60.0


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[CodexDesk]:
    async with open_codex_desk(tmp_path) as desk:
        yield desk


@pytest.fixture
async def runtime(desk: CodexDesk) -> AsyncIterator[Runtime]:
    """Give an open session of the desk; bounds the test that uses it."""
    async with trio.open_nursery() as nursery:
        # A cancel scope of a fixture would not reach the test.
        nursery.start_soon(_run_out)
        async with desk.open() as runtime:
            yield runtime
        nursery.cancel_scope.cancel()


async def _run_out() -> None:
    await trio.sleep(SESSION_SECONDS)
    raise TimeoutError(f"not done within {SESSION_SECONDS:g} s")
