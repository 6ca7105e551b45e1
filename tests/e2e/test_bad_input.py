"""What cannot work is said at once, with what to do, and nothing is lost by it."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.product import open_product
from tests.kit.service import COMMAND, environment, run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product

pytestmark = pytest.mark.slow

ANSWER = {"say": "at once", "ms": 1}


def clear(problem: Any, *words: str) -> None:
    """Insist on a sentence that names these words, and no trace."""
    text = str(problem)
    assert len(text) > 15, text
    assert "Traceback" not in text
    for word in words:
        assert word in text, text


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("agents", {"name": "x", "runtime": "no-such"}, ("no-such", "rehearsal")),
        ("agents", {"name": "Not A Name", "runtime": "rehearsal"}, ("name",)),
        ("agents", {"name": "x"}, ("runtime",)),
        ("agents", {"name": "x", "runtime": "rehearsal", "odd": 1}, ("odd",)),
        (
            "agents",
            {"name": "x", "runtime": "rehearsal", "options": {"odd": 1}},
            ("odd", "config"),
        ),
        (
            "agents",
            {"name": "x", "runtime": "rehearsal", "approvalPolicy": "always"},
            ("always", "never"),
        ),
        ("targets", {"name": "room", "agents": ["nobody-here"]}, ("nobody-here",)),
        ("targets/@demo/messages", {}, ("body",)),
        ("targets/@demo/messages", {"body": 5}, ("body",)),
        (
            "targets/@demo/messages",
            {"body": "x", "interruptPolicy": "interrupt_current_run"},
            ("interruptPolicy", "agent-delivery"),
        ),
    ],
)
async def test_a_wrong_request_is_refused_with_its_reason(
    product: Product, path: str, body: Any, words: tuple[str, ...]
) -> None:
    answer = await product.client.post(f"/api/{path}", json=body)
    assert answer.status_code in (404, 422), answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    clear(answer.json()["detail"], *words)


@pytest.mark.parametrize(
    "body", [b"{", b"\xff\xfe", b"[]", b'"x"', b"null", b"[" * 5000, b"NaN"]
)
async def test_what_is_no_json_object_is_refused(product: Product, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/api/agents", "/api/targets/@demo/messages"):
        answer = await product.client.post(path, content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text
        clear(answer.json()["detail"], "JSON")
    assert (await product.get("/healthz")) is not None


@pytest.mark.req("R3", "R6")
@pytest.mark.bug("B40")
@pytest.mark.parametrize(
    "policy", ["interrupt_current_run ", "INTERRUPT_CURRENT_RUN", None, "", "stop", 1]
)
async def test_only_the_exact_policy_interrupts(product: Product, policy: Any) -> None:
    agent = await product.agent([{"say": "word " * 200, "ms": 20}])
    message = await agent.send("x")
    await product.surfaced(message["deliveries"][0]["id"])
    answer = await product.client.post(
        f"/api/messages/{message['id']}/agent-delivery",
        json={"interruptPolicy": policy},
    )
    assert answer.status_code == 422, answer.text
    clear(answer.json()["detail"], "interrupt")
    assert (await agent.view())["currentRun"]
    assert await agent.journal("fence/held", "interrupt/requested") == []
    await agent.stop()


@pytest.mark.req("R55")
@pytest.mark.bug("B08")
async def test_a_runtime_that_is_not_there_is_a_problem_of_its_agent(
    product: Product,
) -> None:
    agent = await product.agent(options={"bin": "/nonexistent/python"})
    other = await product.agent([ANSWER])
    message = await agent.send("hello")
    view = await agent.until(lambda view: view["problem"])
    clear(view["problem"]["problem"], "/nonexistent/python")
    clear(view["problem"]["whatToDo"])
    assert view["status"] == "idle"
    ordinary = await product.delivery(message["deliveries"][0]["id"])
    assert ordinary["state"] == "queued"
    urgent = await product.ended((await agent.mark(message))["id"])
    assert urgent["state"] == "failed"
    clear(urgent["diagnostic"]["problem"], "/nonexistent/python")
    await product.surfaced(await other.deliver("and you?"))


@pytest.mark.req("R55")
async def test_a_working_directory_that_is_not_there_is_named(
    product: Product, tmp_path: Path
) -> None:
    wanted = tmp_path / "comes-later"
    agent = await product.agent([ANSWER], workdir=str(wanted))
    delivery = await agent.deliver("hello")
    view = await agent.until(lambda view: view["problem"])
    clear(view["problem"]["problem"], str(wanted))
    clear(view["problem"]["whatToDo"])
    wanted.mkdir()
    await agent.resume()
    await product.surfaced(delivery)
    assert (await agent.idle())["problem"] is None


@pytest.mark.req("R55")
async def test_a_problem_is_over_when_what_was_missing_is_there(
    product: Product, tmp_path: Path
) -> None:
    wanted = tmp_path / "comes-later"
    agent = await product.agent([ANSWER], workdir=str(wanted))
    first = await agent.deliver("hello")
    await agent.until(lambda view: view["problem"])
    wanted.mkdir()
    await agent.until(lambda view: not view["problem"])
    await agent.resume()
    await product.surfaced(first)


async def test_a_wrong_option_of_the_runtime_is_named(product: Product) -> None:
    agent = await product.agent(config={"stear": "ack"})
    await agent.deliver("hello")
    view = await agent.until(lambda view: view["problem"])
    clear(view["problem"]["problem"], "stear", "steer")
    clear(view["problem"]["whatToDo"])


async def test_what_does_not_exist_is_404_by_name(product: Product) -> None:
    for path in (
        "agents/nobody",
        "messages/msg_none",
        "deliveries/dlv_none",
        "targets/none/messages",
    ):
        answer = await product.client.get(f"/api/{path}")
        assert answer.status_code == 404, path
        clear(answer.json()["detail"], "no")


@pytest.mark.bug("B12")
def test_a_taken_port_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run_command(tmp_path, "up", "--port", str(port))
    assert refused.code != 0
    clear(refused.stderr, str(port), "--port")
    assert refused.stdout == ""


def test_a_state_of_another_version_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("99\n")
    (tmp_path / "theirs").write_text("keep")
    refused = run_command(tmp_path, "up", "--port", "0")
    assert refused.code != 0
    clear(refused.stderr, "99", "another")
    kept = {p.name for p in tmp_path.iterdir() if p.suffix in {"", ".sqlite3"}}
    assert {"version", "theirs"} <= kept
    assert not any("sqlite" in name for name in kept)


# A child of this shell cannot grow a file past the limit: a disk that is full.
_SMALL_FILES = (
    "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "n = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)


def _run_on_a_full_disk(
    place: Path, limit: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _SMALL_FILES, str(limit), str(COMMAND)]
    return subprocess.run(
        [*command, "up", "--port", "0", *arguments],
        env=environment(place),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.bug("B04")
@pytest.mark.parametrize("limit", [0, 4096, 40_000])
def test_a_disk_that_is_full_at_the_start_is_said(tmp_path: Path, limit: int) -> None:
    refused = _run_on_a_full_disk(tmp_path, limit)
    assert refused.returncode != 0
    clear(refused.stderr)
    assert "disk" in refused.stderr or "written" in refused.stderr


@pytest.mark.bug("B04")
async def test_after_a_start_on_a_full_disk_the_next_one_works(tmp_path: Path) -> None:
    place = tmp_path / "product"
    place.mkdir()
    refused = _run_on_a_full_disk(place, 40_000, "--state-dir", str(place / "state"))
    assert refused.returncode != 0
    async with open_product(place) as product:
        agent = await product.agent([ANSWER])
        await product.surfaced(await agent.deliver("hello"))
