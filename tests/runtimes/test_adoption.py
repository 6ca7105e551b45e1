"""A session that a person already had is taken up once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes.adoption import Adoption

if TYPE_CHECKING:
    from pathlib import Path


def test_a_session_is_adopted_once(tmp_path: Path) -> None:
    adoption = Adoption("theirs", tmp_path / "adopted")
    assert adoption.due == "theirs"
    adoption.done("another")
    assert adoption.due == "theirs"
    adoption.done("theirs")
    assert adoption.due is None
    assert Adoption("a second one", adoption.path).due == "a second one"
    assert Adoption(None, adoption.path).due is None
