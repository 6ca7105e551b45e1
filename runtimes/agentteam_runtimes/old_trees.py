"""End the trees that a killed supervisor left, before anything new is started."""

from __future__ import annotations

import os
import signal

import trio

from agentteam_runtimes import marks, orphans, process_table
from agentteam_runtimes.containment import kill_cgroup, list_cgroup, remove_cgroup
from agentteam_runtimes.process_tree import Swept, TreeIdentity, TreeProcess


async def end_tree(
    tree: TreeIdentity, marker: str | None = None, within: float = 5.0
) -> Swept:
    """
    End what is left of a recorded incarnation; does nothing to anybody else's.

    A warden ends its tree by itself when its supervisor dies, so most often there
    is nothing. `marker` is an entry `NAME=value` of the runtime's environment: it
    finds what was orphaned when the warden was killed too. Without a cgroup, that
    leaves a process that cleared its environment and left the session.
    """
    if not tree.of_this_boot:
        return Swept()
    found: dict[tuple[int, int], process_table.Process] = {}

    def look() -> list[process_table.Process]:
        left = _members(tree, marker, set(found))
        found.update((p.key, p) for p in left)
        return left

    with trio.move_on_after(within):
        while look():
            kill_cgroup(tree.cgroup)
            process_table.strike(look)
            await trio.sleep(0.005)
        await _end_warden(tree, found)
    survivors = look()
    remove_cgroup(tree.cgroup)
    left = {p.key for p in survivors}
    return Swept(
        tuple(TreeProcess.of(p) for key, p in found.items() if key not in left),
        tuple(TreeProcess.of(p) for p in survivors),
    )


async def end_marked(mark: str, within: float = 5.0) -> Swept:
    """
    End whatever else the last holder of a directory left, recorded or not.

    For its only holder, before it starts anything. Finds who carries the mark and
    all that is below; wardens are ended last.
    """
    if not _carriers(mark):
        return Swept()
    found: dict[tuple[int, int], process_table.Process] = {}

    def look() -> list[process_table.Process]:
        left = _marked(mark, set(found))
        found.update((p.key, p) for p in left)
        guarded = [p for p in left if not orphans.is_warden(p.pid)]
        return guarded or left

    with trio.move_on_after(within):
        while look():
            process_table.strike(look)
            await trio.sleep(0.005)
    survivors = look()
    left = {p.key for p in survivors}
    return Swept(
        tuple(TreeProcess.of(p) for key, p in found.items() if key not in left),
        tuple(TreeProcess.of(p) for p in survivors),
    )


def _carriers(mark: str) -> set[int]:
    return marks.carriers(f"{marks.VARIABLE}={mark}") - {os.getpid()}


def _marked(mark: str, known: set[tuple[int, int]]) -> list[process_table.Process]:
    table = [p for p in process_table.read_table() if p.alive]
    ours = marks.forebears(table)
    carriers = _carriers(mark) - ours
    roots = {p.pid for p in table if p.pid in carriers or p.key in known}
    members = {p.key: p for p in table if p.pid in roots}
    for root in roots:
        members |= {p.key: p for p in process_table.below(root, table)}
    return [p for p in members.values() if p.pid not in ours]


async def _end_warden(
    tree: TreeIdentity, found: dict[tuple[int, int], process_table.Process]
) -> None:
    """End the warden last: its death would scatter what it holds together."""
    while (process := tree.warden.find()) is not None:
        found[process.key] = process
        process_table.send_signal(process, signal.SIGKILL)
        await trio.sleep(0.005)


def _members(
    tree: TreeIdentity, marker: str | None, known: set[tuple[int, int]]
) -> list[process_table.Process]:
    everybody = process_table.read_table()
    table = [p for p in everybody if p.alive]
    # A session is only a number: it is this runtime's while that is in the table.
    leads = any(p.key == (tree.runtime.pid, tree.runtime.ticks) for p in everybody)
    grouped = set(list_cgroup(tree.cgroup))
    roots = {
        p.pid
        for p in table
        if p.key in known
        or p.pid in grouped
        or p.key in _keys(tree)
        or (leads and p.sid == tree.runtime.pid)
    }
    if marker is not None:
        roots |= marks.carriers(marker) & {p.pid for p in table}
    members = {p.key: p for p in table if p.pid in roots}
    for root in roots:
        members |= {p.key: p for p in process_table.below(root, table)}
    members.pop((tree.warden.pid, tree.warden.ticks), None)
    return list(members.values())


def _keys(tree: TreeIdentity) -> set[tuple[int, int]]:
    return {(one.pid, one.ticks) for one in (tree.warden, tree.runtime)}
