"""Recorded wires, played to the drivers without any runtime."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.kit.corpora import CORPORA, PERFORMERS, Recording, performer_of, stored
from tests.kit.peer import Differs
from tests.kit.replay import replay

if TYPE_CHECKING:
    from pathlib import Path


AGAIN = "is that what you want? `python -m tests.kit.recorder again` keeps it"


def shown(folder: Path) -> str:
    return folder.relative_to(CORPORA).as_posix()


@pytest.mark.parametrize("folder", stored(), ids=shown)
def test_a_driver_makes_the_same_of_a_recorded_wire(
    folder: Path, tmp_path: Path
) -> None:
    recording = Recording.read(folder)
    events = replay(performer_of(folder), folder.name, recording.wire, tmp_path)
    assert events == recording.events, AGAIN


def test_each_runtime_has_a_recording_of_each_scenario() -> None:
    recorded = {(folder.parts[-3], folder.name) for folder in stored()}
    wanted = {(p.runtime, name) for p in PERFORMERS.values() for name in p.scenarios}
    assert recorded == wanted


@pytest.mark.parametrize("runtime", sorted({p.runtime for p in PERFORMERS.values()}))
def test_one_changed_field_of_the_runtime_is_seen(runtime: str, tmp_path: Path) -> None:
    folder = next(f for f in stored() if f.parts[-3] == runtime and f.name == "answer")
    recording = Recording.read(folder)
    said = json.dumps(recording.wire).replace('All is well."', 'All is ill."')
    # What we send is what it was: only the runtime says something else.
    wire = [
        old if old["dir"] == "in" else new
        for old, new in zip(recording.wire, json.loads(said), strict=True)
    ]
    events = replay(performer_of(folder), folder.name, wire, tmp_path)
    assert "All is ill." in json.dumps(events)
    assert events != recording.events


def test_one_changed_field_of_ours_is_named(tmp_path: Path) -> None:
    folder = CORPORA / "codex" / "0.171.0" / "answer"
    wire = Recording.read(folder).wire
    start = next(e for e in wire if e.get("line", {}).get("method") == "turn/start")
    start["line"]["params"]["clientUserMessageID"] = start["line"]["params"].pop(
        "clientUserMessageId"
    )
    with pytest.raises(Differs, match=r"\+.*clientUserMessageId") as caught:
        replay(performer_of(folder), folder.name, wire, tmp_path)
    assert re.search(r"-.*clientUserMessageID", str(caught.value))


@pytest.mark.parametrize("folder", stored(), ids=shown)
def test_a_recording_holds_nothing_of_the_machine_and_no_words_of_the_vendor(
    folder: Path,
) -> None:
    wire = Recording.read(folder).wire
    for entry in wire:
        text = json.dumps(entry)
        assert not re.search(r"(?<![\w>])/(tmp|root|work|home|Users|var)\b", text), text
        if entry["dir"] == "out":
            sent = json.dumps([e for e in wire if e["dir"] == "in"])
            for said in re.findall(r'"((?:[^"\\]|\\.){90,})"', text):
                assert said in sent, said
