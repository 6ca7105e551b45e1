"""
A process that has imported the product and forks one life of it after the other.

A life starts in some tenths of a second so, where a new interpreter takes more than a
second on a busy machine. The program has one thread and never runs the product itself;
what it forks is a session of its own with the environment, arguments and streams that
were ordered, and goes on to the `main` of the command. When the one who ordered is
gone, it kills what it forked.

A life can be armed while it goes on: on `ARM` it does what the file says that its
environment names, and removes that file.

An order is one message of JSON with the two output streams attached; `{"pid": N}` goes
back at once, and `{"pid": N, "status": S}` when that child has ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentteam_protocol.codec import CONVERTER
from agentteam_protocol.frames import FRAME_KINDS, Envelope, Frame
from agentteam_protocol.journal import KINDS, JournalEvent
from agentteam_supervisor.chaos import points
from agentteam_supervisor.page.routes import page_routes
from agentteam_supervisor.server.routes import http_routes

if TYPE_CHECKING:
    from types import FrameType

LARGEST = 65536
ARM = signal.SIGUSR2
ARM_VARIABLE = "AGENTTEAM_CHAOS_ARM"
STREAMS = 2
# What a service has imported by the time it is ready.
PRELOADED = (
    "agentteam_supervisor.cli.apart",
    "agentteam_supervisor.cli.services",
    "agentteam_supervisor.cli.up",
    "agentteam_supervisor.daemon.app",
    "agentteam_supervisor.server.app",
    "agentteam_runtimes.acp.driver",
    "agentteam_runtimes.claude.driver",
    "agentteam_runtimes.codex.driver",
    "agentteam_runtimes.opencode.driver",
    "agentteam_runtimes.rehearsal.driver",
    "alembic.command",
    "alembic.runtime.migration",
    "certifi",
    "encodings.idna",
    "httpcore",
    "hypercorn.trio",
    "hypercorn.trio.tcp_server",
    "hypercorn.protocol.h11",
    "hypercorn.protocol.ws_stream",
    "sqlalchemy.dialects.sqlite",
)


def wait_for_birth(control: int) -> None:
    """Serve orders from this socket; returns in the children alone, ready for `main`."""
    for name in PRELOADED:
        importlib.import_module(name)
    _make_what_is_made_once()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=control) as orders:
        _ForkServer(orders).serve()
    if not _ForkServer.born:
        sys.exit()


def _make_what_is_made_once() -> None:
    """Fill the caches of a program: together a good part of a start."""
    for cls in (*FRAME_KINDS, *KINDS, Envelope, Frame, JournalEvent):
        CONVERTER.get_structure_hook(cls)
        CONVERTER.get_unstructure_hook(cls)
    # For the patterns of their paths, which `re` keeps.
    page_routes()
    http_routes()


class _ForkServer:
    born = False

    def __init__(self, orders: socket.socket) -> None:
        self.orders = orders
        self.children: set[int] = set()
        self.woken, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Fork and reap until the other end is closed, or this is a child."""
        signal.signal(signal.SIGCHLD, _heed)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.tell(ready=True)
        while not self.born:
            ready = [self.orders.fileno(), self.woken]
            readable, _, _ = select.select(ready, [], [])
            if self.woken in readable:
                os.read(self.woken, 4096)
                self.reap()
            if self.orders.fileno() in readable and not self.obey():
                return

    def obey(self) -> bool:
        """Take one order; False: there will be no more."""
        data, fds, _, _ = socket.recv_fds(self.orders, LARGEST, STREAMS)
        if not data:
            for pid in self.children:
                os.kill(pid, signal.SIGKILL)
            for pid in self.children:
                os.waitpid(pid, 0)  # not every machine's first process does it for us
            return False
        order = json.loads(data)
        pid = os.fork()
        if pid == 0:
            _ForkServer.born = True
            self.become(order, fds)
            return True
        for fd in fds:
            os.close(fd)
        self.children.add(pid)
        self.tell(pid=pid)
        return True

    def become(self, order: dict[str, Any], streams: list[int]) -> None:
        """Make this child what a fresh process with that order would be."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.woken)
        os.close(self.waker)
        os.setsid()
        for fd, stream in enumerate(streams, start=1):
            os.dup2(stream, fd)
            os.close(stream)
        # What is known of a stream, such as whether it can seek, was of another one.
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = ["agentteam", *order["arguments"]]
        points.arm(os.environ)
        if order_file := os.environ.get(ARM_VARIABLE):
            signal.signal(ARM, partial(_rearm, Path(order_file)))

    def reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.children.discard(pid)
            self.tell(pid=pid, status=os.waitstatus_to_exitcode(status))

    def tell(self, **what: Any) -> None:
        self.orders.send(json.dumps(what).encode())


def _rearm(order: Path, _number: int, _frame: FrameType | None) -> None:
    """Die at another point from now on; the end of the file says that it is heard."""
    with suppress(FileNotFoundError):  # taken back meanwhile
        points.arm({points.VARIABLE: order.read_text()})
        order.unlink()


def _heed(_number: int, _frame: FrameType | None) -> None:
    """Let the signal wake the loop, instead of being ignored."""
