"""The table of delivery states is the code, and the code is the table."""

from __future__ import annotations

import pytest

from agentteam_protocol.delivery import DeliveryState
from agentteam_supervisor.server import lifecycle
from agentteam_supervisor.server.lifecycle import FINAL, MOVES, moves


def _table() -> dict[str, set[str]]:
    rows: dict[str, set[str]] = {}
    for line in (lifecycle.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] in set(DeliveryState):
            rows[cells[0]] = {t.strip() for t in cells[1].split(",") if t.strip()}
    return rows


@pytest.mark.parametrize("state", DeliveryState)
def test_moves_are_those_of_the_table(state: DeliveryState) -> None:
    assert {str(s) for s in MOVES[state]} == _table()[state]


@pytest.mark.parametrize("state", DeliveryState)
def test_repeated_report_moves_nothing(state: DeliveryState) -> None:
    assert not moves(state, 1, state, 1)


@pytest.mark.parametrize("state", DeliveryState)
@pytest.mark.parametrize("to", DeliveryState)
def test_report_of_an_older_attempt_moves_nothing(
    state: DeliveryState, to: DeliveryState
) -> None:
    assert not moves(state, 2, to, 1)


@pytest.mark.parametrize("state", DeliveryState)
def test_newer_attempt_moves_all_but_what_is_final(state: DeliveryState) -> None:
    assert moves(state, 1, DeliveryState.queued, 2) == (state not in FINAL)


def test_final_states_are_surfaced_and_cancelled() -> None:
    assert {DeliveryState.surfaced, DeliveryState.cancelled} == FINAL


def test_an_ordinary_copy_comes_back_only_as_a_newer_attempt() -> None:
    gone, waits = DeliveryState.superseded, DeliveryState.queued
    assert moves(gone, 1, waits, 2)
    assert not any(moves(gone, 1, to, 1) for to in DeliveryState)
