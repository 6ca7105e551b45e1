"""
A scripted model: the Messages API on loopback, as far as the real Claude Code needs it.

It plays the scripts of `responses`, one step per response, and counts and records as
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

import json
import re
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
        return [*jsonfields.objects(self.body, "messages")]

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
    request_kind = MessagesRequest
    interrupted = INTERRUPTED

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def open_messages_model() -> AbstractAsyncContextManager[MessagesModel]:
    """Serve the scripted model on a free loopback port until the context is left."""
    return open_model(MessagesModel, serve_connection)


async def serve_connection(model: MessagesModel, stream: trio.SocketStream) -> None:
    await serve_one(partial(_answer, model), stream)


async def _answer(
    model: MessagesModel, exchange: Exchange, path: str, body: bytes
) -> None:
    """Play the step, unless the client leaves first."""
    if not body:
        await exchange.nothing()  # it looks whether anybody is there
        return
    if not path.startswith("/v1/messages?"):
        await exchange.json(200, {"input_tokens": 10})
        return
    await play(model, exchange.stream, json.loads(body), partial(_play, exchange))


async def _play(exchange: Exchange, request: ModelRequest) -> None:
    step, number = request.step, request.number
    if "http" in step:
        error = {"type": "api_error", "message": "scripted failure"}
        await exchange.json(step["http"], {"type": "error", "error": error})
        request.end = "refused"
        return
    await trio.sleep(step.get("wait", 0))
    await exchange.begin_events()
    await _event(exchange, "message_start", message=_opened(request))
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
    await _event(exchange, "message_delta", delta=stop, usage={"output_tokens": 5})
    # From here on a client that leaves has its whole answer.
    request.end = "completed"
    await _event(exchange, "message_stop")
    await exchange.finish()


async def _event(exchange: Exchange, kind: str, **fields: Any) -> None:
    await exchange.data(json.dumps({"type": kind, **fields}), kind)


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


async def _speak(exchange: Exchange, step: Step) -> None:
    block = {"type": "text", "text": ""}
    await _event(exchange, "content_block_start", index=0, content_block=block)
    for word in words_of(step):
        delta = {"type": "text_delta", "text": word}
        await _event(exchange, "content_block_delta", index=0, delta=delta)
        await trio.sleep(step.get("ms", 0) / 1000)
    if "cut" not in step:
        await _event(exchange, "content_block_stop", index=0)


async def _call(exchange: Exchange, index: int, call: dict[str, Any]) -> None:
    block: dict[str, Any] = {"type": "tool_use", "input": {}}
    block |= {"id": call["id"], "name": call["name"]}
    await _event(exchange, "content_block_start", index=index, content_block=block)
    delta = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
    await _event(exchange, "content_block_delta", index=index, delta=delta)
    await _event(exchange, "content_block_stop", index=index)


def _calls(step: Step, number: int) -> list[dict[str, Any]]:
    return [
        {"id": f"toolu_{number}_{index}"} | _function(call)
        for index, call in enumerate(calls_of(step))
    ]


def _function(call: Step) -> dict[str, Any]:
    if "run" in call:
        given = {"command": call["run"], "description": "scripted"}
        if call.get("later"):
            given["run_in_background"] = True
        return {"name": "Bash", "input": given}
    return {"name": call["call"], "input": call.get("with", {})}


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [*jsonfields.objects(message, "content")]


def _texts(message: dict[str, Any]) -> list[str]:
    return [p["text"] for p in _parts(message) if p.get("type") == "text"]


def _unfold(text: str) -> str:
    """Take a person's words out of what Claude wraps around them in mid-turn."""
    if FOLDED not in text:
        return text.rstrip("\n")  # it ends a text so when it merges it with another
    return AFTER_FOLDED.split(text.split(FOLDED, 1)[1])[0]
