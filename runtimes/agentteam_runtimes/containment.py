"""
How firmly this machine lets us hold a runtime's processes.

| level              | what ends an incarnation for certain                        |
|--------------------|-------------------------------------------------------------|
| `cgroup+subreaper` | the kernel's list of the cgroup, and of the warden's orphans |
| `subreaper`        | the kernel's list of the warden's orphans                   |
| `group`            | the group, the session, and what the process table shows    |
"""

from __future__ import annotations

import functools
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Literal

from agentteam_runtimes.warden import become_subreaper

Level = Literal["cgroup+subreaper", "subreaper", "group"]


def containment_level() -> Level:
    """Tell which level holds here; makes this process a subreaper where it can."""
    if not become_subreaper():
        return "group"
    return "cgroup+subreaper" if find_cgroup_base() else "subreaper"


@functools.cache
def find_cgroup_base() -> Path | None:
    """Find the cgroup below which we may make others; tried out, once."""
    base = _own_cgroup()
    if base is None:
        return None
    probe = base / _fresh_name()
    try:
        probe.mkdir()
    except OSError:
        return None
    able = (probe / "cgroup.kill").exists() and os.access(
        base / "cgroup.procs", os.W_OK
    )
    with suppress(OSError):
        probe.rmdir()
    return base if able else None


def make_cgroup() -> str:
    """Make a cgroup for one incarnation; empty where that cannot be done."""
    base = find_cgroup_base()
    if base is None:
        return ""
    path = base / _fresh_name()
    try:
        path.mkdir()
    except OSError:
        return ""
    return str(path)


def kill_cgroup(path: str) -> None:
    """Kill all that is in a cgroup, at once."""
    if path:
        with suppress(OSError):
            Path(path, "cgroup.kill").write_text("1")


def remove_cgroup(path: str) -> None:
    """Remove a cgroup that is empty; what still lives keeps it."""
    if path:
        with suppress(OSError):
            Path(path).rmdir()


def list_cgroup(path: str) -> list[int]:
    """List the processes in a cgroup."""
    if not path:
        return []
    try:
        return [int(line) for line in Path(path, "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _fresh_name() -> str:
    return f"agentteam-{os.getpid()}-{secrets.token_hex(4)}"


def _own_cgroup() -> Path | None:
    """Find the directory of the version 2 cgroup that this process is in."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        ours = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    paths = [line[3:] for line in ours if line.startswith("0::")]
    points = [
        line.split()[4] for line in mounts if " - cgroup2 " in line and " / " in line
    ]
    if not paths or not points:
        return None
    return Path(points[0], paths[0].lstrip("/"))
