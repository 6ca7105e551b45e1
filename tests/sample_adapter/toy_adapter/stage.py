"""The stage for the conformance kit: bodies that the Toy SDK's model plays."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from agentteam_runtimes.conformance.stage import Stage
from agentteam_runtimes.driver import InputItem, Options


class ToyStage(Stage):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.numbers = itertools.count(1)

    def options(self) -> Options:
        return Options()

    def say(self, text: str) -> str:
        return self.body(say=text)

    def stream(self, seconds: float) -> str:
        return self.body(stream=seconds)

    def run(self, shell: str) -> str:
        return self.body(run=shell)

    def fail(self) -> str:
        return self.body(fail="the model is away")

    def seen(self, entry: InputItem) -> int:
        """Count its key in the SDK's own record."""
        files = (self.directory / "state").glob("toy-*.jsonl")
        return sum(file.read_text().count(json.dumps(entry.key)) for file in files)

    def body(self, **step: str | float) -> str:
        return f"{json.dumps(step)}\n(entry {next(self.numbers)})"


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncGenerator[ToyStage]:
    yield ToyStage(directory)
