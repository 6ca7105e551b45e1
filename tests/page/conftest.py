"""One browser and one product for the tests of the page; an agent for each."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.kit.product import open_up

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser
    from tests.kit.browser import Reader
    from tests.kit.product import Up

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    from tests.kit.browser import open_browser  # playwright comes with the tests

    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    with open_up(tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture
def api(up: Up) -> Generator[httpx.Client]:
    with httpx.Client(base_url=up.url, timeout=70) as client:
        yield client


@pytest.fixture
def agent(api: httpx.Client) -> str:
    """Make an agent of the test's own, and give its name."""
    name = f"ada{next(_numbers)}"
    body = {"name": name, "runtime": "rehearsal"}
    assert api.post("/api/agents", json=body).status_code == 201
    return name


@pytest.fixture
def person(browser: Browser, up: Up, agent: str) -> Generator[Reader]:
    """Somebody who looks at the conversation with the agent."""
    from tests.kit.browser import reader

    with reader(browser, up.url) as looking:
        yield looking.open(f"@{agent}")
