"""Resume: the session goes on where it was, and nothing is sent a second time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agentteam_protocol.errors import RuntimeFailure
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.bench import check_alone
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import (
    EvidenceLevel,
    Output,
    ResumeRefused,
    SessionNamed,
    TurnStarted,
)

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live

NAMED = "`SessionNamed` tells the name by which the session can be resumed."


@pytest.mark.parametrize("end", ["left", "killed"])
@check_alone
async def test_a_resumed_session_goes_on_and_repeats_nothing(
    bench: Bench, end: str
) -> None:
    bench.needs("resume")
    async with bench.open() as live:
        await live.next_turn()
        token = _token(live)
        if end == "killed" and (process := live.process):
            turn = await live.begin(bench.stage.stream(30))
            await live.until(Output, lambda e: e.turn == turn)
            traces.kill(process)
            await live.exit("the runtime was killed")
    async with bench.open(resume=token) as live:
        await live.settle()
        if live.all(TurnStarted):
            raise Fault(
                "a turn started after the resume, before anything was submitted",
                "`open` resumes the session and submits nothing.",
            )
        await live.next_turn()
        if bench.able.evidence is not EvidenceLevel.none:
            first = live.entries[0]
            found = await live.history(first)
            if found.get(first.item.id) != "surfaced":
                raise Fault(
                    f"after the resume history() tells of {first}:"
                    f" {found.get(first.item.id)}",
                    "the record of a session outlives its process.",
                )
    bench.claims.show("resume", f"after it was {end}")


@check_alone
async def test_a_session_that_does_not_exist_is_told_as_that(bench: Bench) -> None:
    bench.needs("resume")
    async with bench.open() as live:
        await live.next_turn()
        token = _token(live)
    missing = re.sub("[0-9]", "0", token)
    missing = missing if missing != token else f"{token}0"
    try:
        async with bench.open(resume=missing):
            pass
    except ResumeRefused:
        return
    except RuntimeFailure as failure:
        raise Fault(
            f"resuming a session that is not there raised {type(failure).__name__}:"
            f" {failure}",
            "`ResumeRefused` when the session does not exist, and only then: it is the"
            " one start error after which a fresh session is opened.",
        ) from failure
    raise Fault(
        f"open() resumed the session {missing}, which does not exist",
        "`ResumeRefused` when the session does not exist: a lost history is told, never"
        " replaced in silence.",
    )


def _token(live: Live) -> str:
    names = live.all(SessionNamed)
    if not names:
        raise Fault("a turn has ended, and the session has no name yet", NAMED)
    return names[-1].resume
