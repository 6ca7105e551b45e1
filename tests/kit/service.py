"""The command as a person runs it: a process of its own, and what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Generator

# Beside this interpreter, as an install puts it.
COMMAND = Path(sys.executable).parent / "agentteam"

_popen = partial(
    subprocess.Popen,  # noqa: TID251 - the command itself, which is no runtime
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
)


def environment(state_dir: Path) -> dict[str, str]:
    return {
        "HOME": str(state_dir),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "AGENTTEAM_STATE_DIR": str(state_dir),
    }


@frozen
class Done:
    code: int
    stdout: str
    stderr: str


def run_command(state_dir: Path, *arguments: str, seconds: float = 60) -> Done:
    """Run one command to its end."""
    result = subprocess.run(
        [COMMAND, *arguments],
        env=environment(state_dir),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Done(result.returncode, result.stdout, result.stderr)


@frozen
class Service:
    """A running `agentteam up`."""

    process: subprocess.Popen[str]  # noqa: TID251 - the command, which is no runtime
    url: str
    line: str

    def tree(self) -> list[psutil.Process]:
        """Name it and everything below it, now."""
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def end(self, signal: int) -> Done:
        """Send the signal and wait for the end; more than one line would show here."""
        self.process.send_signal(signal)
        stdout, stderr = self.process.communicate(timeout=60)
        return Done(self.process.returncode, stdout, stderr)


@contextmanager
def open_service(
    state_dir: Path, *arguments: str, verb: str = "up"
) -> Generator[Service]:
    """Start a service (on a free port); it is ready when the block is entered."""
    port = () if verb == "daemon" else ("--port", "0")
    command = [COMMAND, verb, *port, *arguments]
    with _popen(command, env=environment(state_dir)) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                stdout, stderr = process.communicate(timeout=60)
                raise AssertionError(f"it did not start: {stdout}{stderr}")
            url = line.strip(' {}"\n').replace('"', " ").split()[-1]
            yield Service(process, url, line)
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=60)
