"""
What Claude itself has recorded of a session, and what we must remember beside it.

Claude keeps one file for each session: a line for each message, with the ids of inputs.
An input that it took in the middle of a turn is an attachment that names its id. What it
had only queued is not there, and is lost with its process.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.ids import ItemId
from agentteam_runtimes import jsonfields
from agentteam_runtimes.claude import wire
from agentteam_runtimes.claude.turns import keys_of
from agentteam_runtimes.driver import ItemOutcome
from agentteam_runtimes.jsonlines import Noise, decode_line

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@frozen
class Tail:
    """The end of a record that no answer follows: `keys` after the row `at`."""

    at: str
    keys: tuple[str, ...]


def find_tail(projects: Path, session: str, waiting: Container[str]) -> Tail | None:
    """
    Find what a process that died had recorded, and had no answer to.

    Only inputs that wait and nothing else: a resume at the row before it leaves them
    out, so that they can be given again. Whatever else was done stays as it is.
    """
    tail: Tail | None = None
    for path in projects.glob(f"*/{session}.jsonl"):
        with suppress(OSError), path.open("rb") as lines:
            for line in lines:
                row = decode_line(line)
                if not isinstance(row, Noise):
                    tail = _longer(tail, row, waiting)
    return tail if tail is not None and tail.keys else None


def _longer(tail: Tail | None, row: JsonObject, waiting: Container[str]) -> Tail | None:
    if row.get("type") == wire.ASSISTANT:
        # Also what Claude itself writes when it resumes what was cut off.
        uses = any(
            part.get("type") == "tool_use"
            for part in jsonfields.objects(
                jsonfields.mapping(row, "message"), "content"
            )
        )
        return None if uses else Tail(jsonfields.text(row, "uuid"), ())
    keys = _keys(row)
    if row.get("type") != wire.USER and not keys:
        return tail  # a row about something else
    plain = row.get("type") == wire.USER and all(key in waiting for key in keys)
    return Tail(tail.at, (*tail.keys, *keys)) if tail and plain else None


def _keys(row: JsonObject) -> list[str]:
    match row.get("type"):
        case wire.USER:
            uuids = [
                *jsonfields.strings(row, "mergedSendUuids"),
                jsonfields.text(row, "uuid"),
            ]
        case "attachment":
            uuids = [
                jsonfields.text(jsonfields.mapping(row, "attachment"), "source_uuid")
            ]
        case _:
            uuids = []
    return [key for uuid in uuids for key in keys_of(uuid)]


def _is_answer(row: JsonObject) -> bool:
    if row.get("type") != wire.ASSISTANT:
        return False
    return jsonfields.mapping(row, "message").get("model") != wire.SYNTHETIC


@frozen
class Kept:
    """What we remember beside the record of one session."""

    carried: Mapping[str, ItemId] = field(factory=dict[str, ItemId])
    waiting: tuple[str, ...] = ()  # keys that Claude has and that did not surface


@define
class Memory:
    """The file of `Kept`, for the process that resumes the session."""

    path: Path
    _kept: Kept = field(factory=Kept)

    def read(self, session: str) -> Kept:
        """Read what was kept of this session; nothing of another."""
        try:
            found = json.loads(self.path.read_text())[session]
            carried = {str(k): ItemId(str(i)) for k, i in found["carried"].items()}
            self._kept = Kept(carried, tuple(map(str, found["waiting"])))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            self._kept = Kept()
        return self._kept

    def keep(self, session: str, kept: Kept) -> None:
        """Keep this, if it is other than before."""
        if kept == self._kept:
            return
        self._kept = kept
        new = self.path.with_suffix(".new")
        text = {"carried": dict(kept.carried), "waiting": kept.waiting}
        with suppress(OSError):
            new.write_text(json.dumps({session: text}))
            new.replace(self.path)
