"""Start a warden: its command, its pipes, and why a runtime would not start."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from attrs import frozen

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes import marks, orphans, warden
from agentteam_runtimes.containment import make_cgroup, remove_cgroup
from agentteam_runtimes.start_settings import SET_BIN, check_start, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Isolated and without `site`, so that neither the environment of the runtime nor
# that of this program gets in; compiled files are used as in any import.
ROOT = str(Path(warden.__file__).parents[1])
BOOT = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from agentteam_runtimes.warden import main; main(sys.argv[1:])"
)


@frozen
class WardenLink:
    """A warden's process, its control socket, and the streams of its runtime."""

    process: trio.Process
    program: str
    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream
    stderr: trio.lowlevel.FdStream
    control: socket.socket
    cgroup: str

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
                return b""  # it died with words of ours unread

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
    check_start(command, cwd, env)
    await trio.lowlevel.checkpoint_if_cancelled()
    # What a warden held falls to us should it be killed, where no cgroup names it.
    orphans.ensure_subreaper()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    cgroup = make_cgroup()
    program = [sys.executable, "-I", "-S", "-c", BOOT, ROOT]
    fd = theirs.fileno()
    process: trio.Process | None = None
    try:
        # Shielded: a cancel between the fork and the return would lose the child.
        with theirs, trio.CancelScope(shield=True):
            process = await trio.lowlevel.open_process(
                [*program, str(fd), str(lease), cgroup, str(cwd), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[fd],
                start_new_session=True,  # Ctrl-C is for the supervisor alone
                env=marks.marked(env),
                cwd="/",
            )
    except OSError as error:
        ours.close()
        remove_cgroup(cgroup)
        raise RuntimeMissing(
            f"cannot start {program[0]}: {os.strerror(error.errno or 0)}",
            "check the limits of open files, processes and argument length",
        ) from error
    assert process is not None  # no cancel gets into the shield
    orphans.guard(process.pid)
    streams = (process.stdin, process.stdout, process.stderr)
    stdin, stdout, stderr = (_pipe(stream) for stream in streams)
    return WardenLink(process, program[0], stdin, stdout, stderr, ours, cgroup)


def _pipe(stream: object) -> trio.lowlevel.FdStream:
    assert isinstance(stream, trio.lowlevel.FdStream)  # all three were asked for
    return stream


def start_error(
    report: Mapping[str, Any], command: Sequence[str], cwd: Path
) -> RuntimeMissing:
    """Say why the runtime did not start, and what to do."""
    number = int(report["errno"])
    program = shown(command[0])
    reason = os.strerror(number)
    match report["stage"], number:
        case "cwd", _:
            return RuntimeMissing(
                f"the working directory {shown(str(cwd))} cannot be used: {reason}",
                "create it, or give the agent another `workdir`",
            )
        case "exec", errno.ENOENT if (
            os.sep in command[0] and (cwd / command[0]).exists()
        ):
            return RuntimeMissing(
                f"{program} names an interpreter that is not there",
                "install what its first line names",
            )
        case "exec", errno.ENOENT | errno.ENOTDIR:
            return RuntimeMissing(
                f"there is no program {program}",
                f"install it, or {SET_BIN}",
            )
        case "exec", errno.EACCES:
            return RuntimeMissing(
                f"{program} may not be executed",
                f"make it executable, or {SET_BIN}",
            )
        case "exec", errno.ENOEXEC:
            return RuntimeMissing(
                f"{program} is not a program this machine can run",
                "install a build for this machine",
            )
        case _:
            return RuntimeMissing(f"cannot start {program}: {reason}", "see the reason")
