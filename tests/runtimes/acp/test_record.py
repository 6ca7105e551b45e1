"""What a replay of the agent's own record decides, and what it leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.fake_acp import an_item, call, chunk, echo, words

from agentteam_runtimes.acp.record import Fate, Memory, Record, Replay, Replayed
from agentteam_runtimes.driver import Batch, ItemOutcome

if TYPE_CHECKING:
    from pathlib import Path

U, A = False, True  # unanswered, answered


def sent(*texts: tuple[str, Fate]) -> Record:
    """Make a record of these submissions, under the keys k0, k1 and so on."""
    record = Record("s", known=True)
    for number, (text, fate) in enumerate(texts):
        record.submit(Batch(f"b{number}", (an_item(f"k{number}", text),)))
        record.sent[-1].fate = fate
    return record


def past(*messages: tuple[str, bool]) -> list[Replayed]:
    return [Replayed(f"u{n}", text, done) for n, (text, done) in enumerate(messages)]


def fates(record: Record) -> list[str]:
    return [str(one.fate) for one in record.sent]


def test_a_message_is_told_by_its_name_and_answered_by_what_follows() -> None:
    replay = Replay()
    for told in (
        *(echo("one ", "u1"), echo("two", "u1"), echo("three", "u2")),
        *(chunk("agent_thought_chunk", "hm", "a1"), echo("four", "u3")),
        *(call("c1"), echo("five"), echo(" and six"), words("", "a2")),
        echo("seven", "u4"),
    ):
        replay.take(told["params"]["update"])
    assert [(m.text, m.answered) for m in replay.messages] == [
        *(("one two", True), ("three", True), ("four", True)),
        *(("five and six", True), ("seven", False)),
    ]


@pytest.mark.req("R44")
@pytest.mark.parametrize(
    ("known", "there", "fate"),
    [
        ("hi", past(("hi", A), ("x", A)), "surfaced"),
        ("hi", past(("hi", A), (" x\n", U)), "carried"),
        ("hi", past(("hi", A)), "dropped"),
        # The record is not as we know it: nothing is certain.
        ("hi", past(), "open"),
        ("hi", past(("hi", A), ("what the agent made of it", U)), "open"),
        ("hi", past(("hi", A), ("x", A), ("x", A)), "open"),
        # The same text was sent before.
        ("x", past(("x", A), ("x", U)), "carried"),
        ("x", past(("x", A)), "dropped"),
        ("x", past(("x", A), ("x", A), ("x", U)), "open"),
    ],
)
def test_an_entry_is_decided_where_the_texts_tell_for_certain(
    known: str, there: list[Replayed], fate: str
) -> None:
    record = sent((known, Fate.surfaced), ("x", Fate.open))
    record.compare(there)
    assert fates(record)[-1] == fate


def test_the_first_entry_of_a_session_is_never_said_to_be_dropped() -> None:
    record = sent(("x", Fate.open))
    record.compare([])  # maybe the agent replays no messages of the user at all
    assert fates(record) == ["open"]
    record.compare(past(("x", U)))
    assert fates(record) == ["carried"]


def test_what_a_person_said_before_is_not_taken_for_ours() -> None:
    record = Record("s")
    record.compare(past(("go on", A)))
    record.submit(Batch("b", (an_item("k0", "go on"),)))
    record.compare(past(("go on", A)))
    assert fates(record) == ["open"]
    record.compare(past(("go on", A), ("go on", U)))
    assert fates(record) == ["carried"]


def test_a_record_that_was_shortened_decides_nothing() -> None:
    record = Record("s", known=True)
    record.compare(past(*[(f"m{n}", A) for n in range(9)]))
    record.submit(Batch("b", (an_item("k0", "x"),)))
    record.compare(past(("a summary", A)))
    assert fates(record) == ["open"]


def test_two_open_entries_of_one_text_keep_their_order() -> None:
    record = sent(("hi", Fate.surfaced), ("x", Fate.open), ("x", Fate.open))
    record.compare(past(("hi", A), ("x", A), ("x", U)))
    assert fates(record)[1:] == ["surfaced", "carried"]


def test_what_is_carried_surfaces_with_the_next_answer() -> None:
    record = sent(("a", Fate.carried), ("b", Fate.dropped), ("c", Fate.open))
    assert list(record.answered()) == ["k0", "k2"]
    assert list(record.answered()) == []


def test_a_record_outlives_its_process(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "acp.json")
    record = sent(("a", Fate.surfaced), ("b", Fate.carried), ("c", Fate.open))
    memory.keep(record)
    again = memory.read("s")
    assert again == record
    assert again.outcomes(["k0", "k1", "k2", "other"]) == {
        an_item("k0").id: ItemOutcome.surfaced,
        an_item("k1").id: ItemOutcome.carried,
    }
    assert memory.read("another session") == Record("another session")
    for broken in ("", "[]", '{"session": "s"}', '{"session": "s", "sent": [1]}'):
        memory.path.write_text(broken)
        assert not memory.read("s").known


def test_a_long_session_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentteam_runtimes.acp.record.MOST_REMEMBERED", 3)
    record = sent(*[(f"m{n}", Fate.surfaced) for n in range(9)])
    assert [list(one.items) for one in record.sent] == [["k6"], ["k7"], ["k8"]]
