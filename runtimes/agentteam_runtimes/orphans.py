"""
What becomes a child of the supervisor though it never started it.

The supervisor is a child subreaper, in case a warden dies: then what that warden
guarded falls to the supervisor, which must end it, and reap it without stealing
the exit status of a child somebody waits for. An adopted process is told from
our own by its session: wardens are registered here, and whatever else this
program starts stays in its session or is waited for within moments.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import trio

from agentteam_runtimes import process_table
from agentteam_runtimes.process_tree import ProcessIdentity, TreeProcess
from agentteam_runtimes.warden import become_subreaper

WARDEN_MODULE = b"agentteam_runtimes.warden"

# The kernel's table of our children is one for the process, so this is too.
_guarded: set[int] = set()
_subreaper = False


def ensure_subreaper() -> bool:
    """Have orphans of a dead warden fall to this process; False where it cannot."""
    global _subreaper
    _subreaper = _subreaper or become_subreaper()
    return _subreaper


def guard(pid: int) -> None:
    """Say that somebody waits for this child of ours."""
    _guarded.add(pid)


def release(pid: int) -> None:
    _guarded.discard(pid)


def strays() -> list[process_table.Process]:
    """List the children of ours that a dead warden left."""
    if not _subreaper:
        return []
    home = os.getsid(0)
    pids = set(process_table.read_children(os.getpid()) or ()) - _guarded
    found = [p for pid in pids if (p := process_table.read_process(pid)) is not None]
    return [p for p in found if p.sid != home and not _is_ours(p.pid)]


def reap(pid: int) -> int | None:
    """Collect an adopted child; its wait status, None while it lives or is not ours."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if done else None


async def end_strays(born: int, within: float) -> tuple[TreeProcess, ...]:
    """Kill and reap what a dead warden left, born since then; name what survives."""

    def look() -> list[process_table.Process]:
        roots = [p for p in strays() if p.ticks >= born]
        tree = [p for root in roots for p in (root, *process_table.read_tree(root.pid))]
        return [p for p in tree if p.alive]

    with trio.move_on_after(within):
        while True:
            process_table.strike(look)
            dead = [p for p in strays() if p.ticks >= born and not p.alive]
            for process in dead:
                reap(process.pid)
            if not dead and not look():
                break
            await trio.sleep(0.002)
    return tuple(TreeProcess.of(p) for p in look())


async def reap_orphans(every: float = 1.0) -> NoReturn:
    """
    Reap adopted zombies, for ever.

    Only one that stayed a zombie from one round to the next is reaped: whoever
    waits for a child of his own has had his turn by then.
    """
    seen: set[ProcessIdentity] = set()
    while True:
        dead = {ProcessIdentity(p.pid, p.ticks) for p in strays() if not p.alive}
        for identity in seen & dead:
            reap(identity.pid)
        seen = dead - seen
        await trio.sleep(every)


def _is_ours(pid: int) -> bool:
    """Tell a child that is just being started: it still, or already, looks like us."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    own = Path("/proc/self/cmdline").read_bytes()
    return bool(line) and (line == own or WARDEN_MODULE in line)


def is_warden(pid: int) -> bool:
    """Tell a warden, whosever it is, by its command."""
    try:
        return WARDEN_MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
