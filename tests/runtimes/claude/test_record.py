"""Claude's own record, our notes beside it, and the lines that we write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import ItemId
from agentteam_runtimes.claude import wire
from agentteam_runtimes.claude.asks import Asks, fence
from agentteam_runtimes.claude.command import command, environment, settings
from agentteam_runtimes.claude.record import (
    Kept,
    Memory,
    Tail,
    find_tail,
    read_fates,
)
from agentteam_runtimes.claude.tools import ToolCalls
from agentteam_runtimes.driver import (
    AskClosed,
    ItemOutcome,
    Options,
    ReadCalled,
    SendCalled,
    TurnRef,
)

if TYPE_CHECKING:
    from pathlib import Path

TURN = TurnRef("turn")


def test_the_record_tells_what_an_answer_followed(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"type": "user", "uuid": "a.1+b.1"},
        {"type": "assistant", "message": {"model": "m"}},
        {"type": "attachment", "attachment": {"source_uuid": "c.1"}},
        {"type": "queue-operation", "uuid": "d.1"},
        {"type": "user", "uuid": "f.1", "mergedSendUuids": ["e.1"]},
        {"type": "assistant", "message": {"model": wire.SYNTHETIC}},
    ]
    record = tmp_path / "project" / "session.jsonl"
    record.parent.mkdir()
    record.write_text("\n".join(map(json.dumps, rows)) + '\n{"type": "assis')
    surfaced, carried = ItemOutcome.surfaced, ItemOutcome.carried
    assert read_fates(tmp_path, "session") == {
        "a.1": surfaced,
        "b.1": surfaced,
        "c.1": carried,
        "e.1": carried,
        "f.1": carried,
    }
    assert read_fates(tmp_path, "another") == {}


def test_what_we_remember_belongs_to_one_session(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "claude.json")
    memory.keep("session", Kept())
    assert not memory.path.exists()
    kept = Kept({"a.1": ItemId("a")}, ("b.1",))
    memory.keep("session", kept)
    assert Memory(memory.path).read("session") == kept
    assert Memory(memory.path).read("another") == Kept()
    memory.keep("session", Kept())
    assert Memory(memory.path).read("session") == Kept()
    memory.path.write_text("{torn")
    assert Memory(memory.path).read("session") == Kept()


ANSWER = {"type": "assistant", "uuid": "at", "message": {"model": "m"}}
USE = {"content": [{"type": "tool_use"}]}
ASKED = {"type": "user", "uuid": "a.1", "message": {"content": "x"}}
ONCE = Tail("at", ("a.1",))
MARKER = {"type": "user", "uuid": "[Request interrupted by user]"}


@pytest.mark.parametrize(
    ("rows", "tail"),
    [
        ([ANSWER, ASKED], ONCE),
        ([ANSWER, {"type": "queue-operation"}, ASKED, {}], ONCE),
        ([ANSWER], None),
        ([ASKED], None),
        ([ASKED, ANSWER], None),
        ([ANSWER, ASKED, MARKER], None),
        ([ANSWER, {**ASKED, "uuid": "surfaced.1"}], None),
        ([ANSWER, {**ASKED, "uuid": "carried.1"}, ASKED], None),
        ([{**ANSWER, "message": USE}, ASKED], None),
        ([ASKED, {**ANSWER, "message": {"model": wire.SYNTHETIC}}, ASKED], ONCE),
        (
            [ANSWER, {"type": "attachment", "attachment": {"source_uuid": "a.1"}}],
            None,
        ),
    ],
)
def test_only_inputs_that_nothing_followed_are_left_out_of_a_resume(
    tmp_path: Path, rows: list[Any], tail: Tail | None
) -> None:
    record = tmp_path / "project" / "session.jsonl"
    record.parent.mkdir()
    record.write_text("\n".join(map(json.dumps, rows)))
    assert find_tail(tmp_path, "session", {"a.1"}) == tail


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hello", ["hello"]),
        ("/help me", ["/", "help me"]),
        (" \n/clear", [" \n/", "clear"]),
        ("/", ["/"]),
        ("", [""]),
        ("a \ud800 b", ["a \ufffd b"]),
    ],
)
@pytest.mark.req("R10")
def test_a_text_is_never_a_command(text: str, parts: list[str]) -> None:
    line = json.loads(wire.user_line("a.1", [text]))
    assert line["uuid"] == "a.1"
    assert [part["text"] for part in line["message"]["content"]] == parts


@pytest.mark.parametrize("outcome", ApprovalOutcome)
@pytest.mark.inv(4, 5)
def test_an_ask_is_answered_once_and_only_an_allow_allows(
    outcome: ApprovalOutcome,
) -> None:
    asks = Asks()
    request = {"tool_name": "Bash", "tool_use_id": "call", "input": {"command": "ls"}}
    asked = asks.ask("req", request, TURN)
    assert (asked.tool_name, asked.call_id) == ("Bash", "call")
    decided = asks.decide(asked.ask, outcome)
    assert decided is not None
    id, answer = decided
    allows = outcome is ApprovalOutcome.allowed_once
    assert id == "req"
    assert answer["behavior"] == ("allow" if allows else "deny")
    assert answer.get("updatedInput") == ({"command": "ls"} if allows else None)
    assert asks.decide(asked.ask, ApprovalOutcome.allowed_once) is None


def test_an_ask_is_closed_by_its_withdrawal_or_the_end_of_its_turn() -> None:
    asks = Asks()
    first, second = asks.ask("one", {}, TURN), asks.ask("two", {}, TURN)
    assert asks.withdrawn("one") == [AskClosed(first.ask)]
    assert asks.withdrawn("nobody's") == []
    assert asks.turn_ended("turn") == [AskClosed(second.ask)]
    assert asks.decide(second.ask, ApprovalOutcome.allowed_once) is None


@pytest.mark.req("R42")
def test_the_fence_denies_the_calls_of_a_cut_turn_and_no_other() -> None:
    assert fence(cut=False) == {}
    denied = fence(cut=True)["hookSpecificOutput"]
    assert denied["permissionDecision"] == "deny"


def called(name: str, **given: Any) -> dict[str, Any]:
    meta = {"claudecode/toolUseId": "use"}
    params = {"name": name, "arguments": given, "_meta": meta}
    return {"method": "tools/call", "id": 4, "params": params}


def test_a_call_of_our_tools_waits_for_one_result() -> None:
    tools = ToolCalls()
    asked: list[str] = []

    def owner(use: str) -> TurnRef:
        asked.append(use)
        return TURN

    send = tools.take("r1", called("send_message", target="@a", text="hi"), owner)
    read = tools.take("r2", called("read_history", target="@a", after=3), owner)
    assert isinstance(send, SendCalled)
    assert isinstance(read, ReadCalled)
    assert (send.turn, send.text, read.after, asked) == (TURN, "hi", 3, ["use", "use"])
    finished = tools.finish(send.call, "sent", False)
    assert finished is not None
    assert finished[0] == "r1"
    assert finished[1]["mcp_response"]["result"] == {
        "content": [{"type": "text", "text": "sent"}],
        "isError": False,
    }
    assert tools.finish(send.call, "sent", False) is None
    tools.turn_ended("turn")
    assert tools.finish(read.call, "late", False) is None


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ({"method": "initialize", "id": 0, "params": {}}, "serverInfo"),
        ({"method": "tools/list", "id": 1}, "send_message"),
        ({"method": "ping", "id": 2}, "'result': {}"),
        ({"method": "notifications/initialized"}, "'id': 0"),
        ({"method": "server/discover", "id": 3}, "-32601"),
        (called("send_message", target="@a"), "'isError': True"),
        (called("delete_everything"), "'isError': True"),
    ],
)
def test_every_message_of_the_tool_server_has_its_reply(
    message: dict[str, Any], part: str
) -> None:
    reply = ToolCalls().take("r", message, lambda _: TURN)
    assert isinstance(reply, dict)
    assert part in str(reply)


def test_a_withdrawn_call_takes_no_result() -> None:
    tools = ToolCalls()
    send = tools.take("r", called("send_message", target="a", text="b"), lambda _: TURN)
    assert isinstance(send, SendCalled)
    given = {"requestId": 4}
    gone = {"method": "notifications/cancelled", "params": given}
    tools.take("r", gone, lambda _: TURN)
    assert tools.finish(send.call, "late", False) is None


def test_the_settings_of_the_agent_win_and_our_tools_are_allowed(
    tmp_path: Path,
) -> None:
    given = settings(
        {"model": "x", "permissions": {"allow": ["Bash"], "ask": ["Edit"]}}
    )
    assert given["permissions"]["ask"] == ["Edit"]
    assert given["permissions"]["allow"] == [
        "Bash",
        "mcp__agentteam__send_message",
        "mcp__agentteam__read_history",
    ]
    options = Options(bin="/bin/sh", home="/h", env={"TMPDIR": "/mine"}, args=("--x",))
    env = environment(options, tmp_path)
    assert (env["CLAUDE_CONFIG_DIR"], env["TMPDIR"]) == ("/h/.claude", "/mine")
    words = command(options, "s", resume=True, model="m")
    assert words[words.index("--resume") + 1] == "s"
    assert (words[-3:], "--session-id" in words) == (["--model", "m", "--x"], False)
