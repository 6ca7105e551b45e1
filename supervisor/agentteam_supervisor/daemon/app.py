"""
The daemon: lock, journal, repair, old trees, then the link and the sessions.

The order is that of DESIGN section 10. Nothing new is started before what an earlier
supervisor left alive was ended.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import trio
from attrs import evolve

from agentteam_protocol.codec import to_wire
from agentteam_protocol.errors import RuntimeFailure
from agentteam_protocol.frames import VERSION, AgentGranted, Frame, Hello
from agentteam_protocol.ids import AgentId, DaemonId, mint
from agentteam_protocol.journal import RunNotice
from agentteam_runtimes import marks
from agentteam_runtimes.contained import read_identity
from agentteam_runtimes.driver import Options
from agentteam_runtimes.old_trees import end_marked, end_tree
from agentteam_runtimes.orphans import reap_orphans
from agentteam_runtimes.plugins import Plugins, find_plugins
from agentteam_supervisor.daemon.link import Link, LinkRefused
from agentteam_supervisor.daemon.loading import Pacer, Reporter, load_all
from agentteam_supervisor.daemon.lock import StateDirectory, owned
from agentteam_supervisor.daemon.ports import Workshop, compose_answerers
from agentteam_supervisor.daemon.roster import Roster
from agentteam_supervisor.daemon.translation import notice
from agentteam_supervisor.journal.log import Journal, open_journal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentteam_supervisor.daemon.config import DaemonConfig
    from agentteam_supervisor.daemon.seat import Actor, Done
    from agentteam_supervisor.journal.schema import Salvage
    from agentteam_supervisor.session.state import Session

_log = logging.getLogger(__name__)


async def run_daemon(
    config: DaemonConfig,
    server_url: str,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """
    Serve the agents of the server at `server_url` until cancelled; then end cleanly.

    Started when the server knows us, or after `config.greeting` without it. Raises
    `StateDirectoryError`, `JournalUnwritable`, `JournalVersion` or `LinkRefused`.
    """
    with owned(config.state_dir) as state:
        async with open_journal(state.journal) as journal:
            if journal.salvage is not None:
                _tell_damage(journal, journal.salvage)
            loaded = await load_all(journal)
            await _end_old_trees(loaded, marks.hold(config.state_dir))
            daemon = await _Daemon.prepare(config, state, journal, loaded, server_url)
            await daemon.serve(task_status)


def _tell_damage(journal: Journal, salvage: Salvage) -> None:
    """Loudly: in the log of the program, and to the people of every agent."""
    _log.error("%s", salvage.words())
    words = "the log was damaged; what could be read of it is in use"
    aside = f"the damaged file is kept as {salvage.moved_to.name}"
    for agent in map(AgentId, salvage.agents):
        journal.append(agent, [RunNotice(words, aside)], [notice(agent, words, aside)])


async def _end_old_trees(loaded: Mapping[AgentId, Reporter], mark: str) -> None:
    """End what a killed supervisor left; most often its wardens did so already."""
    async with trio.open_nursery() as nursery:
        for agent, reporter in loaded.items():
            if reporter.ledger.alive:
                identity = reporter.ledger.identity
                nursery.start_soon(_end_old_tree, agent, identity)
    # A start that is not on record, and what left the session of its runtime.
    if left := (await end_marked(mark)).survivors:
        _log.error("processes of an earlier run are alive: %s", [str(p) for p in left])


async def _end_old_tree(agent: AgentId, identity: str) -> None:
    tree = read_identity(identity)
    if tree is None:
        return  # it ran in the process that is gone
    swept = await end_tree(tree)
    if swept.survivors:
        left = [str(process) for process in swept.survivors]
        _log.error("processes of an earlier run of %s are alive: %s", agent, left)


class _Daemon:
    """The parts of a running daemon, joined."""

    def __init__(
        self,
        config: DaemonConfig,
        hello: Hello,
        workshop: Workshop,
        loaded: Mapping[AgentId, Reporter],
        pacers: dict[AgentId, Pacer],
        url: str,
    ) -> None:
        self._config = config
        self._greeting = hello
        self._workshop = workshop
        self._journal = workshop.journal
        self._pacers = pacers
        self._refused: LinkRefused | None = None
        self._stop = trio.Event()
        self._link = Link(
            url,
            self._journal,
            self._hello,
            self._handle,
            config.link,
            self._standing,
        )
        self._roster = Roster(
            self._journal,
            self._make_actor,
            self._link.send_live,
            config.sessions,
            loaded,
        )

    @classmethod
    async def prepare(
        cls,
        config: DaemonConfig,
        state: StateDirectory,
        journal: Journal,
        loaded: Mapping[AgentId, Reporter],
        server_url: str,
    ) -> _Daemon:
        plugins = find_plugins()
        hello = Hello(
            version=VERSION,
            daemon=_identify(state),
            name=config.name,
            boot=mint("boot"),
            runtimes=await _probe_all(plugins, config.probe),
        )
        pacers = {agent: Pacer(journal, agent, config.runtimes) for agent in loaded}
        for pacer in pacers.values():
            await pacer.remember()
        approvals = compose_answerers(config.answerers)
        workshop = Workshop(config, state, journal, plugins, approvals)
        return cls(config, hello, workshop, loaded, pacers, link_url(server_url))

    def _hello(self) -> Hello:
        journal = self._journal
        return evolve(
            self._greeting, server=journal.server, received=journal.received_number
        )

    def _handle(self, frame: Frame, done: Done) -> None:
        self._roster.handle(frame, done)

    def _standing(self) -> list[Frame]:
        return self._roster.troubles()

    def _make_actor(
        self, granted: AgentGranted, session: Session, reporter: Reporter
    ) -> Actor:
        fresh = Pacer(self._journal, granted.agent, self._config.runtimes)
        pacer = self._pacers.setdefault(granted.agent, fresh)
        return self._workshop.make_actor(self._link, pacer, granted, session, reporter)

    # --- its life ----------------------------------------------------------------------

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(self._notice_cancel)
            # The parts outlive a cancellation until they have ended cleanly.
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._roster.run)
                    nursery.start_soon(self._keep_link)
                    nursery.start_soon(reap_orphans)
                    nursery.start_soon(self._keep_looking)
                    with trio.move_on_after(self._config.greeting):
                        await self._link.greeted()
                    if self._refused is None:
                        task_status.started()
                    await self._stop.wait()
                    await self._end()
                    nursery.cancel_scope.cancel()
            outer.cancel_scope.cancel()
        if self._refused is not None:
            raise self._refused

    async def _notice_cancel(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._stop.set()

    async def _keep_looking(self) -> None:
        await self._workshop.wants.keep_looking(self._look, self._found)

    async def _look(self, agent: AgentId) -> None:
        seat = self._roster.seat(agent)
        if seat is not None:  # with its settings as they are now
            await self._workshop.look(seat.granted)

    def _found(self, agent: AgentId) -> None:
        seat = self._roster.seat(agent)
        if seat is not None:
            seat.mended()

    async def _keep_link(self) -> None:
        try:
            await self._link.run()
        except LinkRefused as refused:
            self._refused = refused
            self._link.give_up()
            self._stop.set()

    async def _end(self) -> None:
        with trio.move_on_after(self._config.shutdown):
            await self._roster.shut_down()
        await self._journal.flushed()
        with trio.move_on_after(self._config.goodbye):
            if self._refused is None and self._link.connected:
                await self._link.drained()


def link_url(server_url: str) -> str:
    """Give the address of the server's WebSocket for daemons."""
    scheme, place, path, _, _ = urlsplit(server_url)
    secure = {"https": "wss", "wss": "wss"}.get(scheme, "ws")
    path = path.rstrip("/")
    path = path if path.endswith("/link") else f"{path}/link"
    return urlunsplit((secure, place, path, "", ""))


def _identify(state: StateDirectory) -> DaemonId:
    """
    Name this daemon as it was named before.

    A file of its own: a damaged journal must not make a stranger of the daemon.
    """
    try:
        known = json.loads(state.identity.read_text())
        return DaemonId(str(known["id"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    daemon = DaemonId(mint("dmn"))
    fresh = state.identity.with_suffix(".new")
    fresh.write_text(json.dumps({"id": daemon}) + "\n")
    fresh.replace(state.identity)
    return daemon


async def _probe_all(plugins: Plugins, within: float) -> dict[str, Mapping[str, Any]]:
    """Look at every runtime at once; a slow or broken one disturbs no other."""
    found: dict[str, Mapping[str, Any]] = {}
    with trio.move_on_after(within):
        async with trio.open_nursery() as nursery:
            for name in plugins.names:
                nursery.start_soon(_probe, plugins, name, found)
    return {name: found.get(name, _silent(within)) for name in plugins.names}


def _silent(within: float) -> Mapping[str, Any]:
    return {"problem": f"it did not answer within {within:g} s"}


async def _probe(
    plugins: Plugins, name: str, found: dict[str, Mapping[str, Any]]
) -> None:
    def look() -> Mapping[str, Any]:
        try:
            capabilities: Mapping[str, Any] = to_wire(
                plugins.load(name).probe(Options())
            )
        except RuntimeFailure as exc:
            return {"problem": str(exc)}
        return capabilities

    found[name] = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
