"""
What Claude itself has recorded of a session, and what we must remember beside it.

Claude keeps one file for each session: a line for each message, with the ids of inputs.
An input that it took in the middle of a turn is an attachment that names its id. What it
had only queued is not there, and is lost with its process.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, frozen

from agentteam_protocol.ids import ItemId
from agentteam_runtimes.claude import wire
from agentteam_runtimes.claude.turns import keys_of
from agentteam_runtimes.driver import ItemOutcome
from agentteam_runtimes.jsonlines import Noise, decode_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentteam_runtimes.jsonlines import JsonObject


def read_fates(projects: Path, session: str) -> dict[str, ItemOutcome]:
    """
    Tell of every key in a session's record whether a model request held it for sure.

    One that no answer of the model follows is carried: the next request has it.
    """
    fates: dict[str, ItemOutcome] = {}
    for path in projects.glob(f"*/{session}.jsonl"):
        with suppress(OSError), path.open("rb") as lines:
            _follow(lines, fates)
    return fates


def _follow(lines: Iterable[bytes], fates: dict[str, ItemOutcome]) -> None:
    open_keys: list[str] = []
    for line in lines:
        row = decode_line(line)
        if isinstance(row, Noise):
            continue  # the last line of a process that was killed
        for key in _keys(row):
            fates[key] = ItemOutcome.carried
            open_keys.append(key)
        if _is_answer(row):
            fates |= dict.fromkeys(open_keys, ItemOutcome.surfaced)
            open_keys.clear()


def _keys(row: JsonObject) -> list[str]:
    match row.get("type"):
        case wire.USER:
            uuids = [*wire.strings(row, "mergedSendUuids"), wire.text(row, "uuid")]
        case "attachment":
            uuids = [wire.text(wire.mapping(row, "attachment"), "source_uuid")]
        case _:
            uuids = []
    return [key for uuid in uuids for key in keys_of(uuid)]


def _is_answer(row: JsonObject) -> bool:
    if row.get("type") != wire.ASSISTANT:
        return False
    return wire.mapping(row, "message").get("model") != wire.SYNTHETIC


@frozen
class Adoption:
    """
    The session that a person already had, for an agent that is made on it.

    It is taken up once. Later the agent's own token names it; without one it is lost.
    """

    session: str | None
    path: Path

    @property
    def due(self) -> str | None:
        with suppress(OSError):
            if self.path.read_text() == self.session:
                return None
        return self.session

    def done(self, session: str) -> None:
        if session == self.session:
            with suppress(OSError):
                self.path.write_text(session)


@define
class CarriedFile:
    """Entries that Claude carries, kept for the process that resumes the session."""

    path: Path
    _kept: dict[str, ItemId] | None = None

    def read(self, session: str) -> dict[str, ItemId]:
        """Read what was kept of this session; nothing of another."""
        try:
            kept = json.loads(self.path.read_text())
            self._kept = {str(k): ItemId(str(i)) for k, i in kept[session].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            self._kept = {}
        return dict(self._kept)

    def keep(self, session: str, carried: Mapping[str, ItemId]) -> None:
        """Keep these, if they are others than before."""
        if carried == self._kept or not (carried or self._kept):
            return
        self._kept = dict(carried)
        new = self.path.with_suffix(".new")
        with suppress(OSError):
            new.write_text(json.dumps({session: self._kept}))
            new.replace(self.path)
