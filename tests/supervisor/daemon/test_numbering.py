"""The two directions of the link as bookkeeping."""

from __future__ import annotations

import random

import pytest

from agentteam_protocol.codec import decode_envelope
from agentteam_protocol.errors import RemoteProtocolError
from agentteam_protocol.frames import (
    DeliveryReceived,
    Progressed,
    SendAsked,
    SendRequested,
)
from agentteam_protocol.ids import AgentId, DeliveryId, Generation, RunId, SendId
from agentteam_supervisor.daemon.numbering import (
    MAX_LIVE,
    Inbound,
    Unnumbered,
    compose,
)
from agentteam_supervisor.journal.records import encode_frame

A = AgentId("agt_a")
G = Generation(1, 1)


def row(number: int) -> tuple[int, bytes]:
    return number, encode_frame(DeliveryReceived(DeliveryId(f"dlv_{number}")))


def piece(text: str, run: str = "run_1") -> Progressed:
    return Progressed(A, RunId(run), G, text)


def asked(name: str) -> SendAsked:
    return SendAsked(SendId(name), A)


def test_the_mark_waits_for_the_first_that_is_not_done() -> None:
    inbound = Inbound(4)
    assert all(inbound.arrived(n) for n in (5, 6, 7))
    assert inbound.done(6) is None
    assert inbound.done(5) == 6
    assert inbound.done(7) == 7
    assert inbound.done(7) is None


@pytest.mark.bug("B36")
def test_a_number_that_was_seen_is_no_news() -> None:
    inbound = Inbound(4)
    assert not inbound.arrived(4)
    assert inbound.arrived(5)
    assert not inbound.arrived(5)


@pytest.mark.bug("B14")
def test_a_hole_in_the_numbers_is_never_passed_over() -> None:
    with pytest.raises(RemoteProtocolError, match="frame 6 came instead of 5"):
        Inbound(4).arrived(6)


def test_in_whatever_order_frames_are_done_the_mark_covers_only_done_ones() -> None:
    for seed in range(50):
        order = list(range(1, 30))
        inbound = Inbound(0)
        for number in order:
            inbound.arrived(number)
        random.Random(seed).shuffle(order)
        done: set[int] = set()
        mark = 0
        for number in order:
            done.add(number)
            mark = inbound.done(number) or mark
            assert set(range(1, mark + 1)) <= done
            assert mark + 1 not in done
        assert mark == 29


def test_a_send_keeps_its_place_among_the_reports() -> None:
    unnumbered = Unnumbered()
    send = SendRequested(SendId("snd_1"), A, G, "t", "text")
    unnumbered.put(2, send)
    unnumbered.put(4, asked("snd_2"))
    outgoing, cursor = compose([row(n) for n in (1, 2, 3)], unnumbered, 0)
    envelope = decode_envelope(outgoing.text(ack=9))
    assert envelope.frames == (
        DeliveryReceived(DeliveryId("dlv_1")),
        DeliveryReceived(DeliveryId("dlv_2")),
        send,
        DeliveryReceived(DeliveryId("dlv_3")),
    )
    assert (envelope.seq, envelope.ack, cursor, len(unnumbered)) == (1, 9, 3, 1)
    outgoing, cursor = compose([], unnumbered, 4)
    envelope = decode_envelope(outgoing.text(ack=9))
    assert (envelope.frames, envelope.seq) == ((asked("snd_2"),), None)


def test_a_batch_is_bounded_by_its_size_and_never_empty() -> None:
    big = encode_frame(DeliveryReceived(DeliveryId("x" * (600 << 10))))
    outgoing, cursor = compose([(1, big), (2, big)], Unnumbered(), 0)
    assert (len(outgoing.frames), cursor) == (1, 1)


def test_streaming_text_is_joined_and_bounded() -> None:
    unnumbered = Unnumbered()
    for text in ("a", "b", "c"):
        unnumbered.put(0, piece(text))
    unnumbered.put(0, piece("d", "run_2"))
    assert unnumbered.due(0) == [piece("abc"), piece("d", "run_2")]
    for number in range(2 * MAX_LIVE):
        unnumbered.put(0, piece("x", f"run_{number}"))
    # A verdict is not dropped for want of room among live text.
    unnumbered.put(0, asked("snd_1"))
    assert len(unnumbered) == MAX_LIVE + 1
