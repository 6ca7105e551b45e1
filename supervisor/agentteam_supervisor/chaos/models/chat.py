"""
A scripted model: chat completions on loopback, as far as the real OpenCode needs them.

It plays the scripts of `responses`, one step per response, and counts and records as
that one does. Only the last user message of a request is looked at for a script: where
it has none left, the model answers `Heard: TEXT` with that message.

| step                             | the model                                          |
|----------------------------------|----------------------------------------------------|
| `{"say": TEXT, "ms": N}`         | says TEXT, word by word N ms apart, or at once     |
| `{"stream": N, "ms": M}`         | streams N words, M ms apart                        |
| `{"run": SHELL}`                 | calls the tool `bash`                              |
| `{"call": NAME, "with": {...}}`  | calls a tool                                       |
| `{"calls": [call, ...]}`         | makes several of these calls in one response       |
| `{"http": STATUS}`               | answers with an HTTP error                         |
| `{"hang": SECONDS}`              | begins a response and falls silent                 |
| `{"cut": N}`                     | streams N words, then cuts the connection          |
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from attrs import define

from agentteam_runtimes import jsonfields
from agentteam_supervisor.chaos.models.exchange import Exchange, serve_one
from agentteam_supervisor.chaos.models.responses import (
    ModelRequest,
    ModelServer,
    Step,
    calls_of,
    open_model,
    play,
    words_of,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@define
class ChatRequest(ModelRequest):
    """One request as the model saw it; a message with several parts is one text each."""

    @property
    def items(self) -> list[dict[str, Any]]:
        return [*jsonfields.objects(self.body, "messages")]

    @property
    def all_user_texts(self) -> list[str]:
        return [t for m in self.items if m["role"] == "user" for t in _texts(m)]

    @property
    def user_texts(self) -> list[str]:
        return self.all_user_texts

    @property
    def assistant_texts(self) -> list[str]:
        return [t for m in self.items if m["role"] == "assistant" for t in _texts(m)]

    @property
    def outputs(self) -> list[str]:
        return ["".join(_texts(m)) for m in self.items if m["role"] == "tool"]

    @property
    def tools(self) -> list[str]:
        return [str(t["function"]["name"]) for t in self.body.get("tools", [])]

    @property
    def system(self) -> str:
        return "".join(
            "".join(_texts(m))
            for m in self.items
            if m["role"] in ("system", "developer")
        )


class ChatModel(ModelServer):
    request_kind = ChatRequest

    def _next_step(self, request: ModelRequest) -> Step:
        places = [n for n, m in enumerate(request.items) if m["role"] == "user"]
        said = "".join(_texts(request.items[places[-1]])) if places else ""
        heard = {"say": f"Heard: {said}"}
        steps = self._script_in(said)
        if steps is None:
            return heard
        return self._step_of(steps, ("", f"{places[-1]}:{said}"), heard)


def open_chat_model() -> AbstractAsyncContextManager[ChatModel]:
    """Serve the scripted model on a free loopback port until the context is left."""
    return open_model(ChatModel, serve_connection)


async def serve_connection(model: ChatModel, stream: trio.SocketStream) -> None:
    await serve_one(partial(_answer, model), stream)


async def _answer(model: ChatModel, exchange: Exchange, path: str, body: bytes) -> None:
    """Play the step, unless the client leaves first."""
    if not body:
        await exchange.json(200, {"object": "list", "data": [{"id": "scripted"}]})
        return
    await play(model, exchange.stream, json.loads(body), partial(_play, exchange))


async def _play(exchange: Exchange, request: ModelRequest) -> None:
    step, number = request.step, request.number
    if "http" in step:
        await exchange.json(step["http"], {"error": {"message": "scripted failure"}})
        request.end = "refused"
        return
    await exchange.begin_events()
    if "hang" in step:
        await trio.sleep(step["hang"])
    elif calls := _calls(step, number):
        await _chunk(
            exchange, {"role": "assistant", "content": None, "tool_calls": calls}
        )
    else:
        await _chunk(exchange, {"role": "assistant", "content": ""})
        for word in words_of(step):
            await _chunk(exchange, {"content": word})
            await trio.sleep(step.get("ms", 0) / 1000)
        if "cut" in step:
            request.end = "cut"
            return
    await _chunk(exchange, {}, "tool_calls" if _calls(step, number) else "stop")
    request.end = "completed"
    await exchange.data("[DONE]")
    await exchange.finish()


async def _chunk(
    exchange: Exchange, delta: dict[str, Any], finish: str | None = None
) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chat", "object": "chat.completion.chunk", "created": 1}
    whole = chunk | {"model": "scripted", "choices": [choice]}
    if finish:
        whole |= {"usage": USAGE}
    await exchange.data(json.dumps(whole))


def _calls(step: Step, number: int) -> list[dict[str, Any]]:
    return [
        {"index": index, "id": f"call_{number}_{index}", "type": "function"}
        | {"function": _function(call)}
        for index, call in enumerate(calls_of(step))
    ]


def _function(call: Step) -> dict[str, str]:
    if "run" in call:
        given = {"command": call["run"], "description": "scripted"}
        return {"name": "bash", "arguments": json.dumps(given)}
    return {"name": call["call"], "arguments": json.dumps(call.get("with", {}))}


def _texts(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [jsonfields.text(p, "text") for p in jsonfields.objects(message, "content")]
