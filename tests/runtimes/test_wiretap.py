"""A tap hears all of the wire; without one nothing is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_runtimes.incarnation import open_incarnation
from agentteam_runtimes.wiretap import DIRECTORY, TAP, Entry, current_tap

if TYPE_CHECKING:
    from pathlib import Path

WIRE = [
    {"dir": "in", "start": ["-u"]},
    {"dir": "in", "line": "one"},
    {"dir": "in", "line": "two"},
    {"dir": "out", "line": "one"},
    {"dir": "out", "line": "two"},
]


async def play(place: Path) -> None:
    """Say two lines to a program that repeats them."""
    heard: list[bytes] = []
    both = trio.Event()

    def take(lines: list[bytes]) -> None:
        heard.extend(lines)
        if len(heard) == 2:
            both.set()

    with trio.fail_after(20):
        async with open_incarnation(
            ["/bin/cat", "-u"],
            cwd=place,
            env={},
            on_lines=take,
            on_overlong=lambda _: None,
            on_exit=lambda _: None,
        ) as incarnation:
            await incarnation.write(b"one\ntwo\n")
            await both.wait()


@pytest.mark.slow
async def test_a_tap_hears_the_start_and_both_directions(tmp_path: Path) -> None:
    heard: list[Entry] = []
    token = TAP.set(heard.append)
    try:
        await play(tmp_path)
    finally:
        TAP.reset(token)
    await play(tmp_path)  # nobody listens any more
    assert heard == WIRE


@pytest.mark.slow
async def test_a_variable_has_each_incarnation_written_down_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires = tmp_path / "wires"
    monkeypatch.setenv(DIRECTORY, str(wires))
    for _ in range(2):
        await play(tmp_path)
    files = list(wires.iterdir())
    assert len(files) == 2
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        assert [{k: v for k, v in e.items() if k != "at"} for e in entries] == WIRE


def test_there_is_no_tap_unless_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY, raising=False)
    assert current_tap() is None
