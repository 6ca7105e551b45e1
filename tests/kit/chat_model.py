"""
A scripted model: chat completions on loopback, as far as the real OpenCode needs them.

It plays the scripts of `model_server`, one step per response, and counts and records as
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

import contextlib
import json
import re
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
import trio
from attrs import define
from tests.kit.model_server import ModelRequest, ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@define
class ChatRequest(ModelRequest):
    """One request as the model saw it; a message with several parts is one text each."""

    @property
    def items(self) -> list[dict[str, Any]]:
        return [m for m in self.body.get("messages") or [] if isinstance(m, dict)]

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
    """What the test sees of the model: its address, its scripts, its requests."""

    def take(self, body: dict[str, Any], at: float) -> ModelRequest:
        request = ChatRequest(len(self.requests) + 1, at, body, {})
        request.step = self._step_of(request)
        self.requests.append(request)
        self._announce()
        return request

    def _step_of(self, request: ChatRequest) -> Step:
        places = [n for n, m in enumerate(request.items) if m["role"] == "user"]
        said = "".join(_texts(request.items[places[-1]])) if places else ""
        steps = self._script_in(said)
        if steps is not None:
            key = ("", f"{places[-1]}:{said}")
            self._taken[key] += 1
            if self._taken[key] <= len(steps):
                return steps[self._taken[key] - 1]
        return {"say": f"Heard: {said}"}


@asynccontextmanager
async def open_chat_model() -> AsyncIterator[ChatModel]:
    """Serve the scripted model on a free loopback port until the context is left."""
    async with trio.open_nursery() as nursery:
        listeners: Sequence[trio.SocketListener] = await trio.open_tcp_listeners(
            0, host="127.0.0.1"
        )
        model = ChatModel(listeners[0].socket.getsockname()[1])
        serve = partial(_serve_connection, model)
        nursery.start_soon(partial(trio.serve_listeners, serve, list(listeners)))
        yield model
        nursery.cancel_scope.cancel()


async def _serve_connection(model: ChatModel, stream: trio.SocketStream) -> None:
    """Answer one request; each has a connection of its own."""
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            exchange = _Exchange(stream, h11.Connection(h11.SERVER))
            if (body := await exchange.receive()) is not None:
                await _answer(model, exchange, body)


async def _answer(model: ChatModel, exchange: _Exchange, body: bytes) -> None:
    """Play the step, unless the client leaves first."""
    if not body:
        await exchange.json(200, {"object": "list", "data": [{"id": "scripted"}]})
        return
    request = model.take(json.loads(body), trio.current_time())
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, exchange.stream, nursery.cancel_scope)
            await _play(request, exchange)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client left
    if request.end == "open":
        request.end = "client gone"
    model.close_request(request, trio.current_time())


async def _watch(stream: trio.SocketStream, playing: trio.CancelScope) -> None:
    await stream.receive_some(1)
    playing.cancel()


async def _play(request: ModelRequest, exchange: _Exchange) -> None:
    step, number = request.step, request.number
    if "http" in step:
        await exchange.json(step["http"], {"error": {"message": "scripted failure"}})
        request.end = "refused"
        return
    await exchange.begin_events()
    if "hang" in step:
        await trio.sleep(step["hang"])
    elif calls := _calls(step, number):
        await exchange.chunk(
            {"role": "assistant", "content": None, "tool_calls": calls}
        )
    else:
        await exchange.chunk({"role": "assistant", "content": ""})
        for word in _words(step):
            await exchange.chunk({"content": word})
            await trio.sleep(step.get("ms", 0) / 1000)
        if "cut" in step:
            request.end = "cut"
            return
    await exchange.chunk({}, "tool_calls" if _calls(step, number) else "stop")
    request.end = "completed"
    await exchange.finish()


def _words(step: Step) -> list[str]:
    if count := step.get("stream") or step.get("cut"):
        return [f"tok{n} " for n in range(count)]
    text = str(step.get("say", ""))
    return re.findall(r"\S+\s*", text) if step.get("ms") else [text]


def _calls(step: Step, number: int) -> list[dict[str, Any]]:
    wanted = step.get("calls") or ([step] if {"run", "call"} & step.keys() else [])
    return [
        {"index": index, "id": f"call_{number}_{index}", "type": "function"}
        | {"function": _function(call)}
        for index, call in enumerate(wanted)
    ]


def _function(call: Step) -> dict[str, str]:
    if "run" in call:
        given = {"command": call["run"], "description": "scripted"}
        return {"name": "bash", "arguments": json.dumps(given)}
    return {"name": call["call"], "arguments": json.dumps(call.get("with", {}))}


@define
class _Exchange:
    """One request and its answer."""

    stream: trio.SocketStream
    connection: h11.Connection

    async def receive(self) -> bytes | None:
        """Read a request's body; None when there was no request."""
        body = bytearray()
        while True:
            match self.connection.next_event():
                case h11.NEED_DATA:
                    self.connection.receive_data(await self.stream.receive_some())
                case h11.Data(data=data):
                    body += data
                case h11.Request():
                    continue
                case h11.EndOfMessage():
                    return bytes(body)
                case _:
                    return None

    async def json(self, status: int, body: dict[str, Any]) -> None:
        headers = [("content-type", "application/json"), ("connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=json.dumps(body).encode()))
        await self._send(h11.EndOfMessage())

    async def begin_events(self) -> None:
        headers = [("content-type", "text/event-stream"), ("connection", "close")]
        await self._send(h11.Response(status_code=200, headers=headers))

    async def chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "chat", "object": "chat.completion.chunk", "created": 1}
        whole = chunk | {"model": "scripted", "choices": [choice]}
        if finish:
            whole |= {"usage": USAGE}
        await self._data(json.dumps(whole))

    async def finish(self) -> None:
        await self._data("[DONE]")
        await self._send(h11.EndOfMessage())

    async def _data(self, text: str) -> None:
        await self._send(h11.Data(data=f"data: {text}\n\n".encode()))

    async def _send(self, event: h11.Event) -> None:
        if data := self.connection.send(event):
            await self.stream.send_all(data)


def _texts(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [str(p.get("text", "")) for p in content or [] if isinstance(p, dict)]
