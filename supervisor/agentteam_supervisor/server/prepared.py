"""
Statements that are compiled once, at their first use.

SQLAlchemy takes ten times as long to find out what a statement means as SQLite takes to
run it, and holds the interpreter meanwhile: of an urgent message's way that was the
greater part. A `Prepared` stands in its module as a constant; what changes is bound by
name. Values pass the types of their columns, as they would in SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen
from sqlalchemy import Executable, Select, insert
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Dialect, Table
    from sqlalchemy.types import TypeEngine

    Convert = Callable[[Any], Any]


@frozen
class _Compiled:
    sql: str
    binds: tuple[tuple[str, Convert | None], ...]  # in the order of their places
    constants: Mapping[str, Any]
    columns: tuple[tuple[str, Convert | None], ...]

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        given = {**self.constants, **values}
        return [
            given[name] if convert is None else convert(given[name])
            for name, convert in self.binds
        ]

    def row(self, cells: Sequence[Any]) -> dict[str, Any]:
        return {
            name: cell if convert is None else convert(cell)
            for (name, convert), cell in zip(self.columns, cells, strict=True)
        }


@define(eq=False, init=False)
class Prepared:
    """One statement; `sets` names the columns that an insert or update writes."""

    statement: Executable
    sets: tuple[str, ...]
    _compiled: dict[str, _Compiled] = field(init=False)

    def __init__(self, statement: Executable, *sets: str) -> None:
        self.statement = statement
        self.sets = sets
        self._compiled = {}

    def run(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        """Execute on the connection's own transaction; gives the driver's cursor."""
        compiled = self.compiled(conn.dialect)
        return execute(conn, compiled.sql, compiled.bind(values))

    def compiled(self, dialect: Dialect) -> _Compiled:
        known = self._compiled.get(dialect.name)
        if known is None:
            known = self._compiled[dialect.name] = _compile(self, dialect)
        return known


def insertion(table: Table) -> Prepared:
    """Insert a row with all of its columns but the one that numbers the rows."""
    numbering = table.autoincrement_column
    return Prepared(insert(table), *(c.name for c in table.c if c is not numbering))


def execute(conn: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """Execute SQL on the driver's connection; its errors are SQLAlchemy's."""
    dbapi = conn.dialect.loaded_dbapi
    driver: Any = conn.connection.driver_connection
    cursor = driver.cursor()
    try:
        cursor.execute(sql, values)
    except dbapi.Error as exc:
        raise DBAPIError.instance(
            sql, tuple(values), exc, dbapi.Error, dialect=conn.dialect
        ) from exc
    return cursor


def _compile(prepared: Prepared, dialect: Dialect) -> _Compiled:
    statement: Any = prepared.statement
    compiled = statement.compile(
        dialect=dialect, column_keys=list(prepared.sets) or None
    )
    binds = compiled.binds
    columns: tuple[tuple[str, Convert | None], ...] = ()
    if isinstance(statement, Select):
        columns = tuple(
            (str(c.key), _from_db(c.type, dialect)) for c in statement.selected_columns
        )
    constants = {n: b.value for n, b in binds.items() if not b.required}
    names: list[str] = compiled.positiontup
    return _Compiled(
        str(compiled),
        tuple((name, _to_db(binds[name].type, dialect)) for name in names),
        constants,
        columns,
    )


def _to_db(type_: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    return type_.dialect_impl(dialect).bind_processor(dialect)


def _from_db(type_: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    return type_.dialect_impl(dialect).result_processor(dialect, None)
