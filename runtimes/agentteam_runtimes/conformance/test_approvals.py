"""Approvals: only a yes runs something, a cut closes the ask, an ask blocks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.conformance.bench import check_asking
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import AskClosed, Asked, AskRef, TurnEnded

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live
    from agentteam_runtimes.driver import TurnRef

ONLY_A_YES = "`allowed_once` is the only grant; everything else is a no."


@pytest.mark.parametrize("outcome", ["allowed-once", "rejected", "unavailable"])
@check_asking
async def test_only_a_yes_lets_the_tool_run(bench: Bench, outcome: str) -> None:
    async with bench.open() as live:
        turn, asked = await _ask(live)
        decided = ApprovalOutcome(outcome)
        await live.bounded("answer", live.runtime.answer(asked.ask, decided))
        # The second answer of one ask is ignored.
        yes = ApprovalOutcome.allowed_once
        await live.bounded("answer", live.runtime.answer(asked.ask, yes))
        await live.ended(turn, f" after its ask was answered {outcome}")
        ran = _ran(bench)
        if ran != (decided is ApprovalOutcome.allowed_once):
            did = "ran" if ran else "did not run"
            raise Fault(f"the tool {did}, and the answer was {outcome}", ONLY_A_YES)
        await live.next_turn()


@check_asking
async def test_a_cut_closes_the_ask_for_good(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        turn, asked = await _ask(live)
        await live.interrupt(turn)
        await live.ended(turn, " after an interrupt while it asked")
        await _closed(live, asked)
        late = ApprovalOutcome.allowed_once
        await live.bounded("answer", live.runtime.answer(asked.ask, late))
        await live.settle()
        await live.next_turn()
        if _ran(bench):
            raise Fault(
                "a yes that came after the cut ran the tool of the cut turn",
                "an unknown or closed ask is ignored, and a cut closes the ask.",
            )
        bench.claims.show("approval_cancel", "closed by the cut")


@check_asking
async def test_a_cut_as_the_session_makes_it_runs_nothing(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        turn, asked = await _ask(live)
        no = ApprovalOutcome.cancelled
        await live.bounded("answer", live.runtime.answer(asked.ask, no))
        with trio.move_on_after(bench.patience):
            await live.runtime.interrupt(turn)
        await live.ended(turn, " after its ask was cancelled and it was interrupted")
        await live.next_turn()
        if _ran(bench):
            raise Fault("a cancelled ask ran its tool", ONLY_A_YES)


@check_asking
async def test_an_open_ask_blocks_nothing(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        turn, asked = await _ask(live)
        with trio.move_on_after(bench.patience):
            await live.runtime.interrupt(turn)
        told = len(live.all(object))
        with trio.move_on_after(bench.patience):
            await live.until(TurnEnded, lambda e: e.turn == turn, within=1e9)
            return
        await live.runtime.answer(asked.ask, ApprovalOutcome.rejected)
        await live.settle(1.0)
        if len(live.all(object)) > told:
            raise Fault(
                "while an ask was open, nothing that the runtime said came through: it"
                " came in one go when the ask was answered",
                "a driver never waits inside its reader, nor for the answer to an ask:"
                " `answer` comes from somebody else, later or never.",
            )
        await live.ended(turn, " after an interrupt while it asked")


@check_asking
async def test_an_answer_to_an_unknown_ask_is_ignored(bench: Bench) -> None:
    async with bench.open() as live:
        yes = ApprovalOutcome.allowed_once
        nobody = AskRef("an-ask-of-nobody")
        await live.bounded("answer", live.runtime.answer(nobody, yes))
        await live.next_turn()


async def _ask(live: Live) -> tuple[TurnRef, Asked]:
    """Begin a turn whose tool wants a yes."""
    file = live.bench.workdir / "ran"
    turn = await live.begin(live.bench.run(f"touch {file}"))
    asked = await live.until(
        Asked,
        otherwise=Fault(
            "the runtime was to ask before its tool runs, and no Asked came",
            "`Asked` is emitted for every ask of the runtime; with the options of the"
            " stage's `asking` its tool wants an approval.",
        ),
    )
    if asked.turn not in (turn, None) or not asked.tool_name:
        raise Fault(
            f"the ask of {turn.id} came as {asked}", "`Asked` names the turn and tool."
        )
    return turn, asked


async def _closed(live: Live, asked: Asked) -> None:
    """Wait until the ask is closed, if the driver says that a cut closes it."""
    if live.bench.able.approval_cancel:
        await live.until(
            AskClosed,
            lambda e: e.ask == asked.ask,
            otherwise=Fault(
                f"the turn was cut and ended, and its ask {asked.ask.id} is still open",
                "approval_cancel: an interrupt closes the asks of its turn, and"
                " `AskClosed` says so.",
            ),
        )


def _ran(bench: Bench) -> bool:
    return (bench.workdir / "ran").exists()
