"""Log-only events: people read them, the model never does."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import AGENT, followup

from agentteam_protocol import journal as j
from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.ids import ApprovalId, Generation, RunId
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.prompt import Notes, compose

RUN = RunId("run_1")
ASKED = ApprovalRequest(ApprovalId("apr_1"), RUN, "shell", call_id="c1")
LOG_ONLY: list[j.JournalEvent] = [
    j.ApprovalAsked(1, ASKED),
    j.ApprovalDecided(1, ASKED.id, ApprovalOutcome.rejected),
    j.ApprovalPolicySet(ApprovalPolicy.never),
    j.FenceLate(Generation(1, 1), "output", "late words"),
    j.RunNotice("a process is still alive", "pid 1"),
    j.AssistantMessage(1, "said"),
]


@pytest.mark.req("R85", "R90", "R119")
@pytest.mark.parametrize("event", LOG_ONLY, ids=lambda e: j.KINDS[type(e)])
def test_a_log_only_event_changes_nothing_that_the_model_is_given(
    event: j.JournalEvent,
) -> None:
    waiting = (evolve(followup("x"), position=1),)
    ledger = fold(empty(AGENT), j.InboxSpliced(j.SpliceReason.accepted, added=waiting))
    ledger = fold(ledger, j.TurnStart(1, RUN, ledger.gen))
    after = fold(ledger, event)
    assert after.lanes == ledger.lanes
    assert after.in_flight == ledger.in_flight
    assert after.frontiers == ledger.frontiers
    assert Notes().after(event) == Notes()
    assert [i.text for i in compose(waiting, Notes().after(event).due)] == ["do"]
