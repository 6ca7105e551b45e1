"""However a command ends, it is a sentence and a documented code, never a trace."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import click
import pytest

from agentteam_supervisor.cli import event_stream, output, waiting
from agentteam_supervisor.cli.client import Client
from agentteam_supervisor.cli.ending import endings, wants_json
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.waiting import Line, answer_awaited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.api_server import ApiServer
    from tests.supervisor.cli.conftest import Run

MAIN = [sys.executable, "-c", "from agentteam_supervisor.cli.main import main; main()"]


@pytest.fixture
def frozen() -> Iterator[str]:
    """A service that is stopped: the kernel takes the call, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@pytest.mark.parametrize(
    "verb", [("urgent", "msg_1"), ("stop", "demo"), ("send", "demo", "hi", "--follow")]
)
def test_a_frozen_service_is_a_sentence(
    frozen: str, run: Run, verb: tuple[str, ...]
) -> None:
    result = run(*verb, "--timeout", "0.3", "--url", frozen)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == ExitCode.timeout
    assert "took too long to answer" in result.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_text_is_wrong_usage(
    api: ApiServer, run: Run, as_json: bool
) -> None:
    more = ("--json",) if as_json else ()
    result = run("send", "demo", "caf\udce9", *more, "--url", api.url)
    assert result.exit_code == ExitCode.usage
    assert "UTF-8" in result.stderr
    assert api.requests == []
    if as_json:
        assert json.loads(result.stderr)["type"] == "not_text"


def test_bytes_on_standard_input_that_are_no_text_are_wrong_usage(run: Run) -> None:
    result = run("send", "demo", "-", stdin=b"caf\xe9")
    assert result.exit_code == ExitCode.usage
    assert "UTF-8" in result.stderr


def test_wrong_usage_is_json_where_json_is_asked_for(run: Run) -> None:
    problem = json.loads(run("send", "demo", "--json").stderr)
    assert (problem["type"], problem["exitCode"]) == ("usage", 2)
    assert wants_json(["send", "x", "--json"])
    assert not wants_json(["send", "x", "--", "--json"])


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0", "1e9"])
def test_a_wait_that_no_clock_can_keep_is_wrong_usage(run: Run, seconds: str) -> None:
    result = run("send", "demo", "hi", "--timeout", seconds)
    assert result.exit_code == ExitCode.usage
    assert "number of seconds" in result.stderr


@pytest.mark.parametrize("url", ["http://[::1", "http://h:99999", "ftp://h", "http://"])
def test_an_address_that_is_none_is_wrong_usage(run: Run, url: str) -> None:
    assert run("status", "--url", url).exit_code == ExitCode.usage


def test_output_that_cannot_be_written_is_told_as_such() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(CommandFailed) as caught, endings(as_json=True):
        raise full
    assert caught.value.as_json
    assert "output cannot be written: No space left" in caught.value.message
    with pytest.raises(CommandFailed) as caught, endings(as_json=False):
        raise FileNotFoundError(errno.ENOENT, "No such file", "/x/y")
    assert caught.value.message == "/x/y: No such file"


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["--help"], ["send", "--help"]])
def test_a_full_disk_below_the_output_leaves_no_trace(verb: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*MAIN, *verb], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert ended.returncode == ExitCode.failed
    assert ended.stderr.startswith("error: the output cannot be written")
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_quietly() -> None:
    ended = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | true', "-", *MAIN, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stderr, ended.stdout) == ("", "")
    assert ended.returncode in (ExitCode.unread, 0)  # 0: the pipe took it before


def test_ctrl_c_has_a_code_of_its_own() -> None:
    with pytest.raises(click.exceptions.Exit) as caught, endings(as_json=False):
        raise KeyboardInterrupt
    assert caught.value.exit_code == ExitCode.interrupted


def test_a_wait_that_is_felt_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "FELT", 0.05)
    with click.Context(click.Command("x")), answer_awaited("http://h", 15):
        time.sleep(0.3)
    assert "no answer from http://h" in capsys.readouterr().err
    with click.Context(click.Command("x")) as context:
        context.params["as_json"] = True
        with answer_awaited("http://h", 15):
            time.sleep(0.2)
    assert capsys.readouterr().err == ""  # it is for one object, the error


def test_an_outage_is_told_less_and_less_often() -> None:
    told: list[tuple[bool, int]] = []

    def tell(url: str, lost: bool, seconds: float) -> None:
        told.append((lost, round(seconds)))

    line = Line(tell)
    line.failed("u")
    assert told == []  # nobody feels that
    for silent in (2, 3, 5, 9, 11):
        line.heard_at = time.monotonic() - silent
        line.failed("u")
    assert told == [(True, 2), (True, 5), (True, 11)]
    line.heard("u")
    assert told[-1] == (False, 11)
    line.heard("u")
    assert len(told) == 4


def test_who_watches_goes_on_while_the_server_is_away_and_is_told(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SHORT", 0.3)
    monkeypatch.setattr(event_stream, "AWAY", 0.1)
    lines: list[bool] = []
    where = ["http://127.0.0.1:9"]

    def tell(url: str, lost: bool, seconds: float) -> None:
        lines.append(lost)
        where[0] = api.url  # it was started again, at another port

    with (
        Client(api.url, find=lambda: where[0]) as client,
        client.events(tell=tell) as events,
    ):
        stream = iter(events)
        api.emit("s.1", "message", {"n": 1})
        assert next(stream).data == {"n": 1}
        api.break_stream()
        api.emit("s.2", "message", {"n": 2})
        assert next(stream).data == {"n": 2}
        assert client.url == api.url
    assert lines == [True, False]


def test_who_waits_for_something_hears_that_the_server_is_lost(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "AWAY", 0.1)
    with (
        Client(api.url, find=lambda: "http://127.0.0.1:9") as client,
        client.events(30) as events,
    ):
        api.break_stream()
        with pytest.raises(CommandFailed) as caught:
            next(iter(events))
    assert caught.value.exit_code == ExitCode.unreachable
    assert "lost the server" in caught.value.message


def test_a_stream_of_another_program_is_told_apart(api: ApiServer) -> None:
    api.break_stream()
    api.hello = b""
    with Client(api.url) as client, pytest.raises(CommandFailed) as caught:
        client.events(5).__enter__()
    assert "does not speak our protocol" in caught.value.message


def test_a_plain_send_opens_no_stream(api: ApiServer, run: Run) -> None:
    sent: dict[str, Any] = {"id": "msg_1", "targetSeq": 1, "deliveries": []}
    api.answer("POST /api/targets/demo/messages", sent, status=201)
    assert run("send", "demo", "hi", "--url", api.url).exit_code == 0
    assert api.seen("GET /api/events") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "code"), [("/dev/full", ExitCode.failed), ("| true", ExitCode.ok)]
)
def test_a_service_tells_its_output_from_its_disk(
    tmp_path: Path, where: str, code: ExitCode
) -> None:
    redirected = f"> {where}" if where.startswith("/") else where
    script = f'set -o pipefail; timeout -s TERM --preserve-status 20 "$@" {redirected}'
    command = ["bash", "-c", script, "-", *MAIN, "up", "--port", "0"]
    ended = subprocess.run(
        [*command, "--state-dir", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert "state directory" not in ended.stderr


def test_the_prose_of_a_table_stays_in_its_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["a", "ok", "one two three four five six seven eight nine"]]
    output.print_wrapped(["CHECK", "STATE", "DETAIL"], rows)
    assert len(capsys.readouterr().out.splitlines()) == 2  # a program reads lines
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.print_wrapped(["CHECK", "STATE", "DETAIL"], rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 45 for line in lines)
    assert lines[2].startswith(" " * 14)
