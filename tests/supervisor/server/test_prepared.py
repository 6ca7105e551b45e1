"""Statements that are compiled once say what SQLAlchemy would have said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import bindparam, select, update
from sqlalchemy.exc import IntegrityError

from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.schema import agents, events, targets
from agentteam_supervisor.server.store import Store, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from agentteam_supervisor.server.transaction import Tx

TARGET = {
    "id": "tgt_1",
    "name": "@ada",
    "direct": True,
    "head": 0,
    "created_at": "then",
    "retired_at": None,
}
FIND = Prepared(select(targets).where(targets.c.id == bindparam("target")))
MOVE = Prepared(update(targets).where(targets.c.id == bindparam("target")), "head")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "store.db") as opened:
        yield opened


async def test_row_comes_back_as_the_library_gives_it(store: Store) -> None:
    await store.write(lambda tx: tx.run(insertion(targets), **TARGET))

    def look(tx: Tx) -> tuple[Any, Any]:
        plain = tx.one(select(targets).where(targets.c.id == "tgt_1"))
        return tx.one(FIND, target="tgt_1"), dict(plain or {})

    found, expected = await store.read(look)
    assert found == expected
    assert found["direct"] is True


async def test_values_pass_the_types_of_their_columns(store: Store) -> None:
    data = {"text": "äh", "list": [1, None]}

    def write(tx: Tx) -> Any:
        seq = tx.insert(insertion(events), kind="test", data=data)
        return tx.one(select(events).where(events.c.seq == seq))

    row = await store.write(write)
    assert row["data"] == data


async def test_update_writes_the_named_columns_and_no_other(store: Store) -> None:
    await store.write(lambda tx: tx.run(insertion(targets), **TARGET))
    await store.write(lambda tx: tx.run(MOVE, target="tgt_1", head=7))
    row = await store.read(lambda tx: tx.one(FIND, target="tgt_1"))
    assert row is not None
    assert (row["head"], row["name"]) == (7, "@ada")


async def test_scalar_is_the_first_column_or_nothing(store: Store) -> None:
    await store.write(lambda tx: tx.run(insertion(targets), **TARGET))
    head = Prepared(select(targets.c.head).where(targets.c.id == bindparam("target")))
    assert await store.read(lambda tx: tx.scalar(head, target="tgt_1")) == 0
    assert await store.read(lambda tx: tx.scalar(head, target="tgt_2")) is None


async def test_missing_value_is_an_error_not_a_null(store: Store) -> None:
    with pytest.raises(KeyError):
        await store.write(lambda tx: tx.run(MOVE, target="tgt_1"))


async def test_fault_of_the_database_is_told_in_the_librarys_terms(
    store: Store,
) -> None:
    await store.write(lambda tx: tx.run(insertion(targets), **TARGET))
    with pytest.raises(IntegrityError):
        await store.write(lambda tx: tx.run(insertion(targets), **TARGET))
    # It was undone alone, and the next transaction is none the worse.
    rows = await store.write(lambda tx: tx.all(FIND, target="tgt_1"))
    assert len(rows) == 1


async def test_joined_rows_have_the_columns_of_both(store: Store) -> None:
    both = Prepared(select(agents.c.name, targets.c.head).select_from(targets, agents))
    assert await store.read(lambda tx: tx.all(both)) == []
