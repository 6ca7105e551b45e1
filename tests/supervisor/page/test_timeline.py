"""A run as a picture, made of journals as they come over HTTP."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from agentteam_protocol.activity import Language
from agentteam_supervisor.page.timeline import WIDTH, draw_run

RUN = "run_1"


def entry(second: float, kind: str, **event: Any) -> dict[str, Any]:
    at = f"2026-12-01T06:00:{second:06.3f}Z"
    return {"seq": int(second * 1000), "at": at, "event": {"kind": kind, **event}}


CUT = [
    entry(0, "turn/start", turn=1, runId="run_0", gen=[1, 1]),
    entry(1, "turn/end", turn=1, outcome="completed"),
    entry(2, "turn/start", turn=2, runId=RUN, gen=[1, 1]),
    entry(2.1, "user/message", body="<work> & more"),
    entry(3, "tool/call", callId="c1", name="shell"),
    entry(5, "tool/result", callId="c1"),
    entry(5, "approval/asked", request={"id": "apr_1", "toolName": "write"}),
    entry(6, "interrupt/requested", cause="urgent", gen=[1, 1]),
    entry(6.1, "approval/decided", id="apr_1", outcome="cancelled"),
    entry(6.2, "turn/end", turn=2, outcome="aborted", cause="urgent"),
    entry(6.3, "fence/closed", gen=[1, 1], opened=[1, 2]),
    entry(6.4, "turn/start", turn=3, runId="run_2", gen=[1, 2]),
    entry(6.5, "fence/late", gen=[1, 1], what="output"),
    entry(7, "user/message", body="urgent question"),
    entry(8, "turn/end", turn=3, outcome="completed"),
]


def words_of(picture: str | None) -> list[str]:
    assert picture is not None
    tree = ElementTree.fromstring(picture)
    return [text for node in tree.iter() if (text := node.text or "").strip()]


def test_cut_run_goes_on_until_the_urgent_message_is_read() -> None:
    words = words_of(draw_run(CUT, RUN, Language.en))
    for shown in (
        "read: <work> & more",
        "shell",
        "write · cancelled",
        "1.1 · aborted",
        "asked to interrupt → generation closed",
        "read: urgent question",
        "output",
    ):
        assert shown in words
    assert "1.1 · completed" not in words


def test_run_that_ended_by_itself_ends_with_it() -> None:
    words = words_of(draw_run(CUT, "run_2", Language.en))
    assert "1.2 · completed" in words
    assert "asked to interrupt → generation closed" not in words


def test_chinese_picture_speaks_chinese() -> None:
    assert "打断" in words_of(draw_run(CUT, RUN, Language.zh))


def test_run_that_nobody_knows_has_no_picture() -> None:
    assert draw_run(CUT, "run_9", Language.en) is None


@pytest.mark.parametrize("upto", range(3, len(CUT) + 1))
def test_every_beginning_of_a_run_is_drawn_within_its_frame(upto: int) -> None:
    picture = draw_run(CUT[:upto], RUN, Language.en)
    assert picture is not None
    tree = ElementTree.fromstring(picture)
    for bar in tree.iter("{http://www.w3.org/2000/svg}rect"):
        end = float(bar.get("x", "0")) + float(bar.get("width", "0"))
        assert end <= WIDTH
