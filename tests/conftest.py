"""Outside parts: a test that needs one is skipped without it, never where required."""

from __future__ import annotations

import os

import pytest
from tests.kit.parts import PARTS, find_part


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("AGENTTEAM_REQUIRE", "").split(",")
    for marker in item.iter_markers("needs"):
        for part in marker.args:
            if find_part(part) is not None:
                continue
            message = f"needs {part}: {PARTS[part].install}"
            if part in required or "all" in required:
                pytest.fail(message)
            pytest.skip(message)
