"""
The stage: what only the author of a driver can do, which is to script his model.

The kit calls it with plain words; each of the methods below returns the **body of a
message** that makes the runtime's model do the thing when it reads it. A stage that
scripts its model from outside prepares it there, and returns a body by which the model
knows what to do.

A method that is left alone returns None: this runtime cannot do that, or nobody could
make it. The checks that need it are skipped, and the report names what was claimed
and not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentteam_runtimes.driver import InputItem, Options


class Stage(Protocol):
    """Inherit from it, give the first three methods, and of the others what you can."""

    def options(self) -> Options:
        """Give the options to open the runtime with; its tools run without asking."""
        ...

    def say(self, text: str) -> str:
        """Make the model answer exactly this text, at once, and end the turn."""
        ...

    def stream(self, seconds: float) -> str:
        """Make the model stream words for so long, several in each second."""
        ...

    def run(self, shell: str) -> str | None:
        """
        Make the model run this shell command as a tool, in the session's workdir.

        The turn waits for it; then the model reads what came in meanwhile, says
        something and ends the turn.
        """
        return None

    def asking(self) -> Options | None:
        """Give options with which the tool of `run` wants an approval first."""
        return None

    def call(self, text: str) -> str | None:
        """Make the model call `send_message` with this text, then end the turn."""
        return None

    def fail(self) -> str | None:
        """Make the turn end by an error of the model or the runtime."""
        return None

    def seen(self, entry: InputItem) -> int | None:
        """
        Count how often the model was given the entry, by the model's own side.

        By its newest request, if each holds the whole context; by its key or its text,
        whichever your model can see: the kit sends no text twice.
        """
        return None

    def interrupts(self) -> int | None:
        """Count the interrupt requests that the runtime was sent so far."""
        return None


# One call for each check, with a fresh directory; the session's `workdir` and
# `state_dir` are `work` and `state` below it, and exist already.
OpenStage = Callable[[Path], AbstractAsyncContextManager[Stage]]
