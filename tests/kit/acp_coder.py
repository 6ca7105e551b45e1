"""One agent of the Agent Client Protocol, OpenCode, inside the whole product."""

from __future__ import annotations

from attrs import define
from tests.kit.acp_home import AcpHome
from tests.kit.opencoder import PATIENCE
from tests.kit.real_agent import RealAgent

from agentteam_supervisor.chaos.models.chat import ChatModel


@define(eq=False)
class AcpCoder(RealAgent[AcpHome, ChatModel]):
    """What a test sees of it: the person's side, the model's side, the processes."""

    patience = PATIENCE
    command = "opencode acp"
