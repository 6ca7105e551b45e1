"""What a session of this daemon is given: its driver, the link, the reports."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from attrs import field, frozen

from agentteam_protocol.codec import from_wire, to_wire
from agentteam_protocol.errors import (
    JournalUnwritable,
    RemoteProtocolError,
    RuntimeFailure,
    RuntimeMissing,
)
from agentteam_protocol.frames import AgentGranted, Progressed
from agentteam_runtimes.driver import (
    CONTRACT,
    Capabilities,
    Driver,
    Options,
    SessionSpec,
)
from agentteam_runtimes.plugins import Plugins
from agentteam_supervisor.approval.service import (
    Answerer,
    ApprovalService,
    wait_for_person,
)
from agentteam_supervisor.daemon.config import DaemonConfig
from agentteam_supervisor.daemon.link import Link
from agentteam_supervisor.daemon.lock import StateDirectory
from agentteam_supervisor.daemon.reports import status
from agentteam_supervisor.daemon.wants import Wants
from agentteam_supervisor.journal.log import Journal, now
from agentteam_supervisor.session.actor import SessionActor
from agentteam_supervisor.session.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from agentteam_protocol.delivery import Diagnostic
    from agentteam_protocol.frames import StatusReported
    from agentteam_protocol.ids import AgentId
    from agentteam_runtimes.driver import Emit, Runtime
    from agentteam_supervisor.daemon.loading import Pacer, Reporter
    from agentteam_supervisor.session.effects import JudgeSend, Progress, ReadTarget
    from agentteam_supervisor.session.events import HistoryRead, SendAnswered
    from agentteam_supervisor.session.state import Session


_log = logging.getLogger(__name__)


class NoDriver:
    """Stands in for a driver that is not there: its agent has that problem."""

    name = "none"
    contract: int = CONTRACT

    def __init__(self, missing: RuntimeFailure) -> None:
        self._missing = missing

    def probe(self, options: Options) -> Capabilities:
        raise self._missing

    def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AbstractAsyncContextManager[Runtime]:
        raise self._missing


@frozen
class Workshop:
    """Makes the actors of this daemon's sessions."""

    config: DaemonConfig
    state: StateDirectory
    journal: Journal
    plugins: Plugins
    approvals: ApprovalService
    wants: Wants = field(factory=Wants)

    async def look(self, granted: AgentGranted) -> None:
        """Look for what the agent needs; raises `RuntimeMissing` with what is not there."""
        driver, options = self._driver(granted)
        await trio.to_thread.run_sync(
            _look, driver, granted.workdir, options, abandon_on_cancel=True
        )

    def make_actor(
        self,
        link: Link,
        pacer: Pacer,
        granted: AgentGranted,
        session: Session,
        reporter: Reporter,
    ) -> SessionActor:
        ports = self.make_ports(link, pacer, granted, reporter)
        return SessionActor(session, ports, self.config.limits)

    def make_ports(
        self, link: Link, pacer: Pacer, granted: AgentGranted, reporter: Reporter
    ) -> Ports:
        known = _Known()
        driver, options = self._driver(granted)
        return Ports(
            agent=granted.agent,
            driver=driver,
            spec=self._spec(granted, options),
            journal=self.journal,
            probe=partial(self._probe, driver, granted, options, known),
            now=now,
            report=reporter.take,
            status=known.status,
            judge=_Services(link, granted).judge,
            read=_Services(link, granted).read,
            consult=partial(self.approvals.request, lineage=(granted.agent,)),
            progress=_Services(link, granted).progress,
            pace=pacer,
            stopped=partial(_log_end, granted.agent),
        )

    def _driver(self, granted: AgentGranted) -> tuple[Driver, Options]:
        """Find the driver; what is wrong becomes the agent's problem at its start."""
        try:
            options: Options = from_wire(dict(granted.options), Options)
            return self.plugins.load(granted.runtime), options
        except RemoteProtocolError as exc:
            problem = f"the agent's options are not valid: {exc}"
            return NoDriver(RuntimeMissing(problem, "change its options")), Options()
        except RuntimeMissing as exc:
            return NoDriver(exc), Options()

    def _spec(self, granted: AgentGranted, options: Options) -> SessionSpec:
        directory = self.state.session(granted.agent)
        workdir = directory / "work" if granted.workdir is None else granted.workdir
        if granted.workdir is None:
            (directory / "work").mkdir(exist_ok=True)
        return SessionSpec(
            agent_id=granted.agent,
            agent_name=granted.name,
            workdir=_place(workdir),
            state_dir=directory,
            model=granted.model,
            approval_policy=granted.approval_policy,
            options=options,
        )

    async def _probe(
        self, driver: Driver, granted: AgentGranted, options: Options, known: _Known
    ) -> Capabilities:
        try:
            capabilities = await trio.to_thread.run_sync(
                _look, driver, granted.workdir, options, abandon_on_cancel=True
            )
        except RuntimeMissing:
            self.wants.add(granted.agent)
            raise
        self.wants.drop(granted.agent)
        known.capabilities = to_wire(capabilities)
        return capabilities


def _look(driver: Driver, workdir: str | None, options: Options) -> Capabilities:
    problem = None if workdir is None else _unfit(_place(workdir))
    if problem is not None:
        raise RuntimeMissing(
            f"the working directory {workdir} {problem}",
            "create or mend it, or choose another"
            " (agentteam agents set NAME --workdir DIR)",
        )
    return driver.probe(options)


def _place(workdir: Path | str) -> Path:
    try:
        return Path(workdir).expanduser()
    except RuntimeError:
        return Path(workdir)  # nobody's home: there is no such directory


def _unfit(directory: Path) -> str | None:
    """Say why no process can work there."""
    try:
        if not directory.is_dir():
            return "does not exist"
    except OSError as exc:
        return f"cannot be used ({exc.strerror})"
    return None if os.access(directory, os.X_OK) else "may not be entered"


class _Known:
    """What was last heard of the runtime, to be shown while it is away."""

    def __init__(self) -> None:
        self.capabilities: Mapping[str, Any] = {}

    def status(self, session: Session, run_since: str | None) -> StatusReported:
        if session.live.capabilities is not None:
            self.capabilities = to_wire(session.live.capabilities)
        return status(session, run_since, self.capabilities)


@frozen
class _Services:
    """The link, for one agent."""

    link: Link
    granted: AgentGranted

    async def judge(self, send: JudgeSend) -> SendAnswered:
        return await self.link.judge(send, self.granted.agent)

    async def read(self, read: ReadTarget) -> HistoryRead:
        return await self.link.read(read, self.granted.agent)

    def progress(self, progress: Progress) -> None:
        self.link.send_live(
            Progressed(self.granted.agent, progress.run_id, progress.gen, progress.text)
        )


def compose_answerers(answerers: Iterable[Answerer]) -> ApprovalService:
    """A host's own come first; a person is asked when they hand on."""
    service = ApprovalService()
    for answerer in (*answerers, wait_for_person):
        service.add(answerer)
    return service


def _log_end(agent: AgentId, failure: Diagnostic, error: BaseException | None) -> None:
    # A full disk needs no trace: the sentence says all of it.
    trace = None if isinstance(error, JournalUnwritable) else error
    _log.error("the session of %s ended: %s", agent, failure.problem, exc_info=trace)
