"""The managed OpenCode: missing, installed, and then the one that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.parts import find_part
from tests.kit.service import run_command

from agentteam_runtimes.opencode import managed

if TYPE_CHECKING:
    from tests.kit.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.needs("opencode")]


@pytest.mark.req("R65", "R68")
async def test_builtin_is_told_to_be_missing_and_is_there_once_it_is_installed(
    product: Product,
) -> None:
    """What it does then is in the matrix."""
    with trio.fail_after(120):
        missing = await product.agent(runtime="builtin")
        found = await product.ended(await missing.urge("are you there?"))
        await trio.to_thread.run_sync(install, product)
        made = await product.agent(runtime="builtin")
        view = await made.until(lambda view: "version" in view["capabilities"])
    assert found["state"] == "failed"
    assert "runtimes install builtin" in found["diagnostic"]["whatToDo"]
    assert view["capabilities"]["version"] == managed.VERSION
    assert managed.program(product.up.state).exists()


def install(product: Product) -> None:
    source = find_part("opencode")
    words = ("runtimes", "install", "builtin", "--from", str(source))
    done = run_command(product.up.state, *words)
    assert done.code == 0, done
