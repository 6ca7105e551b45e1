"""A runtime that talks without end is read, counted, and starves nobody."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import define
from tests.kit.rehearsal import open_stage
from tests.kit.trees import ENVIRONMENT, python

from agentteam_runtimes.connection import Connection
from agentteam_runtimes.driver import Noticed, Output
from agentteam_runtimes.incarnation import open_incarnation
from agentteam_runtimes.jsonlines import Noise
from agentteam_runtimes.rehearsal.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from agentteam_runtimes.noise import NoiseCount

    Feed = Callable[[Sequence[bytes]], None]

pytestmark = pytest.mark.slow

LONGEST_WAIT = 0.5
TINY_LINES = 200_000
WORDS = 30_000


@define
class Sibling:
    """Another agent's task: how long it waited for its turn at most."""

    longest: float = 0.0

    async def live(self) -> None:
        while True:
            began = trio.current_time()
            await trio.sleep(0.001)
            self.longest = max(self.longest, trio.current_time() - began)


@asynccontextmanager
async def beside() -> AsyncGenerator[Sibling]:
    sibling = Sibling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sibling.live)
        yield sibling
        nursery.cancel_scope.cancel()


def rehearsal() -> tuple[Feed, NoiseCount]:
    conversation = Conversation(lambda _: None)
    return conversation.feed, conversation.reading.noise


def codex() -> tuple[Feed, NoiseCount]:
    async def write(_: bytes) -> None: ...

    def take(received: Sequence[object]) -> None:
        for one in received:
            if isinstance(one, Noise):
                connection.noise.notice(one)

    connection = Connection(write, take)
    return connection.feed, connection.noise


@pytest.mark.bug("B15")
@pytest.mark.parametrize("line", [b"x\n", b"\n"])
@pytest.mark.parametrize("reader", [rehearsal, codex])
async def test_a_flood_of_noise_is_counted_exactly_and_starves_nobody(
    reader: Callable[[], tuple[Feed, NoiseCount]], line: bytes
) -> None:
    feed, noise = reader()
    script = (
        f"import os\nfor _ in range({TINY_LINES // 1000}): os.write(1, {line!r} * 1000)"
    )
    with trio.fail_after(60):
        async with (
            beside() as sibling,
            open_incarnation(
                python(script),
                cwd=Path("/"),
                env=ENVIRONMENT,
                on_lines=feed,
                on_overlong=print,
                on_exit=print,
            ) as incarnation,
        ):
            await incarnation.wait()
    assert noise.lines == TINY_LINES
    assert sibling.longest < LONGEST_WAIT


async def test_a_flood_of_noise_in_a_turn_starves_nobody(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_stage(tmp_path) as stage, beside() as sibling:
            await stage.play({"raw": "{x}\n", "times": TINY_LINES // 4})
    assert 0 < len(stage.all(Noticed)) < 40
    assert sibling.longest < LONGEST_WAIT


async def test_a_flood_of_short_words_is_read_whole_and_starves_nobody(
    tmp_path: Path,
) -> None:
    with trio.fail_after(60):
        async with open_stage(tmp_path) as stage, beside() as sibling:
            ended = await stage.play({"say": "a " * WORDS + "z", "ms": 0})
    assert "".join(piece.text for piece in stage.all(Output)) == ended.text
    assert ended.text == "a " * WORDS + "z"
    assert sibling.longest < LONGEST_WAIT
