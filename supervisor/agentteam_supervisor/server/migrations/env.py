"""Alembic's entry: migrates the connection that the store hands over."""

from __future__ import annotations

from alembic import context

from agentteam_supervisor.server.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA
)
context.run_migrations()
