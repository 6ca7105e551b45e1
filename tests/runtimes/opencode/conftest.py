"""The desk of the tests that start the real OpenCode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.opencode_desk import OpenCodeDesk, open_opencode_desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[OpenCodeDesk]:
    async with open_opencode_desk(tmp_path) as desk:
        yield desk
