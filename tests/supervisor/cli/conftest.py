"""A command line and a server of the contract for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from click.testing import CliRunner, Result
from tests.kit.api_server import ApiServer, open_api_server

from agentteam_supervisor.cli.main import agentteam

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with open_api_server() as server:
        yield server


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run the command in this process, in English, with a state directory of its own."""
    directory = Path(mkdtemp())
    for name in ("LC_ALL", "LC_MESSAGES", "AGENTTEAM_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("AGENTTEAM_STATE_DIR", str(directory))

    def call(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(agentteam, args, input=stdin)

    yield call
    shutil.rmtree(directory)
