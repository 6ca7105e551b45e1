"""The desk of the tests that start the real Claude, in the version of their file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.claude_desk import ClaudeDesk, open_claude_desk
from tests.kit.claude_home import VERSIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=[pytest.param(v, marks=pytest.mark.needs(v)) for v in VERSIONS])
async def desk(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ClaudeDesk]:
    """Both versions pass the same tests."""
    async with open_claude_desk(tmp_path, request.param) as desk:
        yield desk
