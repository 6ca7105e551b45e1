"""The page's words: the same in both languages, none missing, none unused."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STATIC = files("agentteam_supervisor.page") / "static"
ENTRY = re.compile(r'^  (?:"([\w-]+)"|(\w+)):\s+"(.*)",$', re.MULTILINE)


def table(name: str) -> dict[str, str]:
    found = ENTRY.findall((STATIC / name).read_text())
    assert len({a or b for a, b, _ in found}) == len(found), "a word stands twice"
    return {a or b: text for a, b, text in found}


def code() -> str:
    scripts = [f for f in STATIC.iterdir() if f.name.endswith(".js")]
    tables = {"english.js", "chinese.js"}
    return "\n".join(f.read_text() for f in scripts if f.name not in tables)


def test_both_languages_say_the_same_things() -> None:
    english, chinese = table("english.js"), table("chinese.js")
    assert english.keys() == chinese.keys()
    assert len(english) > 80
    for word, text in english.items():
        slots = re.findall(r"\{\w+\}", text)
        assert sorted(slots) == sorted(re.findall(r"\{\w+\}", chinese[word])), word


def test_every_word_that_is_said_is_there_and_none_is_left_over() -> None:
    english, said = table("english.js"), code()
    for word in re.findall(r'\bsay\("([\w-]+)"', said):
        assert word in english, word
    # Words that are chosen by a state or an outcome are said by its own name.
    by_name = set(re.findall(r'"([\w-]+)"', said)) | set(re.findall(r"\w+", said))
    states = {"max-tokens", "allowed-once"}
    unused = {w for w in english if w not in by_name} - states
    # States of deliveries and runs come over the wire.
    wire = {"blocked", "cancelled", "superseded", "completed", "unavailable"}
    assert unused <= wire, unused - wire


@pytest.mark.req("R129")
def test_no_word_promises_to_undo() -> None:
    for name in ("english.js", "chinese.js"):
        for text in table(name).values():
            assert "undo" not in text.lower()
            assert "撤销" not in text


@pytest.mark.req("R127")
def test_no_word_names_a_signal() -> None:
    for name in ("english.js", "chinese.js"):
        assert not re.search(r"\bSIG[A-Z]+|\bkill", " ".join(table(name).values()))
