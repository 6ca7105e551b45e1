"""Plays a recorded wire to the real driver, without the runtime and without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from attrs import asdict
from tests.kit.meanings import Meanings
from tests.kit.peer import Peer
from tests.kit.scenarios import SCENARIOS, Stage
from tests.kit.scrubber import Scrubber, strings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kit.corpora import Performer

    from agentteam_runtimes.driver import RuntimeEvent

Entry = dict[str, Any]


def replay(
    performer: Performer, scenario: str, wire: Sequence[Entry], place: Path
) -> list[Entry]:
    """Play a scenario against a recording; gives what the driver made of it."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(_replay, performer, scenario, wire, place, clock=clock)


async def _replay(
    performer: Performer, scenario: str, wire: Sequence[Entry], place: Path
) -> list[Entry]:
    desk = performer.empty_desk(place)
    desk.home.workdir.mkdir(parents=True)
    options = desk.home.options()
    program = options["bin"] if "bin" in options else options["command"][0]
    await trio.Path(program).touch(0o700)  # it is looked up, and never run
    async with trio.open_nursery() as nursery:
        meanings = Meanings({"<home>": str(desk.home.path)})
        peer = Peer(wire, meanings, nursery.cancel_scope)
        stage = Stage(desk, peer, performer.asking, performer.refused)
        with pytest.MonkeyPatch.context() as patch:
            driver = desk.driver.__module__
            patch.setattr(f"{driver}.open_incarnation", peer.open_incarnation)
            patch.setattr("agentteam_runtimes.opencode.server.transport", lambda: peer)
            nursery.start_soon(peer.run)
            try:
                await SCENARIOS[scenario](stage)
            except* trio.TooSlowError:
                peer.differs(f"the driver waits for something before line {peer.at}")
        nursery.cancel_scope.cancel()
    if peer.fault is not None:
        raise peer.fault
    return _scrubbed(stage.events, wire, meanings)


def _scrubbed(
    events: Sequence[RuntimeEvent], wire: Sequence[Entry], meanings: Meanings
) -> list[Entry]:
    """Write events with the names that the recording has."""
    names = {value: name for name, value in meanings.names.items()}
    places = {place: name for name, place in meanings.places.items()}
    ours = [s for e in wire if e["dir"] == "in" for s in strings(e)]
    told = [{"event": type(e).__name__, **_told(e)} for e in events]
    scrubber = Scrubber(places, ours, names)
    scrubber.learn(told, "our")
    return [scrubber.scrub(event) for event in told]


def _told(event: RuntimeEvent) -> Entry:
    """Give the fields of an event that say something."""
    return {k: v for k, v in asdict(event).items() if v not in ("", None, {}, False)}
