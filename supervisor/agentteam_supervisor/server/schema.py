"""The tables of the store, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

# The revision that this code was written for; `migrations/versions` ends with it.
HEAD = "0001"

METADATA = MetaData()

meta = Table(
    "meta",
    METADATA,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
)

# `sent` and `received` are the link's numbers, ours and the daemon's.
daemons = Table(
    "daemons",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("boot", String, nullable=False),
    Column("connected", Boolean, nullable=False),
    Column("sent", Integer, nullable=False),
    Column("received", Integer, nullable=False),
    Column("runtimes", JSON, nullable=False),
)

# `status` is the daemon's last word; `fence_*` the newest generation it told us of.
agents = Table(
    "agents",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("runtime", String, nullable=False),
    Column("workdir", String),
    Column("model", String),
    Column("approval_policy", String, nullable=False),
    Column("auto_reply", Boolean, nullable=False),
    Column("options", JSON, nullable=False),
    Column("target_id", String, nullable=False),
    Column("created_at", String, nullable=False),
    Column("deleted_at", String),
    Column("daemon_id", String),
    Column("lease_epoch", Integer, nullable=False),
    Column("status", JSON, nullable=False),
    Column("fence_epoch", Integer, nullable=False),
    Column("fence_number", Integer, nullable=False),
    Column("fence_state", String, nullable=False),
    sqlite_autoincrement=True,
)
Index(
    "agents_name",
    agents.c.name,
    unique=True,
    sqlite_where=text("deleted_at IS NULL"),
    postgresql_where=text("deleted_at IS NULL"),
)

targets = Table(
    "targets",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("direct", Boolean, nullable=False),
    Column("head", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    Column("retired_at", String),
    sqlite_autoincrement=True,
)
Index(
    "targets_name",
    targets.c.name,
    unique=True,
    sqlite_where=text("retired_at IS NULL"),
    postgresql_where=text("retired_at IS NULL"),
)

# `floor` is the target's head when the agent joined: what came before is not owed.
members = Table(
    "members",
    METADATA,
    Column("target_id", String, primary_key=True),
    Column("agent_id", String, primary_key=True),
    Column("floor", Integer, nullable=False),
)

frontiers = Table(
    "frontiers",
    METADATA,
    Column("agent_id", String, primary_key=True),
    Column("target_id", String, primary_key=True),
    Column("upto", Integer, nullable=False),
    Column("extras", JSON, nullable=False),
)

messages = Table(
    "messages",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("target_id", String, nullable=False),
    Column("target_seq", Integer, nullable=False),
    Column("author_kind", String, nullable=False),
    Column("author_name", String, nullable=False),
    Column("author_agent", String),
    Column("body", Text, nullable=False),
    Column("created_at", String, nullable=False),
    UniqueConstraint("target_id", "target_seq", name="messages_order"),
    sqlite_autoincrement=True,
)

# `received` is the last attempt that the daemon has made durable.
deliveries = Table(
    "deliveries",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("message_id", String, nullable=False, index=True),
    Column("agent_id", String, nullable=False),
    Column("policy", String),
    Column("state", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("received", Integer, nullable=False),
    Column("evidence", JSON),
    Column("diagnostic", JSON),
    Column("history", JSON, nullable=False),
    Column("created_at", String, nullable=False),
    sqlite_autoincrement=True,
)
Index("deliveries_open", deliveries.c.agent_id, deliveries.c.state)

outbox = Table(
    "outbox",
    METADATA,
    Column("daemon_id", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("frame", Text, nullable=False),
)

sends = Table(
    "sends",
    METADATA,
    Column("id", String, primary_key=True),
    Column("agent_id", String, nullable=False),
    Column("judged", Text, nullable=False),
    Column("created_at", String, nullable=False),
)

controls = Table(
    "controls",
    METADATA,
    Column("id", String, primary_key=True),
    Column("agent_id", String, nullable=False),
    Column("action", String, nullable=False),
    Column("run_id", String),
    Column("who", String, nullable=False),
    Column("result", String),
    Column("created_at", String, nullable=False),
)

activities = Table(
    "activities",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("agent_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("run_id", String),
    Column("epoch", Integer),
    Column("number", Integer),
    Column("delivery_id", String),
    Column("words", JSON, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("at", String, nullable=False),
    sqlite_autoincrement=True,
)
Index("activities_agent", activities.c.agent_id, activities.c.seq)

runs = Table(
    "runs",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("agent_id", String, nullable=False),
    Column("run_id", String, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("report", JSON, nullable=False),
    UniqueConstraint("agent_id", "run_id", "turn", name="runs_turn"),
    sqlite_autoincrement=True,
)

# `settled`: the daemon said so; until then a person's decision is on its way.
approvals = Table(
    "approvals",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("agent_id", String, nullable=False, index=True),
    Column("epoch", Integer, nullable=False),
    Column("request", JSON, nullable=False),
    Column("state", String, nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("decided_by", String),
    Column("decided_at", String),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    METADATA,
    Column("seq", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("data", JSON, nullable=False),
    sqlite_autoincrement=True,
)

idempotency = Table(
    "idempotency",
    METADATA,
    Column("scope", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("body_hash", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("reply", JSON, nullable=False),
    Column("created", Integer, nullable=False, index=True),
)
