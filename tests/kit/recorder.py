"""
Records the wire of a real runtime, and plays a recording to its driver.

    python -m tests.kit.recorder RUNTIME DIR

records all scenarios below `DIR/RUNTIME/VERSION`. `agentteam runtimes check RUNTIME
--record DIR` does the same, in a checkout. The runtime has a home of its own, a fake
key, and a scripted model on loopback.

    python -m tests.kit.recorder again

writes down anew what the drivers make of the stored wires: for a driver that changed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field
from tests.kit.corpora import PERFORMERS, Performer, Recording, performer_of, stored
from tests.kit.peer import Differs
from tests.kit.replay import replay
from tests.kit.scenarios import SCENARIOS, Stage
from tests.kit.scrubber import Scrubber, strings
from tests.kit.transcript import SILENCE, transcript

from agentteam_runtimes.wiretap import TAP

if TYPE_CHECKING:
    from tests.kit.desk import Desk

Entry = dict[str, Any]

SILENT_SECONDS = 1.0  # OpenCode tells late that a command runs
SCENARIO_SECONDS = 240.0


@define(eq=False)
class Tape:
    """A tap that keeps what it hears: the `Wire` of a recording."""

    heard: list[Entry] = field(factory=list[Entry])
    _runs: bool = False
    _last: float = 0.0

    def __call__(self, entry: Entry) -> None:
        self._last = time.monotonic()
        if self._runs:
            self.heard.append(entry)

    def on(self) -> None:
        self._runs = True

    def off(self) -> None:
        self._runs = False

    async def quiet(self) -> None:
        began = time.monotonic()
        while time.monotonic() - max(self._last, began) < SILENT_SECONDS:  # noqa: ASYNC110 - silence sets no event
            await trio.sleep(0.05)
        self.heard.append(SILENCE)


def recorded(performer: Performer, scenario: str) -> Recording:
    """Record a scenario on the real runtime, and what its driver makes of that."""
    wire, live = trio.run(_record, performer, scenario)
    with tempfile.TemporaryDirectory() as place:
        events = replay(performer, scenario, wire, Path(place))
    kinds = Counter(event["event"] for event in events)
    if kinds != live:
        raise Differs(f"it made {live} of the runtime, and {kinds} of the recording")
    return Recording(wire, events)


async def _record(
    performer: Performer, scenario: str
) -> tuple[list[Entry], Counter[str]]:
    """
    Play a scenario on the real runtime.

    Gives what was on the wire, scrubbed, and the kinds of what the driver made of it.
    """
    tape = Tape()
    token = TAP.set(tape)
    try:
        with tempfile.TemporaryDirectory() as place, trio.fail_after(SCENARIO_SECONDS):
            async with performer.open_desk(Path(place)) as desk:
                stage = Stage(desk, tape, performer.asking, performer.refused)
                await SCENARIOS[scenario](stage)
    finally:
        TAP.reset(token)
    wire = transcript(tape.heard)
    ours = [s for entry in wire if entry["dir"] == "in" for s in strings(entry)]
    scrubber = Scrubber(_places(desk), ours)
    scrubber.learn(wire)
    live = Counter(type(event).__name__ for event in stage.events)
    # As it is read again: a driver may show an object in the order of its keys.
    told = json.dumps([scrubber.entry(entry) for entry in wire], sort_keys=True)
    return json.loads(told), live


def _places(desk: Desk[Any, Any]) -> dict[str, str]:
    """Name the places of this recording, in each way that a runtime writes them."""
    home = str(desk.home.path)
    dashed = home.replace("/", "-").replace("_", "-").replace(".", "-")
    return {home: "<home>", home[1:]: "<home>", dashed: "<home>"}


def main(name: str, directory: str, *scenarios: str) -> None:
    """Record these scenarios, or all, and what the driver makes of each."""
    if name not in PERFORMERS:
        sys.exit(f"{name} is none of {', '.join(PERFORMERS)}")
    performer = PERFORMERS[name]
    folder = Path(directory) / performer.runtime / performer.version()
    for scenario in scenarios or performer.scenarios:
        recording = recorded(performer, scenario)
        recording.write(folder / scenario)
        print(f"{folder / scenario}: {len(recording.wire)} lines", flush=True)


def again() -> None:
    """Play all stored wires to the drivers as they are now, and keep the events."""
    for folder in stored():
        wire = Recording.read(folder).wire
        with tempfile.TemporaryDirectory() as place:
            events = replay(performer_of(folder), folder.name, wire, Path(place))
        Recording(wire, events).write(folder)


if __name__ == "__main__":
    again() if sys.argv[1:] == ["again"] else main(*sys.argv[1:])
