"""
`builtin`: the same driver over the OpenCode that we keep ourselves.

Its sessions stay below the agent's own directory: the user's OpenCode may be newer, and
bring the data they would share into a form that this one cannot read.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import evolve

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.opencode import managed
from agentteam_runtimes.opencode.driver import OpenCodeDriver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from agentteam_runtimes.driver import (
        Capabilities,
        Emit,
        Options,
        Runtime,
        SessionSpec,
    )

PRIVATE = {
    "XDG_DATA_HOME": "data",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
}


class BuiltinDriver(OpenCodeDriver):
    """The driver of the managed OpenCode; the option `bin` has no place here."""

    name = "builtin"

    def probe(self, options: Options) -> Capabilities:
        return super().probe(_with_program(options))

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime, None]:
        options = _with_program(spec.options)
        if options.home is None:
            private = _private(spec.state_dir / "opencode")
            options = evolve(options, env=private | dict(options.env))
        spec = evolve(spec, options=options)
        async with super().open(spec, resume, emit) as runtime:
            yield runtime


def _with_program(options: Options) -> Options:
    if options.bin is not None:
        raise RuntimeMissing(
            "the runtime builtin brings its program: it has no option `bin`",
            "take the option away, or use the runtime opencode",
        )
    found = managed.find_program(managed.state_directory())
    return evolve(options, bin=str(found))


def _private(directory: Path) -> dict[str, str]:
    return {name: str(directory / below) for name, below in PRIVATE.items()}
