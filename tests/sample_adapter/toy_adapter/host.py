"""The process around the SDK: asyncio lives here, and only lines leave it."""

from __future__ import annotations

import asyncio  # the SDK runs on it, in a process of its own
import json
import sys
from pathlib import Path
from typing import Any

from sdk import NoSuchSession, ToyAgent


def tell(kind: str, **fields: Any) -> None:
    """Write one line; every line of a turn carries the turn's name."""
    print(json.dumps({"type": kind, **fields}), flush=True)


async def play(agent: ToyAgent, turn: str, messages: dict[str, str]) -> None:
    """Run one query; exactly one `ended` comes of it, whatever happens."""
    status, detail, answer = "completed", "", ""
    call = 0
    try:
        async for kind, text in agent.query(messages):
            call += kind == "tool"
            answer = text if kind == "answer" else answer
            tell(kind, turn=turn, text=text, call=f"{turn}-{call}")
    except asyncio.CancelledError:
        status = "interrupted"
    except RuntimeError as error:
        status, detail = "failed", str(error)
    left = sorted(set(messages) - set(agent.message_ids()))
    tell("ended", turn=turn, status=status, detail=detail, text=answer, dropped=left)


async def serve(agent: ToyAgent) -> None:
    """Take the driver's lines; reading never waits for the turn that runs."""
    loop, stdin = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin.buffer
    )
    tell("ready", session=agent.session)
    running: asyncio.Task[None] | None = None
    while line := await stdin.readline():
        order = json.loads(line)
        if order["op"] == "turn":
            tell("started", turn=order["turn"])
            work = play(agent, order["turn"], order["messages"])
            running = asyncio.create_task(work)
            await asyncio.sleep(0)  # it has begun: a cancel finds it inside
        elif order["op"] == "interrupt" and running is not None:
            running.cancel()
        elif order["op"] == "history":
            tell("history", ids=agent.message_ids())


if __name__ == "__main__":
    session = sys.argv[2] if len(sys.argv) > 2 else None
    try:
        agent = ToyAgent(Path(sys.argv[1]), session)
    except NoSuchSession as missing:
        tell("no_session", detail=str(missing))
    else:
        asyncio.run(serve(agent))
