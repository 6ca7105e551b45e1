"""One product for the tests of a file that need none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.product import Product, Up, open_up, person_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


@pytest.fixture(scope="module")
def shared_up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    with open_up(tmp_path_factory.mktemp("product")) as up:
        yield up


@pytest.fixture
async def product(shared_up: Up) -> AsyncGenerator[Product]:
    """Give the file's product; a test that uses it has agents of its own."""
    async with person_at(shared_up) as product:
        yield product
