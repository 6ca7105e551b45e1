"""What people read of a run, in the words of the spec."""

from __future__ import annotations

import re

import pytest

from agentteam_protocol.activity import ActivityKind, Language, render

EVERY_WORD = {
    "who": "@user",
    "problem": "P",
    "outcome": "O",
    "tool": "T",
    "text": "X",
}
SIGNALS = re.compile(r"SIG|TERM|KILL|HUP|signal|process|turn/|信号|进程", re.IGNORECASE)
UNDO = re.compile(r"undo|revert|roll ?back|撤销|回滚|恢复之前", re.IGNORECASE)

LINES = [(kind, language) for kind in ActivityKind for language in Language]


@pytest.mark.req("R126")
@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (ActivityKind.requested, "@user 请求打断当前 run"),
        (ActivityKind.stopping, "正在停止当前 run…"),
        (ActivityKind.interrupted, "当前 run 已打断"),
        (ActivityKind.started, "正在处理 @user 的新请求"),
    ],
)
def test_the_four_lines_of_the_lifecycle(kind: ActivityKind, line: str) -> None:
    assert render(kind, {"who": "@user"}, Language.zh) == line


@pytest.mark.req("R127")
@pytest.mark.parametrize(("kind", "language"), LINES)
def test_no_line_names_a_signal_or_a_process(
    kind: ActivityKind, language: Language
) -> None:
    assert not SIGNALS.search(render(kind, EVERY_WORD, language))


@pytest.mark.req("R129")
@pytest.mark.parametrize(("kind", "language"), LINES)
def test_no_line_promises_to_undo(kind: ActivityKind, language: Language) -> None:
    assert not UNDO.search(render(kind, EVERY_WORD, language))


@pytest.mark.req("R129")
def test_stopping_says_that_the_current_run_stops() -> None:
    assert render(ActivityKind.stopping, {}, Language.zh) == "正在停止当前 run…"
    assert render(ActivityKind.stopping, {}, Language.en) == "Stopping the current run…"


@pytest.mark.req("R124")
def test_a_run_that_a_person_stopped_names_the_person() -> None:
    words = {"stopped_by": "@user", "outcome": "aborted"}
    assert render(ActivityKind.run_ended, words, Language.zh) == "已被 @user 打断"
    assert render(ActivityKind.run_ended, words, Language.en) == "Interrupted by @user"


@pytest.mark.parametrize(("kind", "language"), LINES)
def test_a_missing_word_leaves_a_hole_and_no_error(
    kind: ActivityKind, language: Language
) -> None:
    assert "{" not in render(kind, {}, language)


def test_braces_in_a_word_are_only_text() -> None:
    line = render(ActivityKind.notice, {"text": "{who} {0} {"}, Language.en)
    assert line == "{who} {0} {"
