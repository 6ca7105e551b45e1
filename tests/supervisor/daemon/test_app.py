"""The whole daemon with the real server and a real runtime process."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
import trio
from attrs import define

from agentteam_supervisor.daemon.app import link_url, run_daemon
from agentteam_supervisor.daemon.config import DaemonConfig
from agentteam_supervisor.daemon.link import LinkRefused
from agentteam_supervisor.daemon.lock import StateDirectoryBusy
from agentteam_supervisor.server.app import run_server
from agentteam_supervisor.server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from pathlib import Path

URGENT = {"interruptPolicy": "interrupt_current_run"}

DAEMON = """
import sys, trio
from pathlib import Path
from agentteam_supervisor.daemon.app import run_daemon
from agentteam_supervisor.daemon.config import DaemonConfig

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(run_daemon, DaemonConfig(Path(sys.argv[1])), sys.argv[2])
        print("ready", flush=True)

trio.run(main)
"""


@define
class Api:
    """The HTTP contract, as far as these tests need it."""

    url: str
    client: httpx.AsyncClient

    async def get(self, path: str) -> Any:
        return (await self.client.get(path)).raise_for_status().json()

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return (await self.client.post(path, json=body)).raise_for_status().json()

    async def add(self, **settings: Any) -> Any:
        body = {"name": "demo", "runtime": "rehearsal", **settings}
        return await self.post("/api/agents", body)

    async def send(self, *steps: dict[str, Any], text: str = "") -> Any:
        body = text or f"#do {json.dumps(steps)}"
        return await self.post("/api/targets/@demo/messages", {"body": body})

    async def urgent(self, message: Any) -> Any:
        return await self.post(f"/api/messages/{message['id']}/agent-delivery", URGENT)

    async def delivered(self, delivery: Any) -> Any:
        return await self.get(f"/api/deliveries/{delivery['id']}?wait=20")

    async def agent_when(self, ready: Callable[[Any], Any]) -> Any:
        agent = await self.get("/api/agents/demo")
        while not ready(agent):  # the HTTP side has nothing to wait on but events
            await trio.sleep(0.02)
            agent = await self.get("/api/agents/demo")
        return agent

    async def kinds(self) -> list[str]:
        return [
            i["kind"] for i in (await self.get("/api/agents/demo/activity"))["items"]
        ]


@asynccontextmanager
async def serving(path: Path, port: int = 0) -> AsyncGenerator[Api]:
    async with trio.open_nursery() as nursery:
        config = ServerConfig(path / "server", port=port)
        url = f"http://127.0.0.1:{await nursery.start(run_server, config)}"
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            with trio.fail_after(60):
                yield Api(url, client)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def daemon(path: Path, api: Api) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(run_daemon, DaemonConfig(path), api.url)
        yield
        nursery.cancel_scope.cancel()


def children(but: frozenset[psutil.Process] = frozenset()) -> set[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return {process for process in found if alive(process)} - but


@pytest.fixture
def others() -> frozenset[psutil.Process]:
    """Who was there before: a browser that other tests of this process share."""
    return frozenset(children())


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_the_links_address_is_made_of_the_servers() -> None:
    assert link_url("http://127.0.0.1:8642") == "ws://127.0.0.1:8642/link"
    assert link_url("https://host/team/") == "wss://host/team/link"
    assert link_url("ws://host:1/link") == "ws://host:1/link"


@pytest.mark.slow
@pytest.mark.req("R27", "R32", "R134")
async def test_an_urgent_message_cuts_the_run_and_is_answered(
    tmp_path: Path, others: frozenset[psutil.Process]
) -> None:
    async with serving(tmp_path) as api, daemon(tmp_path / "daemon", api):
        await api.add()
        message = await api.send({"say": "one two three four five " * 20, "ms": 50})
        await api.delivered(message["deliveries"][0])
        delivery = await api.urgent(await api.send(text="now this"))
        delivered = await api.delivered(delivery)
        assert delivered["state"] == "surfaced"
        assert delivered["evidence"]["at"]
        await api.agent_when(lambda a: a["status"] == "idle")
        kinds = [k for k in await api.kinds() if not k.startswith("run_")]
        assert kinds == ["requested", "stopping", "interrupted", "started"]
        runs = (await api.get("/api/agents/demo/runs"))["runs"]
        assert [r["outcome"] for r in runs] == ["aborted", "completed"]
    assert children(but=others) == set()


@pytest.mark.slow
@pytest.mark.bug("B12")
async def test_a_second_daemon_is_refused_by_the_lock_or_by_the_server(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api, daemon(tmp_path / "one", api):
        with pytest.raises(StateDirectoryBusy):
            await run_daemon(DaemonConfig(tmp_path / "one"), api.url)
        with pytest.raises(LinkRefused, match="holds the agents already"):
            await run_daemon(DaemonConfig(tmp_path / "two"), api.url)
        # The first one goes on.
        await api.add()
        message = await api.send(text="hello")
        delivered = await api.delivered(message["deliveries"][0])
        assert delivered["state"] == "surfaced"


@pytest.mark.slow
@pytest.mark.req("R121")
async def test_after_kill_9_the_cut_turn_is_closed_and_not_run_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        async with started(tmp_path / "daemon", api) as killed:
            await api.add()
            message = await api.send({"say": "one two three four five " * 50, "ms": 50})
            await api.delivered(message["deliveries"][0])
            tree = psutil.Process(killed.pid).children(recursive=True)
            assert tree
            killed.send_signal(signal.SIGKILL)
        async with daemon(tmp_path / "daemon", api):
            assert not [p for p in tree if alive(p)]
            message = await api.send(text="are you there?")
            delivered = await api.delivered(message["deliveries"][0])
            assert delivered["state"] == "surfaced"
            await api.agent_when(lambda a: a["status"] == "idle")
            runs = (await api.get("/api/agents/demo/runs"))["runs"]
            assert [r["outcome"] for r in runs] == ["interrupted", "completed"]
            assert runs[1]["generation"] > runs[0]["generation"]


@pytest.mark.slow
@pytest.mark.req("R121")
@pytest.mark.bug("B01")
@pytest.mark.parametrize("recorded", [True, False])
async def test_what_lost_its_warden_and_its_supervisor_is_gone_at_the_next_start(
    tmp_path: Path, recorded: bool
) -> None:
    async with serving(tmp_path) as api:
        async with started(tmp_path / "daemon", api) as killed:
            await api.add()
            message = await api.send({"run": "setsid sleep 31 &"}, {"wait": 60000})
            await api.delivered(message["deliveries"][0])
            stray = await below(killed.pid, "sleep 31")
            wardens = psutil.Process(killed.pid).children()
            for process in (psutil.Process(killed.pid), *wardens):
                process.suspend()  # neither can clean up after the other
            for process in (psutil.Process(killed.pid), *wardens):
                process.kill()
        assert alive(stray)
        if not recorded:  # as on a full disk
            forget_starts(tmp_path / "daemon")
        async with daemon(tmp_path / "daemon", api):
            assert not alive(stray)


async def below(pid: int, command: str) -> psutil.Process:
    """Wait until this command runs below the process."""
    while True:
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                if " ".join(child.cmdline()) == command:
                    return child
        await trio.sleep(0.02)


def forget_starts(path: Path) -> None:
    """Have the log name no process, as if no start had been written."""
    unnamed = """
        UPDATE entries SET event = json_replace(event, '$.identity', '')
        WHERE event ->> '$.kind' = 'run/process'
    """
    with closing(sqlite3.connect(path / "journal.sqlite3")) as file, file:
        assert file.execute(unnamed).rowcount > 0


@pytest.mark.slow
@pytest.mark.req("R137")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"workdir": "/no/such/place"}, "/no/such/place does not exist"),
        ({"runtime": "codex", "options": {"bin": "/no/such/codex"}}, "/no/such/codex"),
    ],
)
async def test_what_cannot_start_is_the_agents_problem_with_what_to_do(
    tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    async with serving(tmp_path) as api, daemon(tmp_path / "daemon", api):
        await api.add(**settings)
        delivery = await api.urgent(await api.send(text="hello"))
        delivered = await api.delivered(delivery)
        assert delivered["state"] == "failed"
        assert problem in delivered["diagnostic"]["problem"]
        assert delivered["diagnostic"]["whatToDo"]
        agent = await api.agent_when(lambda a: a["problem"])
        assert problem in agent["problem"]["problem"]
        assert agent["status"] == "idle"


@pytest.mark.slow
async def test_another_workdir_and_a_resume_mend_a_start(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, daemon(tmp_path / "daemon", api):
        await api.add(workdir="/no/such/place")
        message = await api.send(text="hello")
        agent = await api.agent_when(lambda a: a["problem"])
        assert "agentteam resume" in agent["problem"]["whatToDo"]
        change = {"workdir": str(tmp_path)}
        answer = await api.client.patch("/api/agents/demo", json=change)
        assert answer.status_code == 200
        await api.post("/api/agents/demo/control", {"action": "resume"})
        delivered = await api.delivered(message["deliveries"][0])
        assert delivered["state"] == "surfaced"
        assert (await api.agent_when(lambda a: a["status"] == "idle"))[
            "problem"
        ] is None


@pytest.mark.slow
@pytest.mark.bug("B14")
async def test_what_was_sent_while_the_daemon_was_away_is_delivered_once(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        async with daemon(tmp_path / "daemon", api):
            await api.add()
        sent = [await api.send(text=f"message {n}") for n in range(5)]
        async with daemon(tmp_path / "daemon", api):
            for message in sent:
                delivered = await api.delivered(message["deliveries"][0])
                assert delivered["state"] == "surfaced"
        entries = journal_of(tmp_path / "daemon")
        seen = [e["body"] for e in entries if e["kind"] == "user/message"]
        assert seen == [f"message {n}" for n in range(5)]


@pytest.mark.slow
@pytest.mark.bug("B04")
async def test_a_log_that_is_not_writable_claims_nothing_and_grants_nothing(
    tmp_path: Path, others: frozenset[psutil.Process]
) -> None:
    async with serving(tmp_path) as api, daemon(tmp_path / "daemon", api):
        await api.add()
        await api.send({"ask": "shell"}, {"say": "it ran"})
        agent = await api.agent_when(lambda a: a["pendingApprovals"])
        approval = agent["pendingApprovals"][0]["id"]
        with full_disk(tmp_path / "daemon"):
            decision = {"outcome": "allowed-once"}
            await api.post(f"/api/approvals/{approval}/decision", decision)
            message = await api.send(text="while the disk is full")
            urgent = await api.urgent(message)
            await trio.sleep(1.0)
            # Fail closed: no grant, nothing received, nothing surfaced.
            claimed = await api.get(f"/api/deliveries/{urgent['id']}")
            assert claimed["state"] == "queued"
            assert "it ran" not in await said(api)
            assert children(but=others) == set()
            # The log cannot tell people, so the link does.
            agent = await api.agent_when(lambda a: a["problem"])
            assert "the log is not writable" in agent["problem"]["problem"]
            assert "disk" in agent["problem"]["whatToDo"]
        # The disk is mended, and nobody has to do anything.
        delivered = await api.delivered(urgent)
        assert delivered["state"] == "surfaced"
        agent = await api.agent_when(lambda a: a["status"] == "idle")
        assert agent["problem"] is None
        items = (await api.get("/api/agents/demo/activity"))["items"]
        assert [i for i in items if "log is not writable" in i["text"]]
        assert "it ran" not in await said(api)


@pytest.mark.slow
@pytest.mark.bug("B14")
async def test_a_server_that_comes_back_finds_its_daemon_again(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        async with serving(tmp_path) as api:
            await nursery.start(run_daemon, DaemonConfig(tmp_path / "daemon"), api.url)
            await api.add()
            steps = {"say": "one two three four five " * 10, "ms": 50}
            message = await api.send(steps)
            await api.delivered(message["deliveries"][0])
            run = (await api.get("/api/agents/demo"))["currentRun"]["id"]
        port = int(api.url.rpartition(":")[2])
        async with serving(tmp_path, port) as api:
            # The run went on meanwhile; no message of it is lost, none comes twice.
            agent = await api.agent_when(lambda a: a["status"] == "idle")
            assert agent["daemon"]["connected"]
            runs = (await api.get("/api/agents/demo/runs"))["runs"]
            assert [(r["id"], r["outcome"]) for r in runs] == [(run, "completed")]
            message = await api.send(text="again")
            delivered = await api.delivered(message["deliveries"][0])
            assert delivered["state"] == "surfaced"
            nursery.cancel_scope.cancel()


async def said(api: Api) -> str:
    messages = (await api.get("/api/targets/@demo/messages"))["messages"]
    return " ".join(m["body"] for m in messages if m["author"]["kind"] == "agent")


@contextmanager
def full_disk(path: Path) -> Generator[None]:
    """Refuse every new record of the journal, the way a full disk does."""
    with closing(sqlite3.connect(path / "journal.sqlite3", isolation_level=None)) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON entries"
            " BEGIN SELECT raise(ABORT, 'no space left on device'); END"
        )
        try:
            yield
        finally:
            db.execute("DROP TRIGGER full")


# A plain child of the test: it is to be killed, not contained.
Child = subprocess.Popen[str]  # noqa: TID251


@asynccontextmanager
async def started(path: Path, api: Api) -> AsyncGenerator[Child]:
    """Run a daemon as a process of its own."""
    command = [sys.executable, "-c", DAEMON, str(path), api.url]
    child = Child(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert await trio.to_thread.run_sync(child.stdout.readline) == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate(timeout=10)


def journal_of(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path / "journal.sqlite3")) as db:
        rows = db.execute("SELECT event FROM entries ORDER BY agent, seq")
        return [json.loads(event) for (event,) in rows]
