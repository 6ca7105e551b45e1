"""What people read: two languages, and never a signal's name."""

from __future__ import annotations

import pytest

from agentteam_protocol.activity import ActivityKind, Language
from agentteam_supervisor.server.activity import language_of, line, localise


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", Language.en),
        ("zh-CN,zh;q=0.9,en;q=0.8", Language.zh),
        ("en-US,zh;q=0.5", Language.en),
        ("fr, zh;q=0.1", Language.zh),
        ("en;q=0.2, zh;q=0.7", Language.zh),
        ("*", Language.en),
        ("zh;q=0, en", Language.en),
        ("zh;q=oops", Language.zh),
    ],
)
def test_language_is_the_heaviest_that_we_speak(
    header: str, language: Language
) -> None:
    assert language_of(header) is language


@pytest.mark.req("R126")
def test_the_four_lines_are_those_of_the_specification() -> None:
    who = {"who": "@user"}
    lines = [
        line(kind, who, Language.zh)
        for kind in ("requested", "stopping", "interrupted", "started")
    ]
    assert lines == [
        "@user 请求打断当前 run",
        "正在停止当前 run…",
        "当前 run 已打断",
        "正在处理 @user 的新请求",
    ]


@pytest.mark.req("R127")
@pytest.mark.parametrize("kind", ActivityKind)
@pytest.mark.parametrize("language", Language)
def test_no_line_names_a_signal(kind: ActivityKind, language: Language) -> None:
    words = dict.fromkeys(
        ("who", "problem", "tool", "outcome", "text", "stopped_by"), "SIGTERM, SIGKILL"
    )
    assert "SIG" not in line(kind, words, language)


def test_words_become_text_wherever_they_stand() -> None:
    stored = {
        "items": [{"kind": "stopping", "words": {}, "seq": 1}],
        "run": {"activity": {"line": {"kind": "stopping", "words": {}}}},
    }
    assert localise(stored, Language.en) == {
        "items": [{"kind": "stopping", "text": "Stopping the current run…", "seq": 1}],
        "run": {"activity": "Stopping the current run…"},
    }


def test_line_of_the_server_has_a_chinese_form_of_its_own() -> None:
    words = {"text": "nothing was stopped", "textZh": "没有停止"}
    assert line("notice", words, Language.en) == "nothing was stopped"
    assert line("notice", words, Language.zh) == "没有停止"
