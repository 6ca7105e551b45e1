"""The pytest plugin: which driver, on which stage, and the report at the end."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.conformance.bench import Bench, report
from agentteam_runtimes.conformance.claims import Claims
from agentteam_runtimes.conformance.house import House
from agentteam_runtimes.driver import CONTRACT
from agentteam_runtimes.plugins import find_plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentteam_runtimes.conformance.stage import OpenStage
    from agentteam_runtimes.driver import Driver

PATIENCE_SECONDS = 10.0
CLAIMS = pytest.StashKey[Claims]()
DESELECTED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("agentteam conformance")
    group.addoption("--runtime", metavar="NAME", help="the driver's entry point")
    group.addoption("--driver", metavar="MODULE:CLASS", help="one without entry point")
    group.addoption("--stage", metavar="MODULE:NAME", help="how its model is scripted")
    group.addoption(
        "--patience",
        type=float,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="how long the driver may take for each step",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CLAIMS] = Claims()
    config.stash[DESELECTED] = 0


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items:
        items[0].config.stash[DESELECTED] += len(items)


@pytest.fixture(scope="session")
def driver(request: pytest.FixtureRequest) -> Driver:
    """The driver under test, one for all checks, as in a daemon."""
    named, written = (request.config.getoption(o) for o in ("--runtime", "--driver"))
    if written:
        return cast("Driver", _load(written)())
    if not named:
        raise pytest.UsageError("name the driver: --runtime NAME")
    try:
        return find_plugins().load(named)
    except RuntimeMissing as missing:
        raise pytest.UsageError(str(missing)) from missing


@pytest.fixture(scope="session")
def open_stage(request: pytest.FixtureRequest) -> OpenStage:
    named = request.config.getoption("--stage")
    if not named:
        raise pytest.UsageError("name its stage: --stage MODULE:NAME")
    return cast("OpenStage", _load(named))


@pytest.fixture(scope="session")
def house(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    driver: Driver,
    open_stage: OpenStage,
) -> Iterator[House]:
    """Give the scenes that the checks share; at the end it is looked what is left."""
    patience = float(request.config.getoption("--patience") or PATIENCE_SECONDS)
    place = tmp_path_factory.mktemp(driver.name)
    house = House(driver, open_stage, place, patience)
    yield house
    try:
        house.close()
    except Exception as error:  # the boundary, as for a check
        failure = error
    else:
        return
    report(failure)


@pytest.fixture
def bench(request: pytest.FixtureRequest, house: House) -> Bench:
    return Bench(house, request.config.stash[CLAIMS])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    claims = config.stash[CLAIMS]
    if claims.able is None:
        return
    say = terminalreporter.write_line
    terminalreporter.section(f"claimed and shown: version {claims.able.version}")
    for line in claims.lines():
        note = "CLAIMED, UNTESTED" if line.owed else ""
        say(f"{line.name:<16} {line.claimed:<10} {line.shown}  {note}".rstrip())
    failed = len(terminalreporter.stats.get("failed", []))
    failed += len(terminalreporter.stats.get("error", []))
    if failed:
        say(f"does not conform to contract {CONTRACT}: {failed} checks failed")
    elif left_out := config.stash[DESELECTED]:
        say(f"no verdict: {left_out} checks were left out")
    elif claims.owed:
        say(f"nothing failed; claimed and untested: {', '.join(claims.owed)}")
    else:
        say(f"conforms to contract {CONTRACT}")


def _load(named: str) -> Any:
    """Import what `MODULE:NAME` names; the current directory counts, as in Python."""
    module, _, name = named.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"{named} cannot be loaded: {error}") from error
