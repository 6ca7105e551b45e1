"""Each deliberate fault of a driver fails the kit, with a message that names it."""

from __future__ import annotations

import pytest
from tests.kit.conformance import run_kit

pytestmark = pytest.mark.slow

STAGE = "tests.conformance.rehearsal_stage:open_stage"

# The fault, the checks that are run, and what the author reads.
FAULTS = [
    ("SurfacedAtAccept", "a_steer_that_was_cut", "was surfaced, and TurnEnded says"),
    ("SecondInterrupt", "one_interrupt_is_sent", "a second interrupt was sent"),
    ("DropsSteers", "a_steer_is_read", "went on to its end without the entry"),
    ("LeaksChildren", "is_swept and deaf", "outlived interrupt and sweep"),
    ("LeaksHelper", "declares_what_it_can or follow_each", "these still run: sleep"),
    ("BlocksItsReader", "open_ask_blocks", "while an ask was open, nothing"),
    ("ClaimsGraceful", "leaves_the_session and streaming", "did not end within"),
    ("ClaimsGracefulAndKills", "leaves_the_session and tool", "ended the runtime's"),
    ("DoublesOnResume", "repeats_nothing and left", "which nobody submitted"),
    ("KeepsApprovalOpen", "closes_the_ask", "is still open"),
    ("HangsAfterDeath", "a_call_that_waits", "of a runtime that is dead"),
]


@pytest.mark.parametrize(("fault", "checks", "told"), FAULTS, ids=lambda v: v.split()[0])
def test_a_fault_is_named(fault: str, checks: str, told: str) -> None:
    driver = f"tests.conformance.broken_drivers:{fault}"
    ran = run_kit("--driver", driver, "--stage", STAGE, "-k", checks, "--patience", "2")
    assert ran.returncode == 1, ran.stdout
    assert told in ran.stdout
    assert "The contract: " in ran.stdout
    assert "Traceback" not in ran.stdout
