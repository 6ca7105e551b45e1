"""Starts processes of the service: by a fork server, or each as a user would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import trio
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

RUN = "from agentteam_supervisor.cli.main import main; main()"
SERVE = (
    "import sys; from agentteam_supervisor.chaos.forkserver import wait_for_birth;"
    f"wait_for_birth(int(sys.argv[1])); {RUN}"
)
LARGEST = 65536
READY_WITHIN = 60.0


class Process(Protocol):
    """What is needed of a process, whoever is its parent."""

    stdout: Any
    stderr: Any

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int, /) -> None: ...

    async def wait(self) -> int: ...


@define(eq=False)
class Forked:
    """A process whose parent is the fork server; -N as return code: killed by N."""

    pid: int
    stdout: trio.lowlevel.FdStream
    stderr: trio.lowlevel.FdStream
    returncode: int | None = None
    _over: trio.Event = field(factory=trio.Event)

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, sig: int, /) -> None:
        # A zombie at most: its parent tells of its end when it has reaped it.
        with suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    def ended(self, returncode: int) -> None:
        self.returncode = returncode
        self._over.set()


class Births:
    """Starts each process as a user would: with an interpreter of its own."""

    async def start(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Process:
        return await trio.lowlevel.open_process(
            [sys.executable, "-c", RUN, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )


@define(eq=False)
class ForkServer(Births):
    """Starts each process as a fork of one that has imported everything."""

    orders: trio.socket.SocketType
    _forked: dict[int, Forked] = field(factory=dict[int, Forked])
    _answers: trio.MemorySendChannel[int] = field(init=False)
    _pids: trio.MemoryReceiveChannel[int] = field(init=False)
    _one: trio.Lock = field(factory=trio.Lock)
    _ended: dict[int, int] = field(factory=dict[int, int])

    def __attrs_post_init__(self) -> None:
        self._answers, self._pids = trio.open_memory_channel[int](1)

    async def start(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Process:
        order = {"arguments": list(arguments), "environment": dict(environment)}
        reading, writing = zip(*(os.pipe2(os.O_CLOEXEC) for _ in range(2)), strict=True)
        streams = [trio.lowlevel.FdStream(fd) for fd in reading]
        pid = 0
        try:
            async with self._one:
                with trio.CancelScope(shield=True):
                    await self._order(json.dumps(order).encode(), writing)
                    pid = await self._pids.receive()
        finally:
            for fd in writing:
                os.close(fd)
        forked = self._forked[pid] = Forked(pid, streams[0], streams[1])
        if pid in self._ended:
            forked.ended(self._ended.pop(pid))
        return forked

    async def _order(self, data: bytes, fds: Sequence[int]) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _pack(fds))
        await self.orders.sendmsg([data], [rights])

    async def run(self) -> None:
        """Take what it tells, until it is gone."""
        while data := await self.orders.recv(LARGEST):
            match json.loads(data):
                case {"pid": int(pid), "status": int(status)}:
                    self._end(pid, status)
                case {"pid": int(pid)}:
                    self._answers.send_nowait(pid)
                case _:
                    pass

    def _end(self, pid: int, status: int) -> None:
        forked = self._forked.pop(pid, None)
        if forked is None:
            self._ended[pid] = status  # its start has not been answered for yet
        else:
            forked.ended(status)


def _pack(fds: Sequence[int]) -> bytes:
    return b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)


@asynccontextmanager
async def open_fork_server() -> AsyncGenerator[ForkServer]:
    """Run a fork server; what it forked is killed at the end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-c", SERVE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        server = ForkServer(trio.socket.from_stdlib_socket(ours))
        try:
            with trio.fail_after(READY_WITHIN):
                await server.orders.recv(LARGEST)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.run)
                yield server
                nursery.cancel_scope.cancel()
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            with trio.move_on_after(READY_WITHIN) as scope:
                scope.shield = True
                await process.wait()
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
