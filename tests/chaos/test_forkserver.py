"""A forked life is what a fresh process would be, and can be armed while it serves."""

from __future__ import annotations

import os
import signal
from importlib.metadata import version
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from agentteam_supervisor.chaos.births import Births, Forked, open_fork_server
from agentteam_supervisor.chaos.person import Person
from agentteam_supervisor.chaos.proxy import Proxy
from agentteam_supervisor.chaos.service import Service

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


async def output_of(process: Forked) -> str:
    text = bytearray()
    async for data in process.stdout:
        text += data
    return text.decode()


async def test_it_has_its_own_arguments_environment_streams_and_end(
    tmp_path: Path,
) -> None:
    with trio.fail_after(60):
        async with open_fork_server() as births:
            environment = {"HOME": str(tmp_path), "LANG": "C.UTF-8"}
            one, two = [
                await births.start([argument], environment)
                for argument in ("--version", "--no-such-option")
            ]
            assert isinstance(one, Forked)
            assert isinstance(two, Forked)
            async with one.stdout, one.stderr, two.stdout, two.stderr:
                assert version("agentteam-supervisor") in await output_of(one)
                assert await output_of(two) == ""
                assert await one.wait() == 0
                assert await two.wait() == 2
                assert one.poll() == 0


async def test_it_is_killed_with_the_server_and_is_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with open_fork_server() as births:
                service = Service(tmp_path, nursery, Proxy(), births)
                assert await service.start("up"), service.log.read_text()
                part = service.parts["up"]
                assert os.getsid(part.pid) == part.pid
                process = psutil.Process(part.pid)
            while process.is_running():  # noqa: ASYNC110 - another's child
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def test_a_life_that_serves_dies_where_it_is_told_to_and_not_when_that_is_undone(
    tmp_path: Path,
) -> None:
    with trio.fail_after(60):
        async with open_fork_server() as births, trio.open_nursery() as nursery:
            service = Service(tmp_path, nursery, Proxy(), births)
            person = Person(lambda: service.url, "me")
            async with person.client:
                assert await service.start("up"), service.log.read_text()
                body = {"name": "a0", "runtime": "rehearsal"}
                assert await service.arm("up", "store/message:before:2")
                assert await service.arm("up", "")
                await person.post("/api/agents", body)
                await send(person)
                await send(person)
                assert await service.arm("up", "store/message:before")
                nursery.start_soon(send, person)
                part = service.parts["up"]
                await part.over.wait()
                assert part.crashed
                assert not await service.arm("up", "store/message:before")
            nursery.cancel_scope.cancel()


async def send(person: Person) -> None:
    status, _ = await person.post("/api/targets/@a0/messages", {"body": "hello"})
    assert status == 201


async def test_a_life_that_is_not_forked_cannot_be_told(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            service = Service(tmp_path, nursery, Proxy(), Births())
            assert await service.start("up"), service.log.read_text()
            assert not await service.arm("up", "store/message:before")
            assert await service.parts["up"].die(signal.SIGTERM) == 0
            nursery.cancel_scope.cancel()
