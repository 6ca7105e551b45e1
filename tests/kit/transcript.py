"""
What a tap heard, in the order that a second recording has it in, too.

Some orders are of the machine that records, not of the runtime. They are evened out,
between one silence of the wire and the next:

- Our reply to a request of the runtime, and the echo that Claude makes of it, follow the
  request: what the runtime wrote meanwhile came in the same read, or in the next.
- The answer to a request over HTTP follows the request: it has a connection of its own.
- A look at OpenCode's record is told its state of that moment, and how often we look is
  our clock: the last answer to each look stays, behind the events.

Left out is what comes when its time comes (heartbeats), what tells of the machine, and
what OpenCode does beside its work: it loads its catalogue, and sums a session up.
"""

from __future__ import annotations

import json
import re
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Entry = dict[str, Any]

SILENCE: Entry = {"dir": "silence"}
LEFT_OUT = {
    *("server.heartbeat", "plugin.added", "catalog.updated", "reference.updated"),
    *("integration.updated", "session.updated", "session.diff"),
    *("configWarning", "remoteControl/status/changed"),
}
SUMMARY = "summary"  # of a session, and of what a person said
LOOK = re.compile(r"/session/status|/permission|/session/[^/]+/message\?limit=\d+")


def transcript(heard: Iterable[Entry]) -> list[Entry]:
    """Decode what was heard, and put it in order."""
    entries = [_unsummed(e) for e in map(decoded, heard) if not _is_left_out(e)]
    told: list[Entry] = []
    for silence, group in groupby(entries, lambda e: e["dir"] == "silence"):
        if not silence:
            told += _evened(_paired(_paired(list(group), _reply), _answer))
    return [{k: v for k, v in e.items() if k != "number"} for e in told]


def decoded(entry: Entry) -> Entry:
    """Read the JSON in it; what is none stays text."""
    out = dict(entry)
    for key in ("line", "event"):
        if key in out:
            out[key] = _read(out[key])
    for key in ("request", "answer"):
        if key in out and "body" in out[key]:
            out[key] = {**out[key], "body": _read(out[key]["body"])}
    return out


def is_look(entry: Entry) -> bool:
    """Tell whether it only reads, as often as our clock has it."""
    asked = entry.get("request", {})
    return asked.get("method") == "GET" and bool(LOOK.fullmatch(asked["path"]))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _told(entry: Entry) -> Entry:
    told = entry.get("line") or entry.get("event")
    return told if isinstance(told, dict) else {}


def _kind(entry: Entry) -> Any:
    return _told(entry).get("method") or _told(entry).get("type")


def _reply(entry: Entry) -> tuple[str, bool] | None:
    """Name the request of the runtime that this is, or follows."""
    line, ours = _told(entry), entry["dir"] == "in"
    if "line" not in entry:
        return None
    if line.get("type") == "control_request" and not ours:
        return str(line.get("request_id")), False
    if line.get("type") == "control_response":
        return str(line.get("response", {}).get("request_id")), True
    if "id" in line and ours != ("method" in line):
        return str(line["id"]), ours
    return None


def _answer(entry: Entry) -> tuple[str, bool] | None:
    """Name the request of ours over HTTP that this is, or answers."""
    number = entry.get("number")
    return None if number is None else (str(number), "answer" in entry)


def _paired(
    entries: list[Entry], name: Callable[[Entry], tuple[str, bool] | None]
) -> list[Entry]:
    """Put what follows a request of the same name behind it, where that is here."""
    named = [(entry, name(entry)) for entry in entries]
    asked = {n[0] for _, n in named if n and not n[1]}
    told: list[Entry] = []
    for entry, mine in named:
        if mine and mine[1] and mine[0] in asked:
            continue
        told.append(entry)
        if mine and not mine[1]:
            told += [e for e, n in named if n == (mine[0], True)]
    return told


def _evened(entries: list[Entry]) -> Iterator[Entry]:
    """Put looks behind each thing that we tell."""
    looks: dict[str, list[Entry]] = {}
    look = ""
    for entry in entries:
        asked = entry.get("request")
        if asked and asked["method"] != "GET":
            yield from chain(*looks.values())
            looks = {}
        if is_look(entry):
            look = entry["request"]["path"]
            looks[look] = [entry]
        elif look and "answer" in entry:
            looks[look].append(entry)
            look = ""
        else:
            yield entry
    yield from chain(*looks.values())


def _is_left_out(entry: Entry) -> bool:
    info = _told(entry).get("properties", {}).get("info", {})
    return _kind(entry) in LEFT_OUT or ("event" in entry and SUMMARY in info)


def _unsummed(entry: Entry) -> Entry:
    """Leave out what was summed up by then, or not yet."""
    if "answer" not in entry:
        return entry
    return {**entry, "answer": _without(entry["answer"], SUMMARY)}


def _without(value: Any, key: str) -> Any:
    match value:
        case dict():
            return {k: _without(v, key) for k, v in value.items() if k != key}
        case list():
            return [_without(v, key) for v in value]
        case _:
            return value
