"""What an agent is told of its visible sends and its reads."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import ABLE, Drive, ordinary, urgent
from tests.kit.situations import count, frontier, idle, running, state_of

from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import ItemId, SendId, TargetId
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev, words


def _answered(drive: Drive, verdict: str, **more: object) -> list[fx.ToolReply]:
    drive.hear(d.SendCalled(drive.turn, d.CallRef("c1"), "tgt_a", "hi"))
    send = drive.wanted(fx.JudgeSend)[-1].send
    drive.feed(ev.SendAnswered(send, verdict, **more))  # type: ignore[arg-type]
    return drive.wanted(fx.ToolReply)


def test_a_held_send_shows_what_it_attaches() -> None:
    drive = Drive(able=evolve(ABLE, steer=d.Steer.none)).running()
    drive.deliver(ordinary("x", 1), 0)
    _answered(drive, "held", shown={TargetId("tgt_a"): (1,)})
    assert frontier(drive) == 1
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_a_send_of_unknown_fate_says_what_to_do() -> None:
    (reply,) = _answered(running(), "unknown")
    assert "read_history" in reply.text
    assert reply.error


def test_a_send_of_unknown_fate_is_told_in_the_same_words_by_everybody() -> None:
    (reply,) = _answered(running(), "unknown", text="a daemon's own words")
    assert reply.text == words.UNKNOWN


@pytest.mark.req("R40")
def test_a_verdict_that_meets_a_cut_run_tells_of_the_cut() -> None:
    drive = running()
    sends: list[SendId] = []
    for call in ("c1", "c2", "c3"):
        drive.hear(d.SendCalled(drive.turn, d.CallRef(call), "tgt_a", "hi"))
        sends.append(drive.wanted(fx.JudgeSend)[-1].send)
    drive.owed.clear()
    drive.deliver(urgent("u", 1))
    drive.feed(ev.SendAnswered(sends[0], "held", text="Held, not sent: unseen."))
    drive.feed(ev.SendAnswered(sends[1], "forwarded", 7, text="Sent as message 7."))
    drive.settle()
    drive.feed(ev.SendAnswered(sends[2], "rejected", text="Not sent: fenced."))
    told = [reply.text for reply in drive.trace if isinstance(reply, fx.ToolReply)]
    # One that is public stays told as such: it is the truth.
    assert told == [words.HELD, "Sent as message 7.", words.REJECTED]


def test_a_verdict_on_a_send_nobody_made_is_nothing() -> None:
    drive = idle()
    assert drive.feed(ev.SendAnswered(SendId("snd_none"), "forwarded", 1)) == []


def test_a_read_that_failed_or_found_nothing_moves_nothing() -> None:
    drive = running()
    gen, call, target = drive.session.ledger.gen, d.CallRef("r1"), TargetId("tgt_a")
    drive.hear(d.ReadCalled(drive.turn, call, "tgt_a"))
    drive.feed(ev.HistoryRead(call, gen, target, (1,), "no link", error=True))
    drive.feed(ev.HistoryRead(call, gen, target, (1,), "again"))
    drive.hear(d.ReadCalled(drive.turn, call, "tgt_a"))
    drive.feed(ev.HistoryRead(call, gen, target, (), "nothing new"))
    assert frontier(drive) == 0
    assert count(drive, fx.ToolReply) == 2


@pytest.mark.parametrize("sent", [False, True])
def test_the_final_text_is_published_unless_the_turn_spoke_there(sent: bool) -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1), 0)
    drive.answer_all()
    drive.surface(ItemId("dlv_x"))
    if sent:
        _answered(drive, "forwarded", seq=2)
        assert frontier(drive) == 2
    drive.end(text="the answer")
    published = [e for e in drive.trace if isinstance(e, fx.JudgeSend) and e.auto_reply]
    assert [e.text for e in published] == ([] if sent else ["the answer"])


def test_a_text_without_a_place_or_without_words_is_not_published() -> None:
    drive = running()
    drive.end(text="for nobody")
    drive.deliver(ordinary("x", 1), 0)
    drive.answer_all()
    drive.surface(ItemId("dlv_x"))
    drive.end(text="  \n")
    assert count(drive, fx.JudgeSend) == 0
