"""Routes of agents and their controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.control import ControlAction, ControlResult, Method
from agentteam_protocol.ids import RunId
from agentteam_supervisor.server import activities, agents, controls, runs, targets
from agentteam_supervisor.server.bodies import newest, page, read_body
from agentteam_supervisor.server.commands import (
    commit,
    look,
    look_until,
    respond,
    services,
    unwritable,
)
from agentteam_supervisor.server.idempotency import Reply
from agentteam_supervisor.server.interventions import check_intervention
from agentteam_supervisor.server.options import check_options, check_workdir
from agentteam_supervisor.server.problems import Problem, conflict, invalid
from agentteam_supervisor.server.writer import StoreUnwritable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agentteam_supervisor.server.bodies import Fields
    from agentteam_supervisor.server.commands import Services
    from agentteam_supervisor.server.transaction import Tx

_SETTINGS = ("name", "runtime", "workdir", "model", "approvalPolicy", "autoReply")


_CHANGEABLE = (*(name for name in _SETTINGS if name != "runtime"), "options")


async def create_agent(request: Request) -> Response:
    fields = await read_body(request, *_SETTINGS, "options")
    settings = agents.Settings(
        name=targets.check_name(fields.text("name")),
        runtime=fields.line("runtime"),
        workdir=check_workdir(fields.plain("workdir")),
        model=fields.plain("model"),
        approval_policy=_policy(fields, ApprovalPolicy.ask),
        auto_reply=fields.flag("autoReply", True),
        options=check_options(fields.mapping("options")),
    )
    return await commit(
        request,
        fields,
        lambda tx: Reply(201, agents.view(tx, agents.create(tx, settings))),
    )


async def list_agents(request: Request) -> Response:
    after, limit = page(request)

    def view(tx: Tx) -> Any:
        there = agents.living(tx, after, limit)
        return {"agents": [agents.view(tx, agent) for agent in there]}

    served = services(request)
    body = await served.store.read(view)
    body["agents"] = [_shown(served, agent) for agent in body["agents"]]
    if (problem := served.store.unstored.problem) is not None:
        body["problem"] = problem
    return respond(request, Reply(200, body))


async def get_agent(request: Request) -> Response:
    ref = request.path_params["agent"]
    served = services(request)
    agent = await served.store.read(lambda tx: agents.view(tx, agents.find(tx, ref)))
    return respond(request, Reply(200, _shown(served, agent)))


def _shown(served: Services, agent: dict[str, Any]) -> dict[str, Any]:
    return served.store.unstored.over(agent, served.link.connected)


async def change_agent(request: Request) -> Response:
    fields = await read_body(request, *_CHANGEABLE)
    ref = request.path_params["agent"]
    values: dict[str, Any] = {}
    if "name" in fields:
        values["name"] = targets.check_name(fields.text("name"))
    if "model" in fields.data:
        values["model"] = fields.plain("model")
    if "workdir" in fields.data:
        values["workdir"] = check_workdir(fields.plain("workdir"))
    if "options" in fields.data:
        values["options"] = check_options(fields.mapping("options"))
    if "approvalPolicy" in fields:
        values["approval_policy"] = _policy(fields, None)
    if "autoReply" in fields:
        values["auto_reply"] = fields.flag("autoReply", True)

    def change(tx: Tx) -> Reply:
        agent = agents.change(tx, agents.find(tx, ref), values)
        return Reply(200, agents.view(tx, agent))

    return await commit(request, fields, change)


async def delete_agent(request: Request) -> Response:
    ref = request.path_params["agent"]

    def forget(tx: Tx) -> Reply:
        agents.delete(tx, agents.find(tx, ref))
        return Reply(204)

    return respond(request, await services(request).store.write(forget))


async def control_agent(request: Request) -> Response:
    """Stop or resume: no message comes of it and no frontier moves."""
    fields = await read_body(request, "action", "runId", "who")
    ref = request.path_params["agent"]
    action = fields.choice("action", ControlAction, "unknown_action", None)
    who = fields.line("who", "user")
    stopping = action is ControlAction.interrupt_current_run
    run = RunId(_run_id(fields)) if stopping else None

    def control(tx: Tx) -> Reply:
        agent = agents.find(tx, ref)
        if run is None:
            control, result = controls.resume(tx, agent, who), ControlResult.resumed
        else:
            control, result = controls.stop(tx, agent, run, who), ControlResult.stopping
        return Reply(202, {"result": result, "control": control})

    try:
        return await commit(request, fields, control)
    except StoreUnwritable as exc:
        if run is None:
            raise
        return await _stop_unstored(request, run, who, exc)


async def _stop_unstored(
    request: Request, run: RunId, who: str, why: StoreUnwritable
) -> Response:
    """Have the connected daemon stop it at once; `recorded` says that nobody wrote."""
    served, ref = services(request), request.path_params["agent"]
    agent = await served.store.read(lambda tx: agents.find(tx, ref)["id"])
    unstored = served.store.unstored
    if unstored.runs(agent) is False:
        raise controls.came_late(ControlResult.not_running, run) from why
    try:
        answer = await served.link.ask(agent, "stop", {"runId": run, "who": who})
    except Problem as exc:
        raise unwritable(request, why, "the run was not seen to stop") from exc
    result = answer.body.get("result")
    if result == ControlResult.not_running:
        unstored.ended(agent)
    if result != ControlResult.stopping:
        raise controls.came_late(ControlResult(str(result)), run)
    return respond(request, Reply(202, {"result": result, "recorded": False}))


async def intervene(request: Request) -> Response:
    fields = await read_body(
        request,
        "method",
        "messages",
        "lane",
        "wakeup",
        "cause",
        "keepInbox",
        "task",
        "wait",
    )
    ref = request.path_params["agent"]
    method = fields.choice("method", Method, "unknown_method", None)
    arguments = check_intervention(method, fields)
    if method is Method.when_idle:
        return await _when_idle(request, ref, arguments["wait"])

    def pass_on(tx: Tx) -> Reply:
        agent = agents.find(tx, ref)
        if method is Method.run_maintenance and agent["status"]["running"]:
            detail = "maintenance needs a true idle; wait with `when_idle` first"
            raise conflict("not_idle", detail)
        control = controls.intervene(tx, agent, method, arguments)
        return Reply(202, {"result": "accepted", "control": control})

    return await commit(request, fields, pass_on)


async def list_activity(request: Request) -> Response:
    after, limit = page(request)
    last = newest(request)
    ref = request.path_params["agent"]

    def view(tx: Tx) -> Any:
        agent = agents.find_past(tx, ref)
        if last is not None:
            return {"items": activities.newest(tx, agent["id"], last)}
        return {"items": activities.after(tx, agent["id"], after, limit)}

    return await look(request, view)


async def list_runs(request: Request) -> Response:
    after, limit = page(request)
    last = newest(request)
    ref = request.path_params["agent"]

    def view(tx: Tx) -> Any:
        agent = agents.find_past(tx, ref)
        if last is not None:
            return {"runs": runs.newest(tx, agent["id"], last)}
        return {"runs": runs.after(tx, agent["id"], after, limit)}

    return await look(request, view)


async def read_journal(request: Request) -> Response:
    """Ask the daemon: the journal is its own, the server keeps no copy."""
    after, limit = page(request)
    ref = request.path_params["agent"]
    served = services(request)
    agent = await served.store.read(lambda tx: agents.find_past(tx, ref)["id"])
    asked = {"after": after, "limit": limit}
    answer = await served.link.ask(agent, "journal", asked)
    return respond(request, Reply(200, {"events": [], **answer.body}))


async def _when_idle(request: Request, ref: str, seconds: float) -> Response:
    def view(tx: Tx) -> tuple[bool, Any]:
        idle = not agents.find(tx, ref)["status"]["running"]
        return idle, {"idle": idle}

    return await look_until(request, seconds, view)


def _policy(fields: Fields, default: ApprovalPolicy | None) -> ApprovalPolicy:
    slug = "unknown_approval_policy"
    return fields.choice("approvalPolicy", ApprovalPolicy, slug, default)


def _run_id(fields: Fields) -> str:
    if "runId" not in fields:
        detail = "say which run to stop in 'runId'; `currentRun.id` of the agent has it"
        raise invalid("run_required", detail)
    return fields.text("runId")
