"""A Codex that cannot run: a person is told what is wrong and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.coder import open_coder
from tests.kit.product_agent import until

if TYPE_CHECKING:
    from tests.kit.coder import Coder
    from tests.kit.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

# What stands where the program should be, and a part of what is said of it.
PROGRAMS = {
    "missing": (None, "there is no program"),
    "of an old version": ("#!/bin/sh\necho codex-cli 0.98.0\n", "older than"),
    "another program": ("#!/bin/sh\necho GNU sed 4.9\n", "is no Codex"),
    "garbage": ("\x7fELF this is no program", "does not run"),
    "one that leaves": (
        "#!/bin/sh\n[ $1 = --version ] && echo codex-cli 0.171.0 && exit 0\n"
        "echo no such setting: x >&2\nexit 3\n",
        "exited with 3 during its start: no such setting: x",
    ),
}


@pytest.mark.req("R49", "R55", "R56", "R57", "R137")
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_program_that_is_no_codex_is_named_with_what_to_do(
    coder: Coder, kind: str
) -> None:
    text, part = PROGRAMS[kind]
    program = coder.home.path / "codex"
    program.unlink()
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    urgent = await coder.agent.urge("are you there?")
    found = await coder.product.ended(urgent)
    view = await coder.agent.idle()
    assert (await coder.agent.lines(urgent))[-1] == "failed"
    assert found["state"] == "failed"
    assert found["evidence"] is None
    assert part in found["diagnostic"]["problem"]
    assert found["diagnostic"]["whatToDo"]
    assert part in view["problem"]["problem"]
    assert coder.model.requests == []


@pytest.mark.req("R55", "R56")
async def test_without_a_key_the_turn_fails_and_the_variable_is_named(
    product: Product,
) -> None:
    keyless: dict[str, Any] = {"env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}}
    with trio.fail_after(60):
        async with open_coder(product, options=keyless) as coder:
            await coder.agent.deliver("are you there?")
            runs = await until(
                coder.agent.runs, lambda runs: runs and runs[0]["outcome"]
            )
            await coder.agent.idle()
    assert runs[0]["outcome"] == "error"
    assert "SCRIPTED_MODEL_KEY" in runs[0]["detail"]
    assert coder.model.requests == []
