"""
The Toy SDK: somebody else's agent, which you cannot change and which wants asyncio.

Its model plays what a message says: `{"say": TEXT}`, `{"stream": SECONDS}`,
`{"run": SHELL}`, `{"fail": TEXT}`. Any other message is answered with what it heard.
"""

from __future__ import annotations

import asyncio  # the point of the sample: an SDK that has nothing else
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class NoSuchSession(Exception):
    """There is nothing to continue under that name."""


class ToyAgent:
    """One session; what it has read is in a file of its directory."""

    def __init__(self, directory: Path, session: str | None = None) -> None:
        self.session = session or f"toy-{secrets.token_hex(4)}"
        self._file = directory / f"{self.session}.jsonl"
        if session is None:
            self._file.touch()
        elif not self._file.is_file():
            raise NoSuchSession(session)

    def message_ids(self) -> list[str]:
        """Name the messages that the model has in its input, oldest first."""
        return [json.loads(line)["id"] for line in self._file.read_text().splitlines()]

    async def query(self, messages: dict[str, str]) -> AsyncIterator[tuple[str, str]]:
        """Read the messages, then act on the last; cancel it to interrupt."""
        with self._file.open("a") as file:
            for id, text in messages.items():
                file.write(json.dumps({"id": id, "text": text}) + "\n")
        for id in messages:
            yield "read", id
        async for event in self._act(list(messages.values())[-1]):
            yield event

    async def _act(self, text: str) -> AsyncIterator[tuple[str, str]]:
        try:
            step: dict[str, Any] = json.loads(text.partition("\n")[0])
        except ValueError:
            step = {"say": f"Heard: {text}"}
        if "fail" in step:
            raise RuntimeError(step["fail"])
        for _ in range(int(step.get("stream", 0) * 20)):
            await asyncio.sleep(0.05)
            yield "delta", "word "
        if "run" in step:
            yield "tool", step["run"]
            shell = await asyncio.create_subprocess_shell(
                step["run"], stdout=asyncio.subprocess.PIPE, start_new_session=True
            )
            output, _ = await shell.communicate()
            yield "result", output[-1000:].decode(errors="replace")
        yield "answer", step.get("say", "done")
