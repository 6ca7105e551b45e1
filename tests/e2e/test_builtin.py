"""The managed OpenCode: missing, installed, and then the one that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.opencoder import open_opencoder
from tests.kit.parts import find_part
from tests.kit.product import open_patient_up, person_at
from tests.kit.service import run_command

from agentteam_runtimes.opencode import managed

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.kit.product import Product, Up

pytestmark = [pytest.mark.slow, pytest.mark.needs("opencode")]


@pytest.fixture
def patient_up(tmp_path: Path) -> Generator[Up]:
    with open_patient_up(tmp_path) as up:
        yield up


@pytest.mark.req("R65", "R68")
async def test_builtin_is_told_to_be_missing_and_runs_once_it_is_installed(
    patient_up: Up,
) -> None:
    """What more it does is in the matrix."""
    with trio.fail_after(400):
        async with person_at(patient_up) as product:
            missing = await product.agent(runtime="builtin")
            found = await product.ended(await missing.urge("are you there?"))
            await trio.to_thread.run_sync(install, product)
            async with open_opencoder(product, runtime="builtin") as coder:
                version = (await coder.agent.view())["capabilities"]["version"]
                program = coder.runtime().exe()
    assert found["state"] == "failed"
    assert "runtimes install builtin" in found["diagnostic"]["whatToDo"]
    assert version == managed.VERSION
    assert program == str(managed.program(patient_up.state))


def install(product: Product) -> None:
    source = find_part("opencode")
    words = ("runtimes", "install", "builtin", "--from", str(source))
    done = run_command(product.up.state, *words)
    assert done.code == 0, done
