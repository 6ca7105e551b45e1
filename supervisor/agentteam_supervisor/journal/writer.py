"""The journal's one writer: a thread that commits whatever is waiting as one group."""

from __future__ import annotations

import queue
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import trio

from agentteam_runtimes import courtesy
from agentteam_supervisor.chaos import points
from agentteam_supervisor.journal.transaction import Numbers, Refusals, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentteam_supervisor.journal import operations as op

# A group is bounded, so that the first of a flood does not wait for all of it.
GROUP_OPERATIONS = 4096
GROUP_BYTES = 4 << 20
# A commit gives up the interpreter some twenty times and gets it back only so often
# from an event loop that never rests. Python's own 5 ms made it 100 ms and more.
TURN_SECONDS = 0.0005


class Writer:
    """
    Owns the writing connection; `put` is a plain call from the loop's thread.

    A group is one transaction: durable as a whole or not there at all. `settled` is
    called in the loop's thread after each, before the group's commits resolve.
    """

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        numbers: Numbers,
        settled: Callable[[Numbers, int], None],
    ) -> None:
        self._path = path
        self._db = db
        self._numbers = numbers
        self._settled = settled
        self._refusals = Refusals()
        self._owed = 0
        self._queue: queue.SimpleQueue[op.Operation | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        # A daemon thread: a stuck disk must not hold the process at its exit.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def start(self) -> None:
        sys.setswitchinterval(TURN_SECONDS)
        self._thread.start()
        courtesy.respect(self)

    @property
    def owes(self) -> bool:
        return self._owed > 0

    def put(self, operation: op.Operation) -> None:
        self._owed += 1
        self._queue.put(operation)

    async def close(self, within: float) -> None:
        """Write what is waiting, then end the thread."""
        self._queue.put(None)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._thread.join, within)

    # --- in the writer's thread -----------------------------------------------

    def _run(self) -> None:
        with closing(self._db) as db:
            while group := self._next_group():
                self._commit(db, group)
                self._tell(group)

    def _next_group(self) -> list[op.Operation]:
        """Wait for a request and take the others that wait; empty: it is over."""
        operation = self._queue.get()
        group: list[op.Operation] = []
        size = 0
        while operation is not None:
            group.append(operation)
            size += operation.size
            if len(group) >= GROUP_OPERATIONS or size >= GROUP_BYTES:
                return group
            try:
                operation = self._queue.get_nowait()
            except queue.Empty:
                return group
        if group:
            self._queue.put(None)  # nothing comes after it: the end keeps its place
        return group

    def _commit(self, db: sqlite3.Connection, group: list[op.Operation]) -> None:
        transaction = Transaction(db, self._numbers.copy(), self._refusals)
        try:
            db.execute("BEGIN IMMEDIATE")
            for operation in group:
                transaction.perform(operation)
            transaction.flush()
            points.before("commit", group)
            db.execute("COMMIT")
        except Exception as exc:
            # The boundary of this thread: were it to end, everybody would wait for ever.
            self._fail(db, group, str(exc) or repr(exc))
        else:
            points.after("commit", group)
            self._numbers = transaction.committed()

    def _fail(
        self, db: sqlite3.Connection, group: list[op.Operation], why: str
    ) -> None:
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        for operation in group:
            operation.commit.error = f"the journal {self._path} is not writable: {why}"
        self._refusals.after(group)

    def _tell(self, group: list[op.Operation]) -> None:
        numbers, size = self._numbers.copy(), sum(request.size for request in group)

        def settle() -> None:
            self._owed -= len(group)
            self._settled(numbers, size)
            for operation in group:
                operation.commit.resolve()

        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(settle)
