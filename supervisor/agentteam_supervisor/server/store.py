"""The store: SQLite under the state directory, opened, migrated, read and written."""

from __future__ import annotations

import functools
import secrets
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
import trio
from sqlalchemy import Connection, Engine, create_engine, event, insert, select, update
from sqlalchemy.exc import DatabaseError, OperationalError

from agentteam_protocol.errors import AgentTeamError
from agentteam_supervisor.server import schema
from agentteam_supervisor.server.pulse import Pulse
from agentteam_supervisor.server.transaction import Queued, Told, Tx
from agentteam_supervisor.server.unstored import Unstored
from agentteam_supervisor.server.writer import Job, Writer, words_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")
READERS = 4
# As Alembic makes it: where the file's revision stands.
_REVISIONS = """\
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)"""
MIGRATIONS = Path(__file__).parent / "migrations"


class StateUnusable(AgentTeamError):
    """The state directory cannot be used; says what to do about it."""

    def __init__(self, problem: str, what_to_do: str) -> None:
        super().__init__(f"{problem}; {what_to_do}")
        self.problem = problem
        self.what_to_do = what_to_do


def _to_json(value: Any) -> str:
    return orjson.dumps(value).decode()


def make_engine(path: Path, begin: str) -> Engine:
    """
    Make an engine whose transactions start with `begin`.

    Writers need `BEGIN IMMEDIATE`: with the driver's own default a read before the
    first write stands outside the transaction, and a compare-and-set is a guess.
    """
    engine = create_engine(
        f"sqlite:///{path}",
        connect_args={"timeout": 30},
        pool_size=READERS,
        json_serializer=_to_json,
        json_deserializer=orjson.loads,
    )

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    # Both are called by the engine alone.
    _ = connected, begun
    return engine


class Store:
    """
    The server's only durable state; `id` names it for ever.

    `moved` beats after a commit, by what the commit touched.
    """

    def __init__(self, path: Path, retention: int) -> None:
        self.id = ""
        self.moved = {"events": Pulse(), "outbox": Pulse()}
        self._reader = make_engine(path, "BEGIN")
        self._limiter = trio.CapacityLimiter(READERS)
        self._engine = make_engine(path, "BEGIN IMMEDIATE")
        self._writer: Writer | None = None
        self._retention = retention
        self._unstored = Unstored(path.parent)

    @property
    def newest(self) -> Queued | None:
        """The frame that was queued last; None: look into the outbox."""
        return None if self._writer is None else self._writer.newest

    @property
    def unstored(self) -> Unstored:
        """What is known beyond what the disk took, with the trouble of the disk."""
        self._unstored.trouble = None if self._writer is None else self._writer.trouble
        return self._unstored

    def told_after(self, seq: int) -> list[Told] | None:
        """List the events after this one; None: some of them are only on the disk."""
        told = () if self._writer is None else self._writer.told
        if not told or told[0].seq > seq + 1:
            return None
        return [one for one in told if one.seq > seq]

    async def read(self, look: Callable[[Tx], T]) -> T:
        """Look at one snapshot, in a thread."""
        return await trio.to_thread.run_sync(self._look, look, limiter=self._limiter)

    async def write(self, work: Callable[[Tx], T]) -> T:
        """
        Run one transaction; returns once it is durable.

        If cancelled here, the transaction may still happen.
        """
        if self._writer is None:
            raise RuntimeError("the store is not open")
        job = Job(work)
        self._writer.submit(job)
        await job.done.wait()
        if job.result is None:
            raise RuntimeError("a transaction ended without a result")
        return cast("T", job.result.unwrap())

    def prepare(self) -> None:
        """Migrate and read the store's own name; blocks."""
        with self._engine.begin() as conn:
            _migrate(conn)
            self.id = _identity(conn)
            conn.execute(update(schema.daemons).values(connected=False))

    def start(self) -> None:
        self._writer = Writer(self._engine, self._retention, self._committed)

    def close(self) -> None:
        """End the writer after what is queued; blocks."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._engine.dispose()
        self._reader.dispose()

    def _look(self, look: Callable[[Tx], T]) -> T:
        with self._reader.begin() as conn:
            return look(Tx(conn))

    def _committed(self, touched: set[str]) -> None:
        for name in touched:
            self.moved[name].beat()


@asynccontextmanager
async def open_store(path: Path, retention: int = 10_000) -> AsyncGenerator[Store]:
    """Open and migrate the store; raises `StateUnusable` with what to do."""
    store = Store(path, retention)
    try:
        await trio.to_thread.run_sync(functools.partial(_prepare, store, path))
        store.start()
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(store.close)


def _prepare(store: Store, path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store.prepare()
    except (OSError, OperationalError) as exc:
        raise StateUnusable(
            f"the store {path} cannot be opened: {words_of(exc)}",
            "check that the disk has room and that the directory is yours to write,"
            " or start with another state directory",
        ) from exc
    except DatabaseError as exc:
        raise StateUnusable(
            f"the store {path} is damaged: {words_of(exc)}",
            "put a copy of it back, or move it away and start with no messages",
        ) from exc


def _migrate(conn: Connection) -> None:
    found = _revision(conn)
    if found == schema.HEAD:
        return
    if found is None and not _tables(conn):
        _create(conn)
    else:
        _upgrade(conn, found)


def _create(conn: Connection) -> None:
    """Make an empty file what the migrations would, without their price (a test)."""
    schema.METADATA.create_all(conn)
    conn.exec_driver_sql(_REVISIONS)
    conn.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (schema.HEAD,))


def _upgrade(conn: Connection, found: str | None) -> None:
    # Alembic takes a sixth of a start to import, and 9 MB: only where it has work.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known = {s.revision for s in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StateUnusable(
            f"the state directory has schema version {found}, which this version of"
            f" agentteam does not know (it knows up to {schema.HEAD})",
            "install the version that wrote it, or start with another state directory",
        )
    config.attributes["connection"] = conn
    command.upgrade(config, "head")


def _revision(conn: Connection) -> str | None:
    if "alembic_version" not in _tables(conn):
        return None
    found = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def _tables(conn: Connection) -> set[str]:
    return set(conn.exec_driver_sql("SELECT name FROM sqlite_master").scalars())


def _identity(conn: Connection) -> str:
    query = select(schema.meta.c.value).where(schema.meta.c.key == "store_id")
    known = conn.execute(query).scalar()
    if known is None:
        known = secrets.token_hex(6)
        conn.execute(insert(schema.meta).values(key="store_id", value=known))
    return str(known)
