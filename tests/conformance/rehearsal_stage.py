"""The stage of the scripted runtime: bodies that carry their script."""

from __future__ import annotations

import itertools
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from agentteam_runtimes.conformance.stage import Stage
from agentteam_runtimes.driver import Options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentteam_runtimes.driver import InputItem

# The Python that plays, with a pipe before it that keeps what it is told.
RECORDER = """\
#!/bin/sh
mkfifo "{log}.$$"
exec 3<&0
tee -a "{log}" <&3 >"{log}.$$" 2>/dev/null &
exec "{python}" "$@" <"{log}.$$" 3<&-
"""


@define(eq=False)
class RehearsalStage(Stage):
    directory: Path
    _asks: bool = False
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1))

    def options(self) -> Options:
        return Options(bin=str(self.directory / "python"))

    def asking(self) -> Options:
        self._asks = True
        return self.options()

    def say(self, text: str) -> str:
        return self._do({"say": text, "times": 1})

    def stream(self, seconds: float) -> str:
        return self._do({"say": "word " * int(seconds * 20), "ms": 50})

    def run(self, shell: str) -> str:
        asking = [{"ask": "shell", "input": shell}] if self._asks else []
        return self._do(*asking, {"run": shell}, {"say": "done", "times": 1})

    def call(self, text: str) -> str:
        return self._do({"send": text})

    def fail(self) -> str:
        return self._do({"fail": "the model is away"})

    def seen(self, entry: InputItem) -> int:
        line = json.dumps({"surfaced": entry.key})
        records = (self.directory / "state").glob("*.jsonl")
        return sum(r.read_text().splitlines().count(line) for r in records)

    def interrupts(self) -> int:
        return self._log.read_text().count('"op":"interrupt"')

    @property
    def _log(self) -> Path:
        return self.directory / "wire"

    def _do(self, *steps: dict[str, Any]) -> str:
        return f"#do {json.dumps(steps)}\n(entry {next(self._numbers)})"


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncGenerator[RehearsalStage]:
    stage = RehearsalStage(directory)
    program = directory / "python"
    log = directory / "wire"
    program.write_text(RECORDER.format(log=log, python=sys.executable))
    program.chmod(0o755)
    yield stage
