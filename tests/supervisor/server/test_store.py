"""The store: one writer, groups of transactions, and a schema with a version."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import orjson
import pytest
import trio
import trio.testing
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, func, insert, select

from agentteam_supervisor.server import events, schema
from agentteam_supervisor.server.store import (
    StateUnusable,
    _upgrade,
    make_engine,
    open_store,
)
from agentteam_supervisor.server.writer import StoreUnwritable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Executable

    from agentteam_supervisor.server.transaction import Tx

THREADS, ROUNDS = 8, 50


def _run(statement: Executable, tx: Tx) -> None:
    tx.run(statement)


async def _created(path: Path) -> Path:
    async with open_store(path):
        return path


@pytest.mark.req("R51")
@pytest.mark.inv(11)
async def test_compare_and_set_holds_among_eight_threads(tmp_path: Path) -> None:
    """Fails with any other way to begin: then the read stands outside."""
    path = await _created(tmp_path / "s.db")
    engine = make_engine(path, "BEGIN IMMEDIATE")
    start = threading.Barrier(THREADS)

    def contend(name: int) -> None:
        start.wait()
        for round_ in range(ROUNDS):
            with engine.begin() as conn:
                count = select(func.count()).select_from(schema.meta)
                seen = conn.execute(count).scalar()
                key = f"{name}-{round_}"
                conn.execute(insert(schema.meta).values(key=key, value=str(seen)))

    threads = [threading.Thread(target=contend, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await trio.to_thread.run_sync(thread.join)
    with engine.connect() as conn:
        values = conn.execute(select(schema.meta.c.value)).scalars().all()
    engine.dispose()
    seen = [int(value) for value in values if len(value) < 12]
    assert sorted(seen) == list(range(1, THREADS * ROUNDS + 1))


async def test_transaction_that_raises_is_rolled_back_alone(tmp_path: Path) -> None:
    failed = list[int]()
    async with open_store(tmp_path / "s.db") as store, trio.open_nursery() as nursery:

        async def put(number: int) -> None:
            def work(tx: Tx) -> None:
                tx.run(insert(schema.meta).values(key=str(number), value="x"))
                if number % 3 == 0:
                    raise ValueError

            try:
                await store.write(work)
            except ValueError:
                failed.append(number)

        for number in range(30):
            nursery.start_soon(put, number)
    async with open_store(tmp_path / "s.db") as store:
        keys = await store.read(lambda tx: tx.all(select(schema.meta.c.key)))
    kept = {row["key"] for row in keys} - {"store_id"}
    assert kept == {str(n) for n in range(30) if n % 3}
    assert sorted(failed) == list(range(0, 30, 3))


async def test_waiting_transactions_are_committed_together(tmp_path: Path) -> None:
    commits = list[int]()
    async with open_store(tmp_path / "s.db") as store, trio.open_nursery() as nursery:
        gate = threading.Event()
        original = store._committed

        def counted(touched: set[str]) -> None:
            commits.append(1)
            original(touched)

        assert store._writer is not None
        store._writer._committed = counted

        def first(_: Tx) -> None:
            gate.wait(5)

        nursery.start_soon(store.write, first)
        for number in range(20):

            def work(tx: Tx, number: int = number) -> None:
                tx.run(insert(schema.meta).values(key=str(number), value="x"))

            nursery.start_soon(store.write, work)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert len(commits) <= 3


async def test_full_disk_fails_its_transaction_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    def pages(count: int) -> Callable[[Tx], None]:
        pragma = f"PRAGMA max_page_count = {count}"
        return lambda tx: tx.conn.exec_driver_sql(pragma).close()

    def put(tx: Tx) -> None:
        tx.run(insert(schema.meta).values(key="large", value="x" * 1_000_000))

    async with open_store(tmp_path / "s.db") as store:
        await store.write(pages(1))
        with pytest.raises(StoreUnwritable):
            await store.write(put)
        await store.write(pages(1_000_000))
        await store.write(put)
        keys = await store.read(lambda tx: tx.all(select(schema.meta.c.key)))
    assert {row["key"] for row in keys} == {"store_id", "large"}


async def test_name_of_the_store_is_minted_once(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s.db") as store:
        first = store.id
    async with open_store(tmp_path / "s.db") as store:
        assert store.id == first
    async with open_store(tmp_path / "other.db") as store:
        assert store.id != first


async def test_migrations_make_the_tables_that_the_code_has(tmp_path: Path) -> None:
    path = _migrated(tmp_path / "s.db")
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as conn:
        context = MigrationContext.configure(conn)
        assert context.get_current_revision() == schema.HEAD
        assert compare_metadata(context, schema.METADATA) == []
    engine.dispose()


async def test_a_new_store_is_what_the_migrations_make(tmp_path: Path) -> None:
    created = await _created(tmp_path / "created.db")
    assert _schema(created) == _schema(_migrated(tmp_path / "migrated.db"))


def _migrated(path: Path) -> Path:
    """Make a store by the migrations alone."""
    engine = make_engine(path, "BEGIN IMMEDIATE")
    with engine.begin() as conn:
        _upgrade(conn, None)
    engine.dispose()
    return path


def _schema(path: Path) -> dict[str, object]:
    """Show the tables of a file with their indexes, as SQLite understands them."""
    shown: dict[str, object] = {}
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        for name, sql in tables.fetchall():
            columns = db.execute(f"PRAGMA table_xinfo('{name}')").fetchall()
            found = db.execute(f"PRAGMA index_list('{name}')").fetchall()
            indexes = sorted(
                (unique, origin, db.execute(f"PRAGMA index_info('{i}')").fetchall())
                for _, i, unique, origin, _ in found
            )
            shown[name] = (columns, indexes, "AUTOINCREMENT" in sql)
        shown["revision"] = db.execute("SELECT * FROM alembic_version").fetchall()
    return shown


async def test_state_of_a_newer_version_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    path = await _created(tmp_path / "s.db")
    engine = make_engine(path, "BEGIN IMMEDIATE")
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(StateUnusable, match="9999") as caught:
        await _created(path)
    assert "install the version" in caught.value.what_to_do


async def test_file_that_is_no_store_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StateUnusable, match="is damaged") as caught:
        await _created(path)
    assert caught.value.what_to_do
    assert path.read_bytes().startswith(b"not a database")


async def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateUnusable):
        await _created(tmp_path / "file" / "s.db")


@pytest.mark.req("R10", "R118")
@pytest.mark.bug("B04")
async def test_when_the_disk_undoes_a_group_none_of_it_is_claimed(
    tmp_path: Path,
) -> None:
    """SQLite rolls back the whole transaction after an I/O error, savepoints and all."""
    held = threading.Event()
    results: dict[str, object] = {}

    def hold(_: Tx) -> None:
        held.wait(10)

    def keep(key: str) -> Callable[[Tx], None]:
        return lambda tx: tx.run(insert(schema.meta).values(key=key, value=key))

    def undo(tx: Tx) -> None:
        tx.conn.exec_driver_sql("ROLLBACK")
        tx.conn.exec_driver_sql("SELECT * FROM of_a_disk_that_is_gone")

    async with open_store(tmp_path / "s.db") as store:

        async def write(name: str, work: Callable[[Tx], None]) -> None:
            try:
                results[name] = await store.write(work)
            except StoreUnwritable as error:
                results[name] = error

        async with trio.open_nursery() as nursery:
            for name, work in (("hold", hold), ("a", keep("a"))):
                nursery.start_soon(write, name, work)
                await trio.testing.wait_all_tasks_blocked()
            for name, work in (("undo", undo), ("b", keep("b"))):
                nursery.start_soon(write, name, work)
                await trio.testing.wait_all_tasks_blocked()
            held.set()
        keys = await store.read(lambda tx: tx.all(select(schema.meta.c.key)))
    kept = {row["key"] for row in keys}
    claimed = {name for name in ("a", "b") if results[name] is None}
    assert claimed == kept & {"a", "b"}
    assert isinstance(results["undo"], StoreUnwritable)


@pytest.mark.slow
@pytest.mark.req("R10", "R118")
@pytest.mark.bug("B04")
async def test_what_was_claimed_while_the_disk_filled_up_is_there(
    tmp_path: Path,
) -> None:
    """Many writers, and a disk that is full again and again."""
    claimed: set[str] = set()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "s.db"
    async with open_store(path) as store:

        async def write(name: str) -> None:
            for n in range(20):
                key = f"{name}-{n}"
                row = insert(schema.meta).values(key=key, value="x" * 3000)
                with contextlib.suppress(StoreUnwritable):
                    await store.write(partial(_run, row))
                    claimed.add(key)

        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(write, f"w{number}")
            try:
                for _ in range(12):
                    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
                    await trio.sleep(0.003)
                    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                    await trio.sleep(0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    async with open_store(path) as store:
        rows = await store.read(lambda tx: tx.all(select(schema.meta.c.key)))
    assert claimed - {row["key"] for row in rows} == set()
    assert len(claimed) < 16 * 20, "the disk was never full"


async def test_committed_events_are_at_hand_and_undone_ones_are_not(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "s.db") as store:
        assert store.told_after(0) is None  # what is older is only on the disk
        await store.write(lambda tx: events.emit(tx, "test", {"n": 1}))

        def fail(tx: Tx) -> None:
            events.emit(tx, "test", {"n": "undone"})
            raise LookupError

        with pytest.raises(LookupError):
            await store.write(fail)
        await store.write(lambda tx: events.emit(tx, "test", {"n": 2}))
        stored = await store.read(lambda tx: events.after(tx, 0, 10))
        told = store.told_after(0)
        assert told is not None
        assert [(t.seq, orjson.loads(t.data)) for t in told] == [
            (row["seq"], row["data"]) for row in stored
        ]
        assert [orjson.loads(t.data)["n"] for t in told] == [1, 2]
        assert store.told_after(told[-1].seq) == []
