"""The journal's database file: its tables, and what to do when it is damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from attrs import frozen

from agentteam_protocol.errors import AgentTeamError, JournalUnwritable

VERSION = 1
# Marks the file as ours, so that a stranger's database is never written to.
APPLICATION = 0x41_54_4A_31  # "ATJ1"

_TABLES = """
CREATE TABLE agents (agent TEXT PRIMARY KEY, settings BLOB) WITHOUT ROWID;
CREATE TABLE entries (agent TEXT, seq INTEGER, at TEXT, event BLOB,
                      PRIMARY KEY (agent, seq)) WITHOUT ROWID;
CREATE TABLE damaged (agent TEXT, seq INTEGER, at TEXT, event BLOB);
CREATE TABLE outbound (seq INTEGER PRIMARY KEY, frame BLOB);
CREATE TABLE marks (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""


class JournalVersion(AgentTeamError):
    """The file was written by another version, or is not a journal at all."""


@frozen
class Salvage:
    """The damaged file's new name, and how much of it could be read again."""

    moved_to: Path
    problem: str
    agents: tuple[str, ...] = ()
    entries: int = 0
    frames: int = 0

    def words(self) -> str:
        """Say it to whoever reads the log of the program."""
        kept = (
            f"{self.entries} records of {len(self.agents)} agents and"
            f" {self.frames} reports could be read and are in use"
            if self.entries or self.frames
            else "nothing in it could be read, so the agents' logs begin anew"
        )
        return (
            f"the journal was damaged ({self.problem}): {kept};"
            f" the damaged file is kept as {self.moved_to}"
        )


def prepare(path: Path, stamp: str) -> Salvage | None:
    """
    Make sure that a sound journal of our version is at `path`.

    A file that SQLite cannot recover is moved aside under a name of its own, and
    what can be read of it goes into the new one: a start-up never fails for it.
    """
    try:
        _check(path)
    except sqlite3.OperationalError as exc:
        raise JournalUnwritable(f"cannot open the journal {path}: {exc}") from exc
    except sqlite3.DatabaseError as exc:
        aside = _move_aside(path, stamp)
        _check(path)
        return _salvage(aside, path, str(exc))
    return None


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection for any one thread at a time; the caller keeps that rule."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA busy_timeout = 5000")
    # Every acknowledged record survives a power cut: freshness rests on it.
    db.execute("PRAGMA synchronous = FULL")
    return db


def _check(path: Path) -> None:
    with closing(connect(path)) as db:
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create(db)
        _check_version(db, path)
        verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)


def _create(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {APPLICATION};"
        f" PRAGMA user_version = {VERSION}; COMMIT;"
    )


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise JournalVersion(f"{path} is not a journal of AgentTeam; move it away")
    if version != VERSION:
        raise JournalVersion(
            f"{path} is a journal of version {version} and this program reads"
            f" version {VERSION}; use the program that wrote it"
        )


def _move_aside(path: Path, stamp: str) -> Path:
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _salvage(aside: Path, path: Path, problem: str) -> Salvage:
    try:
        with closing(connect(aside)) as old, closing(connect(path)) as new:
            return _copy(old, new, aside, problem)
    except sqlite3.DatabaseError:
        return Salvage(aside, problem)


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, aside: Path, problem: str
) -> Salvage:
    new.execute("BEGIN IMMEDIATE")
    agents = _copied(old, new, "agents", 2)
    names = [row[0] for row in new.execute("SELECT agent FROM agents")]
    # One agent's unreadable page must not cost another its log.
    entries = sum(_copied(old, new, "entries", 4, name) for name in names)
    frames = _copied(old, new, "outbound", 2)
    _copied(old, new, "marks", 2)
    new.execute("COMMIT")
    return Salvage(aside, problem, tuple(names) if agents else (), entries, frames)


def _copied(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    table: str,
    width: int,
    agent: str | None = None,
) -> int:
    """Copy the rows of a table up to the first one that cannot be read."""
    where, values = ("", ()) if agent is None else (" WHERE agent = ?", (agent,))
    holes = ", ".join("?" * width)
    count = 0
    try:
        for row in old.execute(f"SELECT * FROM {table}{where}", values):
            new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({holes})", row)
            count += 1
    except sqlite3.DatabaseError:
        pass
    return count
