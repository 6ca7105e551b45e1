"""Our own drivers pass the kit that other authors run on theirs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.kit.conformance import run_kit
from tests.kit.parts import find_part

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    Runs = dict[str, Future[subprocess.CompletedProcess[str]]]

pytestmark = pytest.mark.slow

DRIVERS = [
    "rehearsal",
    pytest.param("codex", marks=pytest.mark.needs("codex")),
]


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """Start the kit on every driver that is here: most of it is waiting."""
    names = ["rehearsal", *(name for name in ("codex",) if find_part(name))]
    with ThreadPoolExecutor(len(names)) as pool:
        yield {name: pool.submit(_run, name) for name in names}


def _run(name: str) -> subprocess.CompletedProcess[str]:
    stage = f"tests.conformance.{name}_stage:open_stage"
    return run_kit(name, "--stage", stage, "--patience", "30")


@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.req("R65")
def test_a_driver_of_ours_shows_what_it_claims(name: str, runs: Runs) -> None:
    ran = runs[name].result()
    assert ran.returncode == 0, ran.stdout
    assert "conforms to contract" in ran.stdout, ran.stdout
