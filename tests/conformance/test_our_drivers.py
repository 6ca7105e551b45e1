"""The kit that authors run on their drivers, run on ours and on the tutorial's."""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from tests.kit.conformance import do, run_kit
from tests.kit.parts import find_part

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    Ran = subprocess.CompletedProcess[str]
    Runs = dict[str, Future[Ran]]

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "sample_adapter"
PATIENCE = ("--patience", "60")  # they run side by side


@frozen
class Tried:
    """A driver of ours, on the stage where the kit tries it."""

    runtime: str
    stage: str
    part: str | None = None  # the outside part that it needs
    only: str = ""  # some of the checks

    def run(self) -> Ran:
        stage = f"tests.conformance.{self.stage}"
        some = ("-k", self.only) if self.only else ()
        return run_kit(self.runtime, "--stage", stage, *PATIENCE, *some)


OURS = {
    "rehearsal": Tried("rehearsal", "rehearsal_stage:open_stage"),
    "codex": Tried("codex", "codex_stage:open_stage", "codex"),
    "claude": Tried("claude", "claude_stage:open_stage", "claude"),
    "claude-2.1.197": Tried("claude", "claude_stage:open_old_stage", "claude-2.1.197"),
    "opencode": Tried("opencode", "opencode_stage:open_stage", "opencode"),
    "acp": Tried("acp", "acp_stage:open_stage", "opencode"),
}
# The same driver over another program, in a place of its own.
ALIKE = Tried(
    "builtin", "opencode_stage:open_builtin_stage", "opencode", "start or resume"
)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """Start the kit on all that was selected at once: most of it is waiting."""
    selected = {_name(item) for item in request.session.items}
    with ThreadPoolExecutor() as pool:
        found = {
            name: pool.submit(tried.run)
            for name, tried in {**OURS, "builtin": ALIKE}.items()
            if name in selected and (tried.part is None or find_part(tried.part))
        }
        if "toy" in selected:
            work = tmp_path_factory.mktemp("sample")
            found["toy"] = pool.submit(_run_installed, work)
        yield found


@pytest.mark.req("R65")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(tried.part) if tried.part else ())
        for name, tried in OURS.items()
    ],
)
def test_a_driver_of_ours_shows_what_it_claims(name: str, runs: Runs) -> None:
    _conforms(runs[name].result())


@pytest.mark.req("R68")
@pytest.mark.needs("opencode")
@pytest.mark.parametrize("name", ["builtin"])
def test_the_managed_opencode_starts_and_resumes_as_opencode_does(
    name: str, runs: Runs
) -> None:
    ran = runs[name].result()
    assert ran.returncode == 0, ran.stdout
    assert "checks were left out" in ran.stdout, ran.stdout


@pytest.mark.parametrize("name", ["toy"])
def test_the_sample_adapter_installs_beside_our_wheel_and_conforms(
    name: str, runs: Runs
) -> None:
    _conforms(runs[name].result())


def _conforms(ran: Ran) -> None:
    assert ran.returncode == 0, ran.stdout
    assert "\nconforms to contract" in ran.stdout, ran.stdout


def _run_installed(work: Path) -> Ran:
    """Build both wheels, install them in a fresh venv, and run the kit from there."""
    wheels, venv = work / "wheels", work / "venv"
    pip = (sys.executable, "-m", "pip")
    python = str(venv / "bin" / "python")
    for project in (ROOT, SAMPLE):
        do((*pip, "wheel", "--no-deps", "-w", str(wheels), str(project)))
    do((sys.executable, "-m", "venv", "--without-pip", str(venv)))
    (ours,) = wheels.glob("agentteam_supervisor-*.whl")
    (toy,) = wheels.glob("agentteam_runtime_toy-*.whl")
    do((*pip, "--python", python, "install", f"{ours}[conformance]", str(toy)))
    stage = "toy_adapter.stage:open_stage"
    return run_kit("toy", "--stage", stage, *PATIENCE, python=python, cwd=venv)


def _name(item: pytest.Item) -> str:
    """Name the driver that a test of this file is about."""
    called: Any = getattr(item, "callspec", None)
    mine = called is not None and item.path == Path(__file__)
    return str(called.params.get("name")) if mine else ""
