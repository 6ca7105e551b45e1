"""Each deliberate fault of a driver fails the kit, with a message that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance import broken_drivers as broken
from tests.conformance.rehearsal_stage import open_stage
from tests.kit.conformance import run_kit

from agentteam_runtimes.conformance import (
    test_approvals as approvals,
    test_containment as containment,
    test_death as death,
    test_interrupt as interrupts,
    test_late as late,
    test_resume as resume,
    test_start as starts,
    test_steer as steers,
    test_turns as turns,
)
from agentteam_runtimes.conformance.bench import Bench
from agentteam_runtimes.conformance.claims import Claims
from agentteam_runtimes.conformance.house import House

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

CUT = interrupts.test_an_interrupt_ends_the_turn_and_leaves_the_session
SWEPT = containment.test_what_a_cut_turn_left_is_swept
RESUMED = resume.test_a_resumed_session_goes_on_and_repeats_nothing

# The fault, a check that meets it, and what the author reads.
FAULTS: list[tuple[type[broken.Broken], Callable[..., None], dict[str, str], str]] = [
    (
        broken.SurfacedAtAccept,
        steers.test_a_steer_that_was_cut_is_what_it_is_said_to_be,
        {},
        "was surfaced, and TurnEnded says that it was dropped",
    ),
    (
        broken.SecondInterrupt,
        interrupts.test_one_interrupt_is_sent_once,
        {},
        "nobody interrupted it: a second interrupt was sent",
    ),
    (
        broken.DropsSteers,
        steers.test_a_steer_is_read_at_the_next_step_of_its_turn,
        {},
        "steer() returned, and the turn went on to its end without it",
    ),
    (
        broken.LeaksChildren,
        SWEPT,
        {"kind": "deaf to TERM"},
        "outlived interrupt and sweep, and nobody names it: sh",
    ),
    (
        broken.LeaksHelper,
        starts.test_leaving_ends_the_runtime_whatever_it_does,
        {},
        "after the incarnation was left these still run: sleep",
    ),
    (
        broken.BlocksItsReader,
        approvals.test_an_open_ask_blocks_nothing,
        {},
        "while an ask was open, nothing that the runtime said came through",
    ),
    (
        broken.ClaimsGraceful,
        CUT,
        {"phase": "streaming"},
        "after its interrupt (streaming)",
    ),
    (
        broken.ClaimsGracefulAndKills,
        CUT,
        {"phase": "tool"},
        "the interrupt (tool) ended the runtime's process",
    ),
    (
        broken.DoublesOnResume,
        RESUMED,
        {"end": "left"},
        "which nobody submitted",
    ),
    (
        broken.KeepsApprovalOpen,
        approvals.test_a_cut_closes_the_ask_for_good,
        {},
        "the turn was cut and ended, and its ask ask-1 is still open",
    ),
    (
        broken.GuessesTheTurn,
        late.test_late_output_never_bears_the_name_of_the_next_turn,
        {},
        "the output of a tool of turn-1 came as an event of turn-2",
    ),
    (
        broken.EndsTwice,
        turns.test_turns_follow_each_other_under_names_of_their_own,
        {},
        "the turn turn-1 ended twice",
    ),
    (
        broken.MakesSteersOfStarts,
        turns.test_a_batch_is_refused_while_a_turn_runs,
        {},
        "start_turn took a batch (as turn-1) while turn-1 was running",
    ),
    (
        broken.ReplacesLostSessions,
        resume.test_a_session_that_does_not_exist_is_told_as_that,
        {},
        "which does not exist",
    ),
    (
        broken.NeverReady,
        starts.test_leaving_ends_the_runtime_whatever_it_does,
        {},
        "open() did not return within 1.2 s",
    ),
    (
        broken.HangsAfterDeath,
        death.test_a_call_that_waits_is_answered_by_the_death,
        {},
        "start_turn waits for an answer of a runtime that is dead",
    ),
]


@pytest.mark.parametrize(
    ("fault", "check", "given", "told"),
    FAULTS,
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_a_fault_is_named(
    tmp_path: Path,
    fault: type[broken.Broken],
    check: Callable[..., None],
    given: dict[str, Any],
    told: str,
) -> None:
    # Whatever waits in vain does so for this long; a start for longer.
    patience = 0.2 if fault is broken.NeverReady else 3
    house = House(fault(), open_stage, tmp_path, patience)
    with pytest.raises(pytest.fail.Exception) as failed:
        check(Bench(house, Claims()), **given)
    house.close()
    message = str(failed.value)
    assert told in message
    assert "\nThe contract: " in message


def test_the_command_names_the_fault_and_gives_no_verdict() -> None:
    driver = "tests.conformance.broken_drivers:DropsSteers"
    stage = "tests.conformance.rehearsal_stage:open_stage"
    ran = run_kit("--driver", driver, "--stage", stage, "-k", "a_steer_is_read")
    assert ran.returncode == 1, ran.stdout
    assert "went on to its end without it" in ran.stdout
    assert "does not conform to contract" in ran.stdout
    assert "Traceback" not in ran.stdout
