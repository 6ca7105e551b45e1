"""A recording of today against the stored one: what a new version changes on the wire."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.corpora import CORPORA, PERFORMERS, Recording
from tests.kit.peer import pretty
from tests.kit.recorder import recorded
from tests.kit.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow

EACH = [pytest.param(part, marks=pytest.mark.needs(part)) for part in PERFORMERS]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("part", EACH)
def test_a_fresh_recording_is_the_stored_one(part: str, scenario: str) -> None:
    folder = stored_for(part) / scenario
    fresh, known = recorded(part, scenario), Recording.read(folder)
    name = folder.relative_to(CORPORA).as_posix()
    assert not (changed := difference(known.wire, fresh.wire, name)), changed
    assert not (changed := difference(known.events, fresh.events, name)), changed


def stored_for(part: str) -> Path:
    """Name the recordings of this version, or those of the newest that is stored."""
    performer = PERFORMERS[part]
    runtime = CORPORA / performer.runtime
    mine = runtime / performer.version(part)
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
    return [int(number) for number in version.name.split(".") if number.isdigit()]
