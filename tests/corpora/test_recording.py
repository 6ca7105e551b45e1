"""A recording of today against the stored one: what a new version changes on the wire."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.corpora import CORPORA, PERFORMERS, Performer, Recording
from tests.kit.peer import pretty
from tests.kit.recorder import recorded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow

EACH = [
    pytest.param(name, scenario, marks=pytest.mark.needs(performer.part))
    for name, performer in PERFORMERS.items()
    for scenario in performer.scenarios
    if scenario not in performer.races
]


@pytest.mark.parametrize(("runtime", "scenario"), EACH)
def test_a_fresh_recording_is_the_stored_one(runtime: str, scenario: str) -> None:
    folder = stored_for(PERFORMERS[runtime]) / scenario
    fresh, known = recorded(PERFORMERS[runtime], scenario), Recording.read(folder)
    name = folder.relative_to(CORPORA).as_posix()
    assert not (changed := difference(known.wire, fresh.wire, name)), changed
    assert not (changed := difference(known.events, fresh.events, name)), changed


def stored_for(performer: Performer) -> Path:
    """Name the recordings of this version, or those of the newest that is stored."""
    runtime = CORPORA / performer.runtime
    mine = runtime / performer.version()
    return mine if mine.exists() else max(runtime.iterdir(), key=_numbers)


def difference(known: Sequence[Any], fresh: Sequence[Any], name: str) -> str:
    before, after = _lines(known), _lines(fresh)
    changed = difflib.unified_diff(
        before, after, f"{name}, stored", "fresh", n=8, lineterm=""
    )
    return "\n".join(changed)


def _lines(entries: Sequence[Any]) -> list[str]:
    return [line for entry in entries for line in pretty(entry)]


def _numbers(version: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.name)]
