"""Start a warden: its command, its pipes, and why a runtime would not start."""

from __future__ import annotations

import errno
import functools
import os
import socket
import subprocess
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from attrs import frozen

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes import orphans, warden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@frozen
class WardenLink:
    """A warden's process, its control socket, and the streams of its runtime."""

    process: trio.Process
    program: str
    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream
    stderr: trio.lowlevel.FdStream
    control: socket.socket

    def send(self, line: bytes) -> None:
        """Send a command at once; one to a warden that is gone or hangs is lost."""
        # `receive` tells that it is gone, the bound of a kill that it hangs.
        with suppress(OSError):
            self.control.send(line)

    async def receive(self) -> bytes:
        """Wait for reports; empty when the warden is gone."""
        while True:
            try:
                return self.control.recv(65536)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self.control)
            except ConnectionError:
                return b""

    def hang_up(self) -> None:
        """Close the control socket: the warden kills what is left, and ends."""
        trio.lowlevel.notify_closing(self.control)
        self.control.close()

    def close(self) -> None:
        if self.control.fileno() >= 0:
            self.hang_up()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


async def start_warden(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], lease: float
) -> WardenLink:
    """Start a warden, which then starts the runtime; no child is lost in a cancel."""
    await trio.lowlevel.checkpoint_if_cancelled()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    program = [sys.executable, "-I", "-S", warden_program()]
    fd = theirs.fileno()
    process: trio.Process | None = None
    try:
        # Shielded: a cancel between the fork and the return would lose the child.
        with theirs, trio.CancelScope(shield=True):
            process = await trio.lowlevel.open_process(
                [*program, str(fd), str(lease), str(cwd), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[fd],
                start_new_session=True,  # Ctrl-C is for the supervisor alone
                env=dict(env),
                cwd="/",
            )
    except OSError as error:
        ours.close()
        raise RuntimeMissing(
            f"cannot start {program[0]}: {os.strerror(error.errno or 0)}",
            "check the limits of open files, processes and argument length",
        ) from error
    assert process is not None  # no cancel gets into the shield
    orphans.guard(process.pid)
    streams = (process.stdin, process.stdout, process.stderr)
    stdin, stdout, stderr = (_pipe(stream) for stream in streams)
    return WardenLink(process, program[0], stdin, stdout, stderr, ours)


def _pipe(stream: object) -> trio.lowlevel.FdStream:
    assert isinstance(stream, trio.lowlevel.FdStream)  # all three were asked for
    return stream


@functools.cache
def warden_program() -> str:
    """
    Find the warden's compiled file, or else its source.

    A program is compiled anew at each start, which costs as much as the rest of
    that start; a compiled file can be run as it is, if it is of this source.
    """
    source = Path(warden.__file__)
    compiled = Path(cache_from_source(str(source)))
    try:
        stat = source.stat()
        with compiled.open("rb") as file:
            header = file.read(16)
    except OSError:
        return str(source)
    # PEP 552: magic, flags 0 (checked by time), time, size
    words = [0, int(stat.st_mtime), stat.st_size]
    expected = b"".join((word & 0xFFFFFFFF).to_bytes(4, "little") for word in words)
    return str(compiled if header[4:] == expected else source)


def start_error(
    report: Mapping[str, Any], command: Sequence[str], cwd: Path
) -> RuntimeMissing:
    """Say why the runtime did not start, and what to do."""
    number = int(report["errno"])
    program = command[0]
    reason = os.strerror(number)
    match report["stage"], number:
        case "cwd", _:
            return RuntimeMissing(
                f"the working directory {cwd} cannot be used: {reason}",
                "create it, or give the agent another working directory",
            )
        case "exec", errno.ENOENT if os.sep in program and (cwd / program).exists():
            return RuntimeMissing(
                f"{program} names an interpreter that is not there",
                "install what its first line names",
            )
        case "exec", errno.ENOENT | errno.ENOTDIR:
            return RuntimeMissing(
                f"there is no program {program}",
                "install it, or set the agent's option `bin` to its path",
            )
        case "exec", errno.EACCES:
            return RuntimeMissing(
                f"{program} may not be executed",
                "make it executable, or set the agent's option `bin` to its path",
            )
        case "exec", errno.ENOEXEC:
            return RuntimeMissing(
                f"{program} is not a program this machine can run",
                "install a build for this machine",
            )
        case _:
            return RuntimeMissing(f"cannot start {program}: {reason}", "see the reason")
