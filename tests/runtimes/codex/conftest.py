"""The desk of the tests that start the real Codex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.codex_desk import CodexDesk, open_codex_desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[CodexDesk]:
    async with open_codex_desk(tmp_path) as desk:
        yield desk
