"""The daemon's end of the link against a server that can be cut at any time."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import define, evolve, field
from tests.kit.link_server import LinkServer, open_link_server

from agentteam_protocol.control import Resolution
from agentteam_protocol.delivery import Author, AuthorKind, Diagnostic, MessageRef
from agentteam_protocol.frames import (
    VERSION,
    AgentResolve,
    AgentTroubled,
    Answer,
    DeliveryReceived,
    Frame,
    Hello,
    HistoryAsked,
    HistoryGiven,
    Progressed,
    Query,
    Refused,
    SendAsked,
    SendJudged,
    SendRequested,
)
from agentteam_protocol.ids import (
    AgentId,
    DaemonId,
    DeliveryId,
    Generation,
    MessageId,
    RunId,
    SendId,
    TargetId,
)
from agentteam_protocol.journal import RunNotice
from agentteam_runtimes.driver import CallRef
from agentteam_supervisor.daemon.dialing import LinkLimits, Pause
from agentteam_supervisor.daemon.link import Link, LinkRefused
from agentteam_supervisor.journal.log import Journal, open_journal
from agentteam_supervisor.session.effects import JudgeSend, ReadTarget

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.session.events import HistoryRead, SendAnswered

A = AgentId("agt_a")
G = Generation(1, 1)
FAST = LinkLimits(first_pause=0.002, longest_pause=0.01, close=0.1)


@define(eq=False)
class Daemon:
    """What stands behind the link: it journals each frame and says so."""

    journal: Journal
    got: list[Frame] = field(factory=list[Frame])
    held: list[Callable[[], None]] = field(factory=list[Callable[[], None]])
    hold: bool = False
    standing: list[Frame] = field(factory=list[Frame])
    news: trio.Event = field(factory=trio.Event)
    link: Link = field(init=False)

    def hello(self) -> Hello:
        journal = self.journal
        server, received = journal.server, journal.received_number
        return Hello(VERSION, DaemonId("dmn_1"), "host", server, received)

    def handle(self, frame: Frame, done: Callable[[], None]) -> None:
        self.got.append(frame)
        self.news.set()
        self.news = trio.Event()
        if isinstance(frame, AgentResolve):
            self.journal.append(A, [RunNotice(frame.delivery)])
        if self.hold:
            self.held.append(done)
        else:
            done()

    async def has(self, count: int) -> None:
        while len(self.got) < count:
            await self.news.wait()

    async def noted(self) -> list[str]:
        await self.journal.flushed()
        entries = await self.journal.entries(A, limit=10_000)
        return [e.event.text for e in entries if isinstance(e.event, RunNotice)]


@asynccontextmanager
async def linked(
    path: Path, server: LinkServer, limits: LinkLimits = FAST
) -> AsyncGenerator[Daemon]:
    async with open_journal(path / "journal.sqlite3") as journal:
        daemon = Daemon(journal)
        link = daemon.link = Link(
            server.url,
            journal,
            daemon.hello,
            daemon.handle,
            limits,
            lambda: daemon.standing,
        )
        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(link.run)
                yield daemon
            nursery.cancel_scope.cancel()


def receipt(number: int) -> DeliveryReceived:
    return DeliveryReceived(DeliveryId(f"dlv_{number}"))


def order(number: int) -> AgentResolve:
    return AgentResolve(DeliveryId(f"dlv_{number}"), A, Resolution.dismiss)


def send(name: str = "snd_1") -> JudgeSend:
    return JudgeSend(SendId(name), G, "t", "hello")


async def test_frames_arrive_in_order_and_are_dropped_at_the_receipt(
    tmp_path: Path,
) -> None:
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        for number in range(1, 1001):
            daemon.journal.append(A, [], [receipt(number)])
        assert await server.until(1000) == [receipt(n) for n in range(1, 1001)]
        await daemon.link.drained()
        await daemon.journal.flushed()
        assert await daemon.journal.outbound(0) == []
        assert server.hellos == [Hello(VERSION, DaemonId("dmn_1"), "host")]


async def test_reports_in_quick_succession_leave_as_one_message(tmp_path: Path) -> None:
    limits = evolve(FAST, gather=60)
    async with open_link_server() as server, linked(tmp_path, server, limits) as daemon:
        await daemon.link.greeted()
        for number in range(1, 11):
            await daemon.journal.append(A, [], [receipt(number)]).wait()
        # Somebody waits for this one, so it takes along what is there.
        answer = Answer(5, True, {"events": []})
        daemon.link.send_live(answer)
        expected = [*(receipt(n) for n in range(1, 11)), answer]
        assert await server.until(11) == expected
        assert len(server.acks) <= 3  # messages: hello, a first receipt, and the rest


async def test_a_receipt_leaves_only_when_the_effects_are_durable(
    tmp_path: Path,
) -> None:
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        daemon.hold = True
        for number in range(1, 4):
            server.send(order(number))
        await daemon.has(3)
        daemon.held[1]()
        daemon.held[2]()
        await daemon.journal.flushed()
        await trio.sleep(0.02)
        # The first is still being worked on: nothing is claimed.
        assert set(server.acks) == {0}
        daemon.held[0]()
        await server.acked(3)
        assert await daemon.noted() == ["dlv_1", "dlv_2", "dlv_3"]


@pytest.mark.bug("B14", "B36")
@pytest.mark.parametrize("seed", range(5))
async def test_cuts_at_random_points_lose_nothing_and_double_nothing(
    tmp_path: Path, seed: int
) -> None:
    count = 300
    async with open_link_server() as server:
        server.cut_after = random.Random(seed)
        async with linked(tmp_path, server) as daemon:

            async def report() -> None:
                for number in range(1, count + 1):
                    daemon.journal.append(A, [], [receipt(number)])
                    if number % 3 == 0:
                        await daemon.journal.flushed()

            async def order_about() -> None:
                for number in range(1, count + 1):
                    server.send(order(number))
                    if number % 2 == 0:
                        await trio.sleep(0.001)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(report)
                nursery.start_soon(order_about)
            heard = await server.until(count)
            await server.acked(count)
            assert heard == [receipt(n) for n in range(1, count + 1)]
            assert await daemon.noted() == [f"dlv_{n}" for n in range(1, count + 1)]
            assert len(server.hellos) > 4


@pytest.mark.bug("B14")
async def test_a_new_process_goes_on_where_the_journal_says(tmp_path: Path) -> None:
    async with open_link_server() as server:
        async with linked(tmp_path, server) as daemon:
            for number in range(1, 6):
                server.send(order(number))
                daemon.journal.append(A, [], [receipt(number)])
            await server.until(5)
            await server.acked(5)
        server.send(order(6))
        async with linked(tmp_path, server) as daemon:
            daemon.journal.append(A, [], [receipt(6)])
            await server.until(6)
            await server.acked(6)
            assert daemon.got[-1] == order(6)
            assert await daemon.noted() == [f"dlv_{n}" for n in range(1, 7)]
        assert server.hellos[-1].received == 5
        assert server.hellos[-1].server == "srv_1"


@pytest.mark.bug("B14")
async def test_a_server_without_its_store_gets_what_is_left_from_one(
    tmp_path: Path,
) -> None:
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        for number in range(1, 4):
            daemon.journal.append(A, [], [receipt(number)])
            server.send(order(number))
        await server.until(3)
        await server.acked(3)
        await daemon.link.drained()
        server.name, server.received, server.sent = "srv_2", 0, 0
        server.queue.clear()
        server.acks.clear()
        server.send(order(10))
        await server.cut()
        daemon.journal.append(A, [], [receipt(4)])
        await server.until(4)
        await server.acked(1)
        assert server.received == 1
        assert (await daemon.noted())[-1] == "dlv_10"


@pytest.mark.bug("B04")
async def test_what_could_not_be_written_is_sent_again(tmp_path: Path) -> None:
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        server.send(order(1))
        await server.acked(1)
        file = tmp_path / "journal.sqlite3"
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute(
                "CREATE TRIGGER no BEFORE INSERT ON entries"
                " BEGIN SELECT raise(ABORT, 'no space'); END"
            )
            server.send(order(2))
            await server.greeted(3)
            assert server.acks[-1] == 1
            other.execute("DROP TRIGGER no")
        daemon.journal.reopen(A)  # what the roster does when it loads the session anew
        await server.acked(2)
        assert await daemon.noted() == ["dlv_1", "dlv_2"]


@pytest.mark.bug("B12")
async def test_a_second_daemon_is_refused_by_name_and_stops(tmp_path: Path) -> None:
    async with open_link_server() as server:
        server.refused = Refused("daemon 'one' holds the agents", "stop that one")
        async with open_journal(tmp_path / "journal.sqlite3") as journal:
            daemon = Daemon(journal)
            link = Link(server.url, journal, daemon.hello, daemon.handle, FAST)
            with trio.fail_after(5), pytest.raises(LinkRefused, match="daemon 'one'"):
                await link.run()


async def test_a_refusal_by_a_server_that_knew_us_is_borne_for_a_while(
    tmp_path: Path,
) -> None:
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        await daemon.link.greeted()
        server.refused = Refused("going down", "come again")
        await server.cut()
        await server.greeted(3)
        server.refused = None
        daemon.journal.append(A, [], [receipt(1)])
        await server.until(1)


async def test_without_a_server_it_tries_for_ever_and_a_send_is_refused(
    tmp_path: Path,
) -> None:
    server = LinkServer(url="ws://127.0.0.1:1/link")
    async with linked(tmp_path, server) as daemon:
        answer = await daemon.link.judge(send(), A)
        assert (answer.verdict, "no connection" in answer.text) == ("rejected", True)
        daemon.link.send_live(Progressed(A, RunId("run_1"), G, "dropped"))
        read = await daemon.link.read(ReadTarget(CallRef("c"), G, "t"), A)
        assert read.error
        assert not daemon.link.connected


async def test_a_server_that_does_not_greet_is_left_and_tried_again(
    tmp_path: Path,
) -> None:
    async with open_link_server() as server:
        server.silent = True
        limits = LinkLimits(0.002, 0.01, handshake=0.02, close=0.1)
        async with linked(tmp_path, server, limits):
            await server.greeted(3)


@pytest.mark.req("R54")
async def test_a_send_is_judged_once_and_in_its_place(tmp_path: Path) -> None:
    answers: list[SendAnswered] = []
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        await daemon.link.greeted()
        await daemon.journal.append(A, [], [receipt(1)]).wait()

        async def judge() -> None:
            answers.append(await daemon.link.judge(send(), A))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(judge)
            await server.until(2)
            daemon.journal.append(A, [], [receipt(2)])
            await server.until(3)
            request = SendRequested(SendId("snd_1"), A, G, "t", "hello")
            assert server.heard == [receipt(1), request, receipt(2)]
            judged = SendJudged(SendId("snd_1"), A, "forwarded", seq=7)
            server.send(judged)
        (answer,) = answers
        assert (answer.verdict, answer.seq) == ("forwarded", 7)
        # The session hears of it with the frame, so that the receipt covers it.
        assert daemon.got == [judged]


@pytest.mark.req("R54")
async def test_a_send_under_way_at_a_cut_is_unknown_and_asked_by_its_id(
    tmp_path: Path,
) -> None:
    answers: list[SendAnswered] = []
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        await daemon.link.greeted()

        async def judge() -> None:
            answers.append(await daemon.link.judge(send(), A))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(judge)
            await server.until(1)
            await server.cut()
        assert [a.verdict for a in answers] == ["unknown"]
        await server.until(2)
        # It is never sent a second time; the server is asked what became of it.
        assert server.heard[1:] == [SendAsked(SendId("snd_1"), A)]
        server.send(SendJudged(SendId("snd_1"), A, "forwarded", seq=3))
        await server.acked(1)
        await server.cut()
        daemon.journal.append(A, [], [receipt(1)])
        await server.until(3)
        assert server.heard[2:] == [receipt(1)]


async def test_history_is_read_and_names_what_it_shows(tmp_path: Path) -> None:
    reads: list[HistoryRead] = []
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        await daemon.link.greeted()

        async def read() -> None:
            wanted = ReadTarget(CallRef("c"), G, "t", 3)
            reads.append(await daemon.link.read(wanted, A))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            (asked,) = await server.until(1)
            assert isinstance(asked, HistoryAsked)
            assert (asked.target, asked.after) == ("t", 3)
            target = TargetId("tgt_1")
            author = Author(AuthorKind.user, "ann")
            message = MessageRef(MessageId("m"), target, 4, "hi", author, "room")
            server.send(HistoryGiven(asked.ref, target, (message,)))
        (answer,) = reads
        assert answer.seqs == (4,)
        assert answer.text == "[#room 4 from ann] hi"


async def test_a_query_is_handed_on_and_its_answer_has_no_number(
    tmp_path: Path,
) -> None:
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        await daemon.link.greeted()
        query = Query(5, A, "journal")
        server.send(query)
        await daemon.has(1)
        daemon.link.send_live(Answer(5, True, {"events": []}))
        assert await server.until(1) == [Answer(5, True, {"events": []})]
        assert server.received == 0


@pytest.mark.bug("B04")
async def test_what_stands_is_said_again_on_each_connection(tmp_path: Path) -> None:
    full = AgentTroubled(A, 1, Diagnostic("the log is not writable", "free space"))
    async with open_link_server() as server, linked(tmp_path, server) as daemon:
        await daemon.link.greeted()
        daemon.standing.append(full)
        await server.cut()
        assert await server.until(1) == [full]
        daemon.standing.clear()
        await server.cut()
        await server.greeted(3)
        daemon.journal.append(A, [], [receipt(1)])
        assert await server.until(2) == [full, receipt(1)]


def test_pauses_grow_to_a_cap_and_a_lasting_connection_makes_them_short() -> None:
    pause = Pause(LinkLimits(first_pause=0.1, longest_pause=2.0, lasting=5.0))
    waits = [pause.after(0.0) for _ in range(12)]
    for number, wait in enumerate(waits):
        longest = min(2.0, 0.1 * 2**number)
        assert longest / 2 <= wait <= longest
    assert pause.after(6.0) <= 0.1
