"""Small real runtimes that leave processes behind, and how to see what is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_runtimes.incarnation import (
    Exit,
    Incarnation,
    Limits,
    open_incarnation,
)
from agentteam_runtimes.lines import Overlong
from agentteam_runtimes.process_table import read_process
from agentteam_runtimes.process_tree import ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

# Each says `NAME PID` of what it starts, then `ready`, then lives until it is told.
PREAMBLE = """
import os, signal, subprocess, sys, time

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

SLEEPER = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
DEAF = [sys.executable, "-I", "-S", "-c",
        "import signal, sys, time; signal.signal(15, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(600)"]

def same_group():
    say("same-group", subprocess.Popen(SLEEPER).pid)

def own_session():
    say("own-session", subprocess.Popen(SLEEPER, start_new_session=True).pid)

def double_forked():
    middle = "import os, subprocess, sys; " \\
        "p = subprocess.Popen(sys.argv[1:], start_new_session=True, env={}, " \\
        "stdin=-3, stdout=-3, stderr=-3); print(p.pid, flush=True); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", middle, *SLEEPER], stdout=-1)
    say("double-forked", int(done.stdout))

def deaf_to_term():
    child = subprocess.Popen(DEAF, start_new_session=True, stdout=-1)
    child.stdout.readline()
    say("deaf", child.pid)

def all_kinds():
    same_group(); own_session(); double_forked(); deaf_to_term()
"""
ALL_KINDS = PREAMBLE + "all_kinds(); say('ready')\n"
KINDS = ("same-group", "own-session", "double-forked", "deaf")
FOR_EVER = "\ntime.sleep(600)\n"


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


@define
class Ears:
    """The callbacks of an incarnation, and what they heard."""

    lines: list[bytes] = field(factory=list[bytes])
    overlong: list[Overlong] = field(factory=list[Overlong])
    exits: list[Exit] = field(factory=list[Exit])

    def open(
        self,
        script: str | list[str],
        *,
        cwd: Path = Path("/"),
        env: dict[str, str] | None = None,
        limits: Limits | None = None,
    ) -> AbstractAsyncContextManager[Incarnation]:
        return open_incarnation(
            python(script) if isinstance(script, str) else script,
            cwd=cwd,
            env=ENVIRONMENT if env is None else env,
            on_lines=self.lines.extend,
            on_overlong=self.overlong.append,
            on_exit=self.exits.append,
            limits=limits,
        )

    async def ready(self) -> dict[str, ProcessIdentity]:
        """Wait for `ready`; return the processes that were named before it."""
        await eventually(lambda: b"ready" in self.lines)
        return self.named()

    def named(self) -> dict[str, ProcessIdentity]:
        """Return the processes that were named so far and live."""
        found: dict[str, ProcessIdentity] = {}
        for line in self.lines:
            name, _, pid = line.decode().partition(" ")
            if name in KINDS and pid.isdigit():
                process = read_process(int(pid))
                assert process is not None, f"{name} has already gone"
                found[name] = ProcessIdentity(process.pid, process.ticks)
        return found


def gone(identity: ProcessIdentity) -> bool:
    """Say whether a process is gone altogether, not even a zombie."""
    process = read_process(identity.pid)
    return process is None or process.ticks != identity.ticks


def left(processes: dict[str, ProcessIdentity]) -> list[str]:
    """Name those of the processes that still are there."""
    return [name for name, identity in processes.items() if not gone(identity)]


def living(processes: dict[str, ProcessIdentity]) -> list[str]:
    """Name those of the processes that run: a zombie waits for its living parent."""
    return [name for name, identity in processes.items() if identity.find()]


def exists(path: str) -> bool:
    return os.path.exists(path)


async def eventually(holds: Callable[[], bool], within: float = 10.0) -> None:
    """Poll a state of the system for which there is no event."""
    with trio.fail_after(within):
        while not holds():  # noqa: ASYNC110 - the kernel sets no event for us
            await trio.sleep(0.002)
