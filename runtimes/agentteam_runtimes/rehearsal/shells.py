"""The program's tool processes, in sessions of their own. Standard library only."""

from __future__ import annotations

import codecs
import os
import signal
import threading
from subprocess import (
    DEVNULL,
    PIPE,
    STDOUT,
    Popen,  # noqa: TID251 - this program is foreign to the daemon
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# A grandchild may hold the pipe open when the shell itself is long gone.
DRAIN_SECONDS = 0.2
KEPT_CHARS = 64 * 1024


class Shell:
    """One shell command: it streams, and outlives whoever waits for it."""

    def __init__(
        self,
        line: str,
        on_output: Callable[[str], None],
        on_end: Callable[[Shell], None],
    ) -> None:
        self.output = ""
        self.returncode: int | None = None
        self._on_output = on_output
        self._on_end = on_end
        self._process = _popen(line, PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def kill(self) -> None:
        """End the command's process group, if the command still runs."""
        if self.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pipe = self._process.stdout
        while pipe is not None and (data := os.read(pipe.fileno(), 65536)):
            text = decoder.decode(data)
            self.output = (self.output + text)[-KEPT_CHARS:]
            self._on_output(text)

    def _wait(self) -> None:
        self.returncode = self._process.wait()
        self._reader.join(DRAIN_SECONDS)
        self._on_end(self)


def spawn(line: str) -> int:
    """Start a child that nobody looks after; returns its process id."""
    process = _popen(line, DEVNULL)
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


def _popen(line: str, output: int) -> Popen[bytes]:
    return Popen(
        ["/bin/sh", "-c", line],
        stdin=DEVNULL,
        stdout=output,
        stderr=STDOUT if output == PIPE else output,
        start_new_session=True,
    )
