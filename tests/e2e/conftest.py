"""One product for the tests of a file that need none of their own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.coder import ASKS, Coder, open_coder
from tests.kit.product import Product, Up, open_up, person_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from tests.kit.product_agent import Live

CODER_SECONDS = 120.0


@pytest.fixture(scope="module")
def shared_up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    with open_up(tmp_path_factory.mktemp("product")) as up:
        yield up


@pytest.fixture
async def product(shared_up: Up) -> AsyncGenerator[Product]:
    """Give the file's product; a test that uses it has agents of its own."""
    async with person_at(shared_up) as product:
        yield product


@pytest.fixture
async def coder(product: Product) -> AsyncGenerator[Coder]:
    """Give an agent on the real Codex; bounds the test that uses it."""
    async with bounded(), open_coder(product) as coder:
        yield coder


@pytest.fixture
async def asking_coder(product: Product) -> AsyncGenerator[Coder]:
    """Give one that asks before each command."""
    async with bounded(), open_coder(product, ASKS, approvalPolicy="ask") as coder:
        yield coder


@pytest.fixture
async def live(product: Product) -> AsyncGenerator[Live]:
    """Watch the event stream of the file's product."""
    async with product.live() as live:
        yield live


@asynccontextmanager
async def bounded() -> AsyncGenerator[None]:
    """End a test that takes too long: a cancel scope of a fixture would not reach it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run_out)
        yield
        nursery.cancel_scope.cancel()


async def _run_out() -> None:
    await trio.sleep(CODER_SECONDS)
    raise TimeoutError(f"not done within {CODER_SECONDS:g} s")
