"""The smaller verbs, each against a server of the contract."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentteam_supervisor.cli.failure import ExitCode
from agentteam_supervisor.cli.main import VERBS
from agentteam_supervisor.cli.server_record import ServerRecord, announced

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.api_server import ApiServer
    from tests.supervisor.cli.conftest import Run

AGENT: dict[str, Any] = {
    "id": "agt_1",
    "name": "demo",
    "runtime": "rehearsal",
    "status": "running",
    "currentRun": {"id": "run_1", "generation": [1, 4]},
    "parked": False,
    "problem": None,
}
IDLE = {**AGENT, "status": "idle", "currentRun": None}


def line(kind: str, text: str, run: str = "run_1") -> dict[str, Any]:
    return {"kind": kind, "text": text, "runId": run, "agentId": "agt_1"}


def test_the_help_of_every_verb_is_there(run: Run) -> None:
    text = run("--help").stdout
    for verb in VERBS:
        assert f"\n  {verb} " in text
        result = run(verb, "--help")
        assert result.exit_code == 0, result.output


def test_the_exit_codes_stand_in_the_help(run: Run) -> None:
    text = run("--help").stdout
    for code in ExitCode:
        assert f"\n  {code.value}  " in text


def test_without_a_server_each_verb_says_how_to_start_one(run: Run) -> None:
    for arguments in (["status"], ["messages", "@a"], ["watch"], ["approvals"]):
        result = run(*arguments)
        assert result.exit_code == ExitCode.unreachable
        assert "agentteam up" in result.stderr


def test_a_dead_server_is_unreachable(run: Run) -> None:
    result = run("status", "--url", "http://127.0.0.1:9")
    assert result.exit_code == ExitCode.unreachable
    assert "no server answers at http://127.0.0.1:9" in result.stderr


def test_an_error_is_json_where_json_is_asked_for(api: ApiServer, run: Run) -> None:
    api.problem("GET /api/agents/x", 404, "unknown_agent", "there is no agent")
    result = run("agents", "rm", "x", "--json", "--url", api.url)
    problem = json.loads(result.stderr)
    assert (problem["type"], problem["exitCode"]) == ("unknown_agent", 1)
    assert result.stdout == ""


def test_chinese_where_the_locale_is(
    api: ApiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    api.answer("GET /api/approvals", {"approvals": []})
    assert run("approvals", "--url", api.url).stdout == "没有待审批项\n"
    assert api.requests[0].headers["accept-language"] == "zh"
    assert "停止" in run("--help").stdout


def test_agents_add_sends_what_was_said_and_nothing_else(
    api: ApiServer, run: Run
) -> None:
    api.answer("POST /api/agents", AGENT, status=201)
    result = run(
        *("agents", "add", "demo", "--runtime", "codex", "--approvals", "never"),
        *("--options", '{"args": ["-v"]}', "--resume", "0b95", "--url", api.url),
    )
    assert result.exit_code == 0, result.output
    (post,) = api.seen("POST /api/agents")
    assert post.body == {
        "name": "demo",
        "runtime": "codex",
        "approvalPolicy": "never",
        "options": {"args": ["-v"], "resume": "0b95"},
    }


def test_agents_add_warns_of_a_runtime_that_is_not_there(
    api: ApiServer, run: Run
) -> None:
    missing = {"problem": "there is no program codex; install it with npm"}
    api.answer("POST /api/agents", {**AGENT, "capabilities": missing}, status=201)
    result = run("agents", "add", "demo", "--runtime", "codex", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"warning: {missing['problem']}\n"


def test_options_that_are_not_json_are_wrong_usage(run: Run) -> None:
    result = run("agents", "add", "a", "--runtime", "codex", "--options", "{")
    assert result.exit_code == ExitCode.usage


def test_agents_list_is_a_table(api: ApiServer, run: Run) -> None:
    why = {"problem": "no codex", "whatToDo": "install it"}
    ill = {**IDLE, "name": "x", "parked": True, "problem": why}
    api.answer("GET /api/agents", {"agents": [AGENT, ill]})
    assert run("agents", "list", "--url", api.url).stdout.splitlines() == [
        "AGENT  RUNTIME    STATUS         RUN",
        "demo   rehearsal  running        run_1",
        "x      rehearsal  idle (parked)  -",
        "x: no codex; install it",
    ]


@pytest.mark.req("R12", "R15")
def test_stop_names_the_run_that_it_saw(api: ApiServer, run: Run) -> None:
    api.answer("GET /api/agents/demo", AGENT)
    call = "POST /api/agents/demo/control"
    api.answer(call, {"result": "stopping"}, status=202)
    api.cause(
        call,
        ("s.1", "activity", line("run_ended", "another", "run_0")),
        ("s.2", "activity", line("stopping", "Stopping the current run…")),
        ("", "activity", line("progress", "late words")),
        ("s.3", "activity", line("run_ended", "Interrupted by @ann")),
    )
    result = run("stop", "demo", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Stopping the current run…",
        "Interrupted by @ann",
    ]
    (post,) = api.seen(call)
    assert post.body == {"runId": "run_1", "action": "interrupt_current_run"}


def test_a_stop_that_the_server_could_not_record_is_told_as_such(
    api: ApiServer, run: Run
) -> None:
    api.answer("GET /api/agents/demo", AGENT)
    call = "POST /api/agents/demo/control"
    api.answer(call, {"result": "stopping", "recorded": False}, status=202)
    result = run("stop", "demo", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert "keeps no record" in result.stderr


def test_there_is_nothing_to_stop_in_an_idle_agent(api: ApiServer, run: Run) -> None:
    api.answer("GET /api/agents/demo", IDLE)
    result = run("stop", "demo", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert "there is no run to stop" in result.stderr


def test_a_stale_run_is_refused_in_the_servers_words(api: ApiServer, run: Run) -> None:
    api.answer("GET /api/agents/demo", AGENT)
    detail = "run_1 has ended; run_2 runs now"
    api.problem("POST /api/agents/demo/control", 409, "stale_run", detail)
    result = run("stop", "demo", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert detail in result.stderr


def test_resume_unparks(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/agents/demo/control", {"result": "resumed"})
    api.answer("GET /api/agents/demo", AGENT)
    assert run("resume", "demo", "--url", api.url).stdout == "demo goes on\n"
    assert api.requests[0].body == {"action": "resume"}


def test_resume_says_when_the_agent_fails_again(
    api: ApiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentteam_supervisor.cli.control.RESUMED", 0)
    api.answer("POST /api/agents/demo/control", {"result": "resumed"})
    why = {"problem": "it is not installed", "whatToDo": "install it"}
    api.answer("GET /api/agents/demo", {**IDLE, "parked": True, "problem": why})
    result = run("resume", "@demo", "--url", api.url)
    assert result.exit_code == ExitCode.failed
    assert "it is not installed; install it" in result.stderr


def test_agents_set_changes_what_was_said(
    api: ApiServer, run: Run, tmp_path: Path
) -> None:
    api.answer("PATCH /api/agents/demo", AGENT)
    wanted = str(tmp_path / "none")
    where = ("--workdir", wanted, "--url", api.url)
    result = run("agents", "set", "@demo", *where)
    assert result.exit_code == 0, result.output
    assert api.requests[0].body == {"workdir": wanted}
    assert "does not exist" in result.stderr
    nothing = run("agents", "set", "demo", "--url", api.url)
    assert nothing.exit_code == ExitCode.usage


def test_an_address_that_is_none_is_wrong_usage(run: Run) -> None:
    assert run("status", "--url", "nonsense").exit_code == ExitCode.usage


def test_resolve_says_redeliver_or_dismiss(api: ApiServer, run: Run) -> None:
    api.answer("POST /api/deliveries/dlv_1/resolve", {"id": "dlv_1", "state": "queued"})
    result = run("resolve", "dlv_1", "--as", "redeliver", "--url", api.url)
    assert result.stdout == "dlv_1 queued\n"
    assert api.requests[0].body == {"as": "redeliver"}
    assert run("resolve", "dlv_1", "--as", "forget").exit_code == ExitCode.usage


@pytest.mark.parametrize(
    ("state", "note", "said", "code"),
    [
        ("cancelled", "", "dlv_1 cancelled", ExitCode.ok),
        ("queued", "too late to withdraw: it has it", "too late", ExitCode.failed),
        ("surfaced", "", "too late", ExitCode.failed),
    ],
)
def test_a_withdrawal_waits_for_the_daemon_to_say_whether_it_came_in_time(
    api: ApiServer, run: Run, state: str, note: str, said: str, code: ExitCode
) -> None:
    asked = {"id": "dlv_1", "state": "queued", "history": [{"state": "queued"}]}
    api.answer("POST /api/deliveries/dlv_1/resolve", asked, status=202)
    entry = {"state": state, "note": note}
    told = {**asked, "state": state, "history": [{"state": "queued"}, entry]}
    api.answer("GET /api/deliveries/dlv_1", asked, told)
    result = run("resolve", "dlv_1", "--as", "dismiss", "--url", api.url)
    assert (said in result.output, result.exit_code) == (True, code)


@pytest.mark.parametrize(
    ("flag", "outcome"), [([], "allowed-once"), (["--reject"], "rejected")]
)
def test_approve_allows_once_or_rejects(
    api: ApiServer, run: Run, flag: list[str], outcome: str
) -> None:
    api.answer("POST /api/approvals/apr_1/decision", {"id": "apr_1"})
    result = run("approve", "apr_1", *flag, "--url", api.url)
    assert result.stdout == f"apr_1: {outcome}\n"
    assert api.requests[0].body == {"outcome": outcome}


def test_approvals_shows_what_is_asked_and_how_to_answer(
    api: ApiServer, run: Run
) -> None:
    ask = {"id": "apr_1", "toolName": "shell", "input": "rm x", "state": "pending"}
    api.answer("GET /api/approvals", {"approvals": [ask]})
    assert run("approvals", "--url", api.url).stdout.splitlines() == [
        "apr_1 shell: decide with `agentteam approve apr_1`",
        "  rm x",
    ]


def test_watch_shows_one_agent_only_and_lets_its_words_flow(
    api: ApiServer, run: Run
) -> None:
    api.answer("GET /api/agents/demo", AGENT)
    api.answer("GET /api/agents", {"agents": [AGENT]})
    api.answer("GET /api/targets", {"targets": [{"id": "tgt_1", "name": "@demo"}]})
    api.emit("s.1", "activity", {**line("notice", "no"), "agentId": "agt_2"})
    api.emit("s.2", "activity", line("started", "Working"))
    api.emit("", "activity", line("progress", "one "))
    api.emit("", "activity", line("progress", "two\x1b[2J"))
    api.emit("s.3", "agent", AGENT)
    api.emit("s.4", "agent", AGENT)  # nothing new
    message = {"target": "tgt_1", "targetSeq": 4, "body": "hi"}
    author = {"kind": "agent", "name": "demo"}
    api.emit("s.5", "message", {**message, "author": author})
    api.emit("s.6", "gap", {})
    result = run("watch", "demo", "--limit", "6", "--url", api.url)
    assert result.stdout.splitlines() == [
        "demo: Working",
        "demo ... one two?[2J",
        "demo: running",
        "[@demo 4] demo: hi",
        "(some events were missed; `agentteam messages` has the messages)",
    ]


def test_who_removes_an_agent_hears_where_its_history_is(
    api: ApiServer, run: Run
) -> None:
    api.answer("GET /api/agents/ada", {**IDLE, "target": {"id": "tgt_7", "name": "@a"}})
    api.answer("DELETE /api/agents/ada", None, status=200)
    result = run("agents", "rm", "@ada", "--url", api.url)
    assert "agentteam messages tgt_7" in result.stdout
    assert "agentteam replay agt_1" in result.stdout
    gone = {"type": "unknown_target", "detail": "removed; see tgt_7", "removed": {}}
    api.answer("GET /api/targets/@ada/messages", gone, status=404)
    result = run("messages", "ada", "--url", api.url)
    assert result.stderr == "error: removed; see tgt_7\n"


def test_watch_gives_json_for_programs(api: ApiServer, run: Run) -> None:
    api.emit("s.1", "agent", AGENT)
    result = run("watch", "--limit", "1", "--json", "--url", api.url)
    event = json.loads(result.stdout)
    assert event == {"event": "agent", "id": "s.1", "data": AGENT}


@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        ("GET /api/agents", ["agents", "list"], {"agents": []}),
        ("DELETE /api/agents/a", ["agents", "rm", "a"], {}),
        ("POST /api/agents/a/control", ["resume", "a"], {"result": "resumed"}),
        ("GET /api/approvals", ["approvals"], {"approvals": []}),
        ("POST /api/approvals/x/decision", ["approve", "x"], {"id": "x"}),
        (
            "POST /api/deliveries/d/resolve",
            ["resolve", "d", "--as", "dismiss"],
            {"id": "d", "state": "cancelled"},
        ),
        (
            "GET /api/targets/@a/messages",
            ["messages", "@a", "--after", "0"],
            {"messages": [], "head": 0},
        ),
        ("POST /api/agents", ["agents", "add", "a", "--runtime", "r"], {"id": "a"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_json_is_one_object_on_one_line(
    api: ApiServer, run: Run, call: str, arguments: list[str], answer: dict[str, Any]
) -> None:
    api.answer(call, answer)
    api.answer("GET /api/agents/a", IDLE)
    result = run(*arguments, "--json", "--url", api.url)
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stdout.count("\n") == 1


def test_status_does_not_tell_to_start_a_daemon_that_up_runs(
    api: ApiServer, run: Run, tmp_path: Path
) -> None:
    away = {"problem": "no daemon is connected", "whatToDo": "start one"}
    agent = {**AGENT, "problem": away, "daemon": {"connected": False}}
    api.answer("GET /healthz", {})
    api.answer("GET /api/agents", {"agents": [agent]})
    api.answer("GET /api/approvals", {"approvals": []})
    for own in (True, False):
        with announced(tmp_path, ServerRecord(api.url, 1, "", "", own)):
            shown = run("status", "--state-dir", str(tmp_path)).stdout
        assert ("start one" in shown) is not own
        assert ("has trouble" in shown) is own


def test_status_shows_agents_and_what_waits(api: ApiServer, run: Run) -> None:
    api.answer("GET /healthz", {})
    api.answer("GET /api/agents", {"agents": [AGENT]})
    api.answer("GET /api/approvals", {"approvals": [{"id": "apr_1"}]})
    result = run("status", "--url", api.url)
    assert result.stdout.splitlines() == [
        api.url,
        "AGENT  RUNTIME    STATUS   RUN",
        "demo   rehearsal  running  run_1",
        "1 waiting for approval: see `agentteam approvals`",
    ]


def test_replay_reads_every_page(api: ApiServer, run: Run) -> None:
    api.answer("GET /api/agents/demo/runs", {"runs": []})
    event = {"kind": "run/notice", "text": "x"}
    full = [{"seq": n, "at": "", "event": event} for n in range(1, 1001)]
    rest = [{"seq": 1001, "at": "", "event": event}]
    api.answer("GET /api/agents/demo/journal", {"events": full}, {"events": rest})
    result = run("replay", "demo", "--url", api.url)
    assert len(result.stdout.splitlines()) == 1001
    pages = api.seen("GET /api/agents/demo/journal")
    assert [p.query for p in pages] == ["after=0&limit=1000", "after=1000&limit=1000"]
