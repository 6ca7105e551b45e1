"""Which rows of a record follow from the end that it names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentteam_runtimes.claude.branches import left_branch, name_the_end

if TYPE_CHECKING:
    from pathlib import Path


def row(uuid: str, parent: str | None, type: str = "user", **more: Any) -> bytes:
    return json.dumps(
        {"type": type, "uuid": uuid, "parentUuid": parent, **more}
    ).encode()


def end(uuid: str) -> bytes:
    return json.dumps({"type": "last-prompt", "leafUuid": uuid}).encode()


ASKED = [row("a", None), row("b", "a", "assistant"), row("c", "b")]
CALLED = [*ASKED, row("call", "c", "assistant"), end("call")]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ([], None),
        (ASKED, None),  # no end is named
        ([*ASKED, end("c")], None),
        ([*ASKED, end("c"), row("d", "c", "assistant"), row("e", "d")], None),
        (CALLED, None),
        ([*CALLED, row("d", "c", "assistant"), row("e", "d")], "e"),
        ([*CALLED, row("d", "c", "assistant"), row("e", "d"), end("e")], None),
        ([*CALLED, row("d", "call", isSidechain=True)], None),
        ([*CALLED, row("d", "lost")], "d"),
        ([*CALLED, row("d", "e"), row("e", "d")], "e"),  # a ring ends, too
        ([*CALLED, b'{"type": "user", "uu'], None),
    ],
)
def test_the_last_row_is_named_where_the_session_has_left_its_end(
    lines: list[bytes], left: str | None
) -> None:
    assert left_branch(lines) == left


def test_a_torn_record_is_closed_before_the_end_is_named(tmp_path: Path) -> None:
    record = tmp_path / "project" / "s.jsonl"
    record.parent.mkdir()
    lines = [*CALLED, row("d", "c"), b'{"type": "us']
    record.write_bytes(b"\n".join(lines))
    name_the_end(tmp_path, "s")
    *before, torn, added, last = record.read_bytes().split(b"\n")
    assert (before, torn, last) == (lines[:-1], lines[-1], b"")
    assert json.loads(added) == {
        "type": "last-prompt",
        "leafUuid": "d",
        "sessionId": "s",
    }
    name_the_end(tmp_path, "s")
    assert record.read_bytes().count(b"last-prompt") == 2
