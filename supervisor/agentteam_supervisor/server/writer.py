"""The one thread that writes: queued transactions, committed in groups."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import outcome
import trio
from attrs import define, field
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from agentteam_protocol.errors import AgentTeamError, QueueFull
from agentteam_supervisor.chaos import points
from agentteam_supervisor.server.prepared import execute
from agentteam_supervisor.server.transaction import Told, Tx

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from agentteam_supervisor.server.transaction import Queued

GROUP = 128
QUEUED = 10_000
TOLD = 512


class StoreUnwritable(AgentTeamError):
    """A commit failed (disk full, no permission): nothing of its group happened."""


def words_of(exc: BaseException) -> str:
    """Say what the database said, without its library's framing and links."""
    return str(getattr(exc, "orig", None) or exc)


class _Undone(Exception):
    """SQLite has rolled back the whole group, not only the job that failed."""


def _insist_on_transaction(conn: Connection) -> None:
    """
    Raise when the transaction is gone, as after an I/O error or a full disk.

    What ran before would be claimed and was undone, what came after would stand alone.
    """
    if not getattr(conn.connection.driver_connection, "in_transaction", True):
        raise _Undone("it was rolled back after an error of the disk")


@contextlib.contextmanager
def _savepoint(conn: Connection) -> Generator[None]:
    """Undo what the block did when it raises, and nothing before it."""
    execute(conn, "SAVEPOINT job")
    try:
        yield
    except BaseException:
        # It is gone together with the whole transaction after an error of the disk.
        with contextlib.suppress(SQLAlchemyError):
            execute(conn, "ROLLBACK TO job")
            execute(conn, "RELEASE job")
        raise
    execute(conn, "RELEASE job")


@define(eq=False)
class Job:
    """One transaction on its way; `result` is set before `done`."""

    work: Callable[[Tx], Any]
    done: trio.Event = field(factory=trio.Event)
    result: outcome.Outcome[Any] | None = None


def _trouble_of(group: list[Job]) -> str | None:
    """Say what a statement failed with in a group that was committed without it."""
    for job in group:
        error = getattr(job.result, "error", None)
        if isinstance(error, StoreUnwritable):
            return str(error)
    return None


class Writer:
    """
    Runs each transaction in a savepoint and commits many of them together.

    A transaction that raises is rolled back alone. `committed` is called on the
    trio thread with what the group touched, before its callers go on. `newest` is
    the last frame of the outbox: a connection that lacks only that one need not look.
    `told` are the last events, in order: whoever lacks no more need not look.
    """

    def __init__(
        self, engine: Engine, retention: int, committed: Callable[[set[str]], None]
    ) -> None:
        self._engine = engine
        self._retention = retention
        self._committed = committed
        # What the last commit failed with; only a write tells that one is possible.
        self.trouble: str | None = None
        self.newest: Queued | None = None
        self.told: deque[Told] = deque(maxlen=TOLD)
        self._queue = queue.Queue[Job | None](QUEUED)
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._main, name="store-writer")
        self._thread.start()

    def submit(self, job: Job) -> None:
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            raise QueueFull("too many transactions are waiting for the disk") from None

    def close(self) -> None:
        """Finish what is queued, then end the thread; blocks."""
        self._queue.put(None)
        self._thread.join()

    def _main(self) -> None:
        with self._engine.connect() as conn:
            running = True
            while running:
                group, running = self._take()
                if group:
                    self._commit(conn, group)

    def _take(self) -> tuple[list[Job], bool]:
        group: list[Job] = []
        item = self._queue.get()
        while item is not None:
            group.append(item)
            if len(group) == GROUP:
                return group, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, conn: Connection, group: list[Job]) -> None:
        touched: set[str] = set()
        acts: list[object] = []
        queued: list[Queued | None] = []
        told: list[Told] = []
        try:
            with conn.begin():
                for job in group:
                    job.result = outcome.capture(
                        self._run, conn, job.work, touched, acts, queued, told
                    )
                    _insist_on_transaction(conn)
                points.before("store", acts)
            self.trouble = _trouble_of(group)
            points.after("store", acts)
        except (SQLAlchemyError, _Undone) as exc:
            self.trouble = words_of(exc)
            touched.clear()
            queued.clear()
            told.clear()
            for job in group:
                error = StoreUnwritable(
                    f"the store could not be written: {words_of(exc)}"
                )
                job.result = outcome.Error(error)
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake, group, touched, queued, told)

    def _run(
        self,
        conn: Connection,
        work: Callable[[Tx], Any],
        touched: set[str],
        acts: list[object],
        queued: list[Queued | None],
        told: list[Told],
    ) -> Any:
        tx = Tx(conn, self._retention)
        try:
            with _savepoint(conn):
                result = work(tx)
        except OperationalError as exc:
            problem = f"the store could not be written: {words_of(exc)}"
            raise StoreUnwritable(problem) from exc
        touched |= tx.touched
        acts += tx.acts
        queued += tx.queued
        told += tx.told
        return result

    def _wake(
        self,
        group: list[Job],
        touched: set[str],
        queued: list[Queued | None],
        told: list[Told],
    ) -> None:
        if queued:
            self.newest = queued[-1]
        self.told += told
        self._committed(touched)
        for job in group:
            job.done.set()
