"""Deliberate faults of the session machine: the fast tests catch each of them."""

from __future__ import annotations

import pytest
from tests.mutants.run import PURE, ROOT, TABLE, caught, fails, names


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_deliberate_fault_is_caught(name: str) -> None:
    assert caught(name)


@pytest.mark.slow
def test_the_machine_as_it_is_passes_the_same_tests() -> None:
    assert not fails(ROOT / "supervisor", (*TABLE, *PURE))
