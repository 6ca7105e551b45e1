"""The program's stdout: whole lines, one at a time. Standard library only."""

from __future__ import annotations

import json
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 20


class Outlet:
    """
    Writes lines, blocking when the host does not read, as a real runtime does.

    A host that is gone ends the program: there is nobody left to play for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False

    def send(self, type: str, **fields: Any) -> None:
        """Write one line of the protocol."""
        self.write(json.dumps({"type": type, **fields}).encode() + b"\n")

    def write(self, data: bytes, times: int = 1) -> None:
        """Write bytes as they stand, again and again, with nothing in between."""
        step = max(1, CHUNK // max(1, len(data)))
        with self._lock:
            while times > 0 and not self._closed:
                self._write_all(data * min(step, times))
                times -= step

    def leave(self, code: int) -> None:
        """End the program, but never in the middle of a line."""
        with self._lock:
            os._exit(code)

    def close(self) -> None:
        """Let the host see the end of the stream, and live on."""
        with self._lock:
            self._closed = True
            os.close(1)

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except BrokenPipeError:
            os._exit(0)
