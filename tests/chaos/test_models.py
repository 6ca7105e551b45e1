"""Which script of a text the models play."""

from __future__ import annotations

import pytest

from agentteam_supervisor.chaos.models.responses import do, newest_script

SAY = {"say": "yes [no]"}
RUN = {"run": "true"}
INNER = {"call": "spawn", "with": {"message": do(SAY, RUN)}}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("do nothing", None),
        (do(SAY), [SAY]),
        (f"{do(SAY, RUN)} (no. 1)\n[a word]", [SAY, RUN]),
        (f"{do(SAY)}\n{do(RUN)}", [RUN]),
        (do(INNER), [INNER]),
        (f"[note:]\n> {do(SAY)}", None),
        (f"[note:]\n> {do(SAY)}\n{do(RUN)}", [RUN]),
    ],
)
def test_the_newest_script_of_a_text_is_played(
    text: str, steps: list[object] | None
) -> None:
    assert newest_script(text) == steps
