"""What a daemon is told before it starts."""

from __future__ import annotations

import platform
from pathlib import Path

from attrs import field, frozen

from agentteam_supervisor.approval.service import Answerer
from agentteam_supervisor.daemon.dialing import LinkLimits
from agentteam_supervisor.daemon.restarts import Intensity
from agentteam_supervisor.session.deadlines import Limits


@frozen
class DaemonConfig:
    """
    Everything that varies between two daemons.

    `shutdown` bounds the clean end of all sessions, `goodbye` the last reports to the
    server, `greeting` how long the start waits for the server to be there.
    `answerers` are asked before a person is; the first that does not hand on decides.
    """

    state_dir: Path
    name: str = field(factory=platform.node)
    limits: Limits = field(factory=Limits)
    link: LinkLimits = field(factory=LinkLimits)
    runtimes: Intensity = field(factory=Intensity)
    sessions: Intensity = field(factory=Intensity)
    shutdown: float = 20.0
    goodbye: float = 2.0
    greeting: float = 5.0
    probe: float = 10.0
    answerers: tuple[Answerer, ...] = ()
