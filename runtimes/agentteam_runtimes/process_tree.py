"""Name the processes of an incarnation, so that they are known again later."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from agentteam_runtimes import process_table

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@frozen
class ProcessIdentity:
    """A pid and its start; the pid alone may belong to a stranger by now."""

    pid: int
    ticks: int

    def find(self) -> process_table.Process | None:
        """Look the process up; None when it is gone or its pid is another's."""
        found = process_table.read_process(self.pid)
        if found is None or found.ticks != self.ticks or not found.alive:
            return None
        return found


@frozen
class TreeIdentity:
    """One incarnation, as a journal keeps it: both counters start anew at a boot."""

    warden: ProcessIdentity
    runtime: ProcessIdentity
    boot: str
    cgroup: str = ""

    @property
    def of_this_boot(self) -> bool:
        return self.boot == read_boot()


@frozen
class TreeProcess:
    """A process of an incarnation, as a diagnostic names it."""

    pid: int
    ppid: int
    sid: int
    ticks: int
    state: str
    name: str

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.ticks)

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}, state {self.state})"

    @classmethod
    def of(cls, process: process_table.Process) -> TreeProcess:
        return cls(
            process.pid,
            process.ppid,
            process.sid,
            process.ticks,
            process.state,
            process.name,
        )


@frozen
class Swept:
    """What a sweep, or the end of an old tree, found and what it could not end."""

    ended: tuple[TreeProcess, ...] = ()
    survivors: tuple[TreeProcess, ...] = ()


def read_boot() -> str:
    """Name this boot of the machine; empty where the system has no name for it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
