"""
Where a session's record goes on: Claude may go back to an end that it has left.

A process that ends in peace writes which row was its last. Versions that drop a cut call
of a tool go on at a row before it, beside the end that is named; killed then, the next
one would take up the named end, and know nothing of what was said since.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from agentteam_runtimes import jsonfields
from agentteam_runtimes.claude import wire
from agentteam_runtimes.jsonlines import Noise, decode_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CONVERSATION = (wire.USER, wire.ASSISTANT, "attachment")


def name_the_end(projects: Path, session: str) -> None:
    """Write down which row is the last, where the record names one of another branch."""
    for path in projects.glob(f"*/{session}.jsonl"):
        with suppress(OSError):
            lines = path.read_bytes().split(b"\n")
            if (end := left_branch(lines)) is None:
                continue
            row = {"type": wire.END, "leafUuid": end, "sessionId": session}
            torn = b"\n" if lines[-1] else b""
            with path.open("ab") as file:
                file.write(torn + json.dumps(row).encode() + b"\n")


def left_branch(lines: Iterable[bytes]) -> str | None:
    """Give the last row of a record, if it does not follow from the end that is named."""
    parents: dict[str, str] = {}
    named = last = ""
    for line in lines:
        row = decode_line(line)
        if isinstance(row, Noise):
            continue  # the last line of a process that was killed
        if row.get("type") == wire.END:
            named = jsonfields.text(row, "leafUuid")
        elif row.get("type") in CONVERSATION and not row.get("isSidechain"):
            last = jsonfields.text(row, "uuid")
            parents[last] = jsonfields.text(row, "parentUuid")
    at = last
    while at and at != named:
        at = parents.pop(at, "")  # popped: a ring would have no end
    return last if named and last and not at else None
