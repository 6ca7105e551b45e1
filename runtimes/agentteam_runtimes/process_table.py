"""
The process table: who is below whom, and a signal for exactly one of them.

Standard library only and little of it: the warden starts with this.
"""

# ruff: noqa: SIM105 - contextlib is an import too heavy for the warden
from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable
else:
    import _signal  # `signal` wraps each name in an enum, 5 ms of start-up

LINUX = sys.platform == "linux"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ROUNDS_OF_STOPPING = 64


class Process:
    """One row of the process table; `pid` and `ticks` together are its identity."""

    __slots__ = ("name", "pgid", "pid", "ppid", "sid", "state", "ticks")

    def __init__(
        self,
        pid: int,
        ppid: int,
        pgid: int,
        sid: int,
        ticks: int,
        state: str,
        name: str,
    ) -> None:
        self.pid = pid
        self.ppid = ppid
        self.pgid = pgid
        self.sid = sid
        self.ticks = ticks
        self.state = state
        self.name = name

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.ticks

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"

    def to_json(self) -> str:
        return (
            f'{{"pid":{self.pid},"ppid":{self.ppid},"sid":{self.sid},'
            f'"ticks":{self.ticks},"state":"{self.state}","name":"{self.name}"}}'
        )


def ticks_now() -> int:
    """Tell the time as the kernel writes the start of a process."""
    if not LINUX:
        return int(time.time() * TICKS_PER_SECOND)
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return now * TICKS_PER_SECOND // 1_000_000_000


def printable(name: str) -> str:
    """Make a process name safe inside a JSON string; any byte may stand in it."""
    return "".join(c if c.isalnum() or c in " ._-:/()+" else "?" for c in name)


def read_process(pid: int) -> Process | None:
    """Look a process up; None when there is none (any more)."""
    if not LINUX:
        return next((p for p in read_ps() if p.pid == pid), None)
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            text = stat.read(1024).decode("ascii", "replace")
    except OSError:
        return None
    # The name is in parentheses and may itself hold spaces and parentheses.
    head, _, tail = text.rpartition(") ")
    words = tail.split()
    if len(words) < 20:
        return None
    return Process(
        pid,
        int(words[1]),
        int(words[2]),
        int(words[3]),
        int(words[19]),
        words[0],
        printable(head.partition("(")[2]),
    )


def read_ps() -> list[Process]:
    """Read the process table where there is no /proc."""
    import calendar
    import subprocess

    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,lstart=,state=,comm="]
    found: list[Process] = []
    environment = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
    table = subprocess.run(command, capture_output=True, text=True, env=environment)
    for line in table.stdout.splitlines():
        words = line.split(None, 9)
        if len(words) < 10:
            continue
        born = time.strptime(" ".join(words[3:8]), "%a %b %d %H:%M:%S %Y")
        pid, ppid, pgid = map(int, words[:3])
        ticks = calendar.timegm(born) * TICKS_PER_SECOND
        found.append(
            # A group stands for the session: `ps` does not print sessions there.
            Process(pid, ppid, pgid, pgid, ticks, words[8][0], printable(words[9]))
        )
    return found


def read_table() -> list[Process]:
    """Read every process of the machine that we may see."""
    if not LINUX:
        return read_ps()
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [found for pid in pids if (found := read_process(pid)) is not None]


def read_children(pid: int) -> list[int] | None:
    """List the children of a process; None where the kernel does not tell."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return [] if LINUX else None
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                found += map(int, children.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return None
        except OSError:
            continue  # that thread, or the process, has just ended
    return found


def is_childless(pid: int) -> bool:
    """
    Tell whether a process is seen to have no child; False where nobody tells.

    A child belongs to one thread, and passes to another only when that one ends: all
    threads that were asked must still be there.
    """
    tasks = f"/proc/{pid}/task"
    try:
        if os.stat(tasks).st_nlink == 3:  # a link for each thread, and two of its own
            return read_own_children(pid) == []
        threads = os.listdir(tasks)
        if any(_read_children_of(pid, thread) for thread in threads):
            return False
        return set(threads) <= set(os.listdir(tasks))
    except OSError:
        return False


def read_own_children(pid: int) -> list[int]:
    """List the children of a process's first thread; raises when it has gone."""
    return [*map(int, _read_children_of(pid, str(pid)).split())]


def _read_children_of(pid: int, thread: str) -> bytes:
    children = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY)
    try:
        return os.read(children, 4096)
    finally:
        os.close(children)


def read_tree(root: int) -> list[Process]:
    """List what is below a process, parents before their children."""
    found: list[Process] = []
    parents = [root]
    while parents:
        children = read_children(parents.pop())
        if children is None:
            return below(root, read_table())
        for pid in children:
            child = read_process(pid)
            if child is not None:
                found.append(child)
                parents.append(pid)
    return found


def below(root: int, table: list[Process]) -> list[Process]:
    """Pick from a table what is below a process, parents before their children."""
    found: list[Process] = []
    parents = [root]
    while parents:
        parent = parents.pop()
        for process in table:
            if process.ppid == parent and process.pid != parent:
                found.append(process)
                parents.append(process.pid)
    return found


def send_signal(process: Process, number: int) -> None:
    """
    Signal exactly this process, never another that got its pid since.

    One that is gone, or that we may not signal, is left to the caller's next look.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except AttributeError:
        kill_quietly(process.pid, number)  # no pidfd here; the table is just read
        return
    except OSError:
        return
    try:
        now = read_process(process.pid)
        if now is not None and now.ticks == process.ticks:
            _signal.pidfd_send_signal(pidfd, number)
    except OSError:
        pass
    finally:
        os.close(pidfd)


def kill_quietly(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def strike(look: Callable[[], Iterable[Process]]) -> list[Process]:
    """
    Kill all that `look` sees, once.

    Everything is stopped first, until a look shows nothing new: what is stopped
    cannot fork away from under the kill.
    """
    seen: dict[tuple[int, int], Process] = {}
    for _ in range(ROUNDS_OF_STOPPING):
        fresh = [p for p in look() if p.alive and p.key not in seen]
        if not fresh:
            break
        for process in fresh:
            seen[process.key] = process
            send_signal(process, _signal.SIGSTOP)
    for process in seen.values():
        send_signal(process, _signal.SIGKILL)
    return list(seen.values())
