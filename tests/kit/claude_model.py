"""
A scripted model: the Messages API on loopback, as far as the real Claude Code needs it.

It plays the scripts of `model_server`, one step per response, and counts and records as
that one does. A script ends with its steps, or where Claude notes that a person
interrupted; from there on the model answers `Heard: TEXT`, TEXT being the last text of
a person.

| step                             | the model                                          |
|----------------------------------|----------------------------------------------------|
| `{"say": TEXT, "ms": N}`         | says TEXT, word by word N ms apart, or at once     |
| `{"stream": N, "ms": M}`         | streams N words, M ms apart                        |
| `{"run": SHELL, "later": true}`  | calls the tool `Bash`, `later` in the background   |
| `{"call": NAME, "with": {...}}`  | calls a tool                                       |
| `{"calls": [call, ...]}`         | makes several of these calls in one response       |
| `{"http": STATUS}`               | answers with an HTTP error                         |
| `{"wait": SECONDS}`              | says nothing, not even a status, for so long       |
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

INTERRUPTED = "[Request interrupted by user"
# How Claude hands on what a person said in the middle of a turn.
FOLDED = "The user sent a new message while you were working:\n"
AFTER_FOLDED = re.compile(r"\n\n(?:This is how Claude Code|IMPORTANT: After)")
USAGE = {"input_tokens": 10, "output_tokens": 5}


@define
class MessagesRequest(ModelRequest):
    """One request as the model saw it; a message with several parts is one text each."""

    @property
    def items(self) -> list[dict[str, Any]]:
        return [m for m in self.body.get("messages") or [] if isinstance(m, dict)]

    @property
    def all_user_texts(self) -> list[str]:
        """All that stands for people's words, the notes of an interrupt included."""
        return [
            _unfold(text)
            for message in self.items
            for text in _texts(message)
            if message["role"] == "user" or FOLDED in text
            if not text.startswith("<system-reminder>") or FOLDED in text
        ]

    @property
    def user_texts(self) -> list[str]:
        return [t for t in self.all_user_texts if not t.startswith(INTERRUPTED)]

    @property
    def assistant_texts(self) -> list[str]:
        return [t for m in self.items if m["role"] == "assistant" for t in _texts(m)]

    @property
    def outputs(self) -> list[str]:
        """What the model was told that its calls gave, in order."""
        return [
            json.dumps(part.get("content"), ensure_ascii=False)
            for message in self.items
            for part in _parts(message)
            if part.get("type") == "tool_result"
        ]

    @property
    def tools(self) -> list[str]:
        return [str(t.get("name")) for t in self.body.get("tools", [])]


class MessagesModel(ModelServer):
    """What the test sees of the model: its address, its scripts, its requests."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, body: dict[str, Any], at: float) -> ModelRequest:
        request = MessagesRequest(len(self.requests) + 1, at, body, {})
        request.step = self._step_of(request)
        self.requests.append(request)
        self._announce()
        return request

    def _step_of(self, request: MessagesRequest) -> Step:
        texts = request.all_user_texts
        heard = {"say": "Heard: " + (request.user_texts or [""])[-1]}
        for place in range(len(texts) - 1, -1, -1):
            if texts[place].startswith(INTERRUPTED):
                return heard
            if (steps := self._script_in(texts[place])) is not None:
                key = ("", f"{texts[:place].count(texts[place])}:{texts[place]}")
                self._taken[key] += 1
                taken = self._taken[key]
                return steps[taken - 1] if taken <= len(steps) else heard
        return heard


@asynccontextmanager
async def open_messages_model() -> AsyncIterator[MessagesModel]:
    """Serve the scripted model on a free loopback port until the context is left."""
    async with trio.open_nursery() as nursery:
        listeners: Sequence[trio.SocketListener] = await trio.open_tcp_listeners(
            0, host="127.0.0.1"
        )
        model = MessagesModel(listeners[0].socket.getsockname()[1])
        serve = partial(_serve_connection, model)
        nursery.start_soon(partial(trio.serve_listeners, serve, list(listeners)))
        yield model
        nursery.cancel_scope.cancel()


async def _serve_connection(model: MessagesModel, stream: trio.SocketStream) -> None:
    """Answer one request; each has a connection of its own."""
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            exchange = _Exchange(stream, h11.Connection(h11.SERVER))
            if (asked := await exchange.receive()) is not None:
                await _answer(model, exchange, *asked)


async def _answer(
    model: MessagesModel, exchange: _Exchange, path: str, body: bytes
) -> None:
    """Play the step, unless the client leaves first."""
    if not body:
        await exchange.nothing()  # it looks whether anybody is there
        return
    if not path.startswith("/v1/messages?"):
        await exchange.json(200, {"input_tokens": 10})
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
        error = {"type": "api_error", "message": "scripted failure"}
        await exchange.json(step["http"], {"type": "error", "error": error})
        request.end = "refused"
        return
    await trio.sleep(step.get("wait", 0))
    await exchange.begin_events()
    await exchange.event("message_start", message=_opened(request))
    if "hang" in step:
        await trio.sleep(step["hang"])
    elif calls := _calls(step, number):
        for index, call in enumerate(calls):
            await _call(exchange, index, call)
    else:
        await _speak(exchange, step)
        if "cut" in step:
            request.end = "cut"
            return
    stop = {"stop_reason": "tool_use" if _calls(step, number) else "end_turn"}
    await exchange.event("message_delta", delta=stop, usage={"output_tokens": 5})
    # From here on a client that leaves has its whole answer.
    request.end = "completed"
    await exchange.event("message_stop")
    await exchange.finish()


def _opened(request: ModelRequest) -> dict[str, Any]:
    return {
        "id": f"msg_{request.number}",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }


async def _speak(exchange: _Exchange, step: Step) -> None:
    block = {"type": "text", "text": ""}
    await exchange.event("content_block_start", index=0, content_block=block)
    for word in _words(step):
        delta = {"type": "text_delta", "text": word}
        await exchange.event("content_block_delta", index=0, delta=delta)
        await trio.sleep(step.get("ms", 0) / 1000)
    if "cut" not in step:
        await exchange.event("content_block_stop", index=0)


async def _call(exchange: _Exchange, index: int, call: dict[str, Any]) -> None:
    block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
    await exchange.event("content_block_start", index=index, content_block=block)
    delta = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
    await exchange.event("content_block_delta", index=index, delta=delta)
    await exchange.event("content_block_stop", index=index)


def _words(step: Step) -> list[str]:
    if count := step.get("stream") or step.get("cut"):
        return [f"tok{n} " for n in range(count)]
    text = str(step.get("say", ""))
    return re.findall(r"\S+\s*", text) if step.get("ms") else [text]


def _calls(step: Step, number: int) -> list[dict[str, Any]]:
    wanted = step.get("calls") or ([step] if {"run", "call"} & step.keys() else [])
    return [
        {"id": f"toolu_{number}_{index}"} | _function(call)
        for index, call in enumerate(wanted)
    ]


def _function(call: Step) -> dict[str, Any]:
    if "run" in call:
        given = {"command": call["run"], "description": "scripted"}
        if call.get("later"):
            given["run_in_background"] = True
        return {"name": "Bash", "input": given}
    return {"name": call["call"], "input": call.get("with", {})}


@define
class _Exchange:
    """One request and its answer."""

    stream: trio.SocketStream
    connection: h11.Connection

    async def receive(self) -> tuple[str, bytes] | None:
        """Read a request: its path, its body; None when there was none."""
        path, body = "", bytearray()
        while True:
            match self.connection.next_event():
                case h11.NEED_DATA:
                    self.connection.receive_data(await self.stream.receive_some())
                case h11.Data(data=data):
                    body += data
                case h11.Request(target=target):
                    path = target.decode()
                case h11.EndOfMessage():
                    return path, bytes(body)
                case _:
                    return None

    async def json(self, status: int, body: dict[str, Any]) -> None:
        headers = [("content-type", "application/json"), ("connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=json.dumps(body).encode()))
        await self._send(h11.EndOfMessage())

    async def nothing(self) -> None:
        headers = [("content-length", "0"), ("connection", "close")]
        await self._send(h11.Response(status_code=200, headers=headers))
        await self._send(h11.EndOfMessage())

    async def begin_events(self) -> None:
        headers = [("content-type", "text/event-stream"), ("connection", "close")]
        await self._send(h11.Response(status_code=200, headers=headers))

    async def event(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields})
        await self._send(h11.Data(data=f"event: {kind}\ndata: {data}\n\n".encode()))

    async def finish(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        if data := self.connection.send(event):
            await self.stream.send_all(data)


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content or [] if isinstance(part, dict)]


def _texts(message: dict[str, Any]) -> list[str]:
    return [p["text"] for p in _parts(message) if p.get("type") == "text"]


def _unfold(text: str) -> str:
    """Take a person's words out of what Claude wraps around them in mid-turn."""
    if FOLDED not in text:
        return text.rstrip("\n")  # it ends a text so when it merges it with another
    return AFTER_FOLDED.split(text.split(FOLDED, 1)[1])[0]
