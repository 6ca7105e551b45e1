"""The session actor over real processes of the scripted runtime."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from attrs import define, evolve, field
from tests.kit.fake_driver import FakeDriver
from tests.kit.memory_journal import MemoryJournal
from tests.kit.session_bench import delivery, make_ports

from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import DeliveryId
from agentteam_protocol.journal import (
    FenceLate,
    RunProcess,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnOutcome,
)
from agentteam_runtimes.driver import SessionSpec
from agentteam_runtimes.rehearsal.driver import RehearsalDriver
from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.actor import SessionActor
from agentteam_supervisor.session.deadlines import Limits
from agentteam_supervisor.session.events import Delivered
from agentteam_supervisor.session.fold import empty
from agentteam_supervisor.session.host import SessionHandle
from agentteam_supervisor.session.state import Phase, Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

QUICK = Limits(interrupt=1.0, interrupt_soft=2.0, terminate=0.5, kill=3.0)


@define
class Real:
    actor: SessionActor
    handle: SessionHandle
    journal: MemoryJournal
    shown: list[str] = field(factory=list)

    def deliver(self, name: str, *steps: Any, urgent: bool = False) -> DeliveryId:
        body = f"#do {json.dumps(steps)}" if steps else name
        item = delivery(name, urgent=urgent, body=body)
        self.actor.feed(Delivered(item))
        return DeliveryId(item.id)

    def state(self, of: DeliveryId) -> DeliveryState:
        return self.actor.session.ledger.deliveries[of].state

    async def until(self, what: Callable[[], bool]) -> None:
        with trio.fail_after(20):
            while not what():  # noqa: ASYNC110 - a real process tells no event
                await trio.sleep(0.01)

    def ends(self) -> list[TurnOutcome]:
        return [e.outcome for e in self.journal.events if isinstance(e, TurnEnd)]


@asynccontextmanager
async def real(tmp_path: Path, limits: Limits = QUICK) -> AsyncGenerator[Real]:
    journal, shown = MemoryJournal(), list[str]()
    service = ApprovalService()
    service.add(wait_for_person)
    driver = RehearsalDriver()
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    state.mkdir()
    ports = make_ports(
        FakeDriver(),
        journal,
        consult=service.request,
        progress=lambda p: shown.append(p.text),
    )
    spec = SessionSpec(ports.agent, "agent", work, state)
    ports = evolve(ports, driver=driver, spec=spec)

    async def probe() -> Any:
        return driver.probe(spec.options)

    ports = evolve(ports, probe=probe)
    actor = SessionActor(Session(empty(ports.agent)), ports, limits)
    before = set(psutil.Process().children(recursive=True))
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        handle = SessionHandle(actor, ports.tasks)
        yield Real(actor, handle, journal, shown)
        with trio.fail_after(30):
            await handle.dispose()
    assert actor.failure is None
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_message_is_answered_and_the_session_idles(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        one = r.deliver("a1", {"say": "one two three", "ms": 1})
        await r.until(lambda: r.ends() != [])
        assert r.state(one) is DeliveryState.surfaced
        assert r.ends() == [TurnOutcome.completed]
        assert "".join(r.shown).split() == ["one", "two", "three"]
        assert r.handle.quiescent


@pytest.mark.req("R11")
async def test_urgent_cuts_a_stream_and_is_the_next_input(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        r.deliver("a1", {"say": "word " * 1000, "ms": 10})
        await r.until(lambda: len(r.shown) > 3)
        urgent = r.deliver("a2", {"say": "at your service", "ms": 1}, urgent=True)
        shown = len(r.shown)
        await r.until(lambda: len(r.ends()) == 2)
        assert r.state(urgent) is DeliveryState.surfaced
        assert r.ends() == [TurnOutcome.aborted, TurnOutcome.completed]
        assert "".join(r.shown[shown:]).split() == ["at", "your", "service"]


@pytest.mark.bug("B06")
async def test_deaf_process_is_killed_and_the_urgent_runs_on_a_new_one(
    tmp_path: Path,
) -> None:
    async with real(tmp_path) as r:
        deaf = {"deaf": ["interrupt", "TERM", "stdin"]}
        r.deliver("a1", deaf, {"say": "word " * 1000, "ms": 10})
        await r.until(lambda: len(r.shown) > 3)
        start = trio.current_time()
        urgent = r.deliver("a2", {"say": "new", "ms": 1}, urgent=True)
        await r.until(lambda: r.state(urgent) is DeliveryState.surfaced)
        assert trio.current_time() - start < 1.0 + 0.5 + 3.0
        opened = [e for e in r.journal.events if isinstance(e, RunProcess)]
        assert [(e.inc, e.alive) for e in opened] == [(1, True), (1, False), (2, True)]


@pytest.mark.bug("B07")
async def test_ask_of_a_cut_turn_is_cancelled(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        r.deliver("a1", {"ask": "shell"}, {"say": "never", "ms": 1})
        await r.until(lambda: bool(r.actor.session.live.asks))
        urgent = r.deliver("a2", {"say": "new", "ms": 1}, urgent=True)
        assert not r.actor.session.live.asks
        await r.until(lambda: len(r.ends()) == 2)
        assert r.state(urgent) is DeliveryState.surfaced
        assert "never" not in "".join(r.shown)


async def test_late_line_of_a_cut_turn_is_history(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        late = {"late": {"ms": 50, "step": {"say": "too late", "ms": 1}}}
        r.deliver("a1", late, {"say": "word " * 1000, "ms": 10})
        await r.until(lambda: len(r.shown) > 3)
        r.deliver("a2", {"wait": 300}, {"say": "new", "ms": 1}, urgent=True)
        shown = len(r.shown)
        await r.until(lambda: len(r.ends()) == 2)
        assert "".join(r.shown[shown:]).split() == ["new"]
        late_ones = [e for e in r.journal.events if isinstance(e, FenceLate)]
        assert any("late" in e.detail for e in late_ones)


async def test_command_of_a_cut_turn_is_gone_before_the_next_begins(
    tmp_path: Path,
) -> None:
    async with real(tmp_path) as r:
        r.deliver("a1", {"run": "exec sleep 987"})
        await r.until(lambda: _sleepers() == 1)
        # The process is there before the session has read of it.
        await r.until(lambda: bool(r.journal.of(ToolCall)))
        urgent = r.deliver("a2", {"say": "new", "ms": 1}, urgent=True)
        await r.until(lambda: r.state(urgent) is DeliveryState.surfaced)
        assert _sleepers() == 0
        results = [e for e in r.journal.events if isinstance(e, ToolResult)]
        assert len(results) == 1


def _sleepers() -> int:
    children = psutil.Process().children(recursive=True)
    return sum("987" in _command(child) for child in children)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.bug("B02")
async def test_death_in_a_turn_ends_it_with_the_code(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        one = r.deliver("a1", {"say": "last words", "ms": 1}, {"die": "KILL"})
        await r.until(lambda: r.ends() != [])
        (end,) = r.journal.of(TurnEnd)
        assert isinstance(end, TurnEnd)
        assert end.outcome is TurnOutcome.error
        assert "-9" in end.detail
        await r.until(lambda: r.handle.quiescent)
        assert r.actor.session.live.phase is Phase.offline
        assert r.state(one) in (DeliveryState.surfaced, DeliveryState.unknown)


async def test_conversation_goes_on_in_a_new_process(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        r.deliver("a1", {"say": "x", "ms": 1}, {"exit": 3})
        await r.until(lambda: r.handle.quiescent and r.ends() != [])
        token = r.actor.session.ledger.resume
        two = r.deliver("a2", {"say": "still here", "ms": 1})
        await r.until(lambda: len(r.ends()) == 2)
        assert r.state(two) is DeliveryState.surfaced
        assert r.actor.session.ledger.resume == token
