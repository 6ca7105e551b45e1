"""A fresh server for each test of the server and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.server import RunningServer, open_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[RunningServer]:
    async with open_server(tmp_path) as running:
        with trio.fail_after(20):
            yield running
