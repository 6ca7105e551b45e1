"""
A scripted model: the Responses API on loopback, as far as the real Codex needs it.

Whoever talks to the runtime says what the model does. A script is a list of steps, one per model response;
it travels in a user message, as `#do [step, ...]`, or is put under a phrase with
`ModelServer.script`. Each request takes the next step of the newest script in its
input. A script ends with its steps, or where Codex notes that the turn was aborted;
from there on the model answers `Heard: TEXT`, TEXT being the last user message, so
that the answer itself shows what the model was told.

| step                             | the model                                          |
|----------------------------------|----------------------------------------------------|
| `{"say": TEXT, "ms": N}`         | says TEXT, word by word N ms apart, or at once     |
| `{"stream": N, "ms": M}`         | streams N words, M ms apart                        |
| `{"run": SHELL, "yield_ms": N}`  | calls the shell tool                               |
| `{"call": NAME, "with": {...}}`  | calls a function tool, `"in"` a namespace          |
| `{"calls": [call, ...]}`         | makes several of these calls in one response       |
| `{"patch": TEXT}`                | calls the freeform tool `apply_patch`              |
| `{"http": STATUS}`               | answers with an HTTP error                         |
| `{"hang": SECONDS}`              | begins a response and falls silent                 |
| `{"cut": N}`                     | streams N words, then cuts the connection          |

With `"after": SECONDS` it thinks so long before it does any of these.

Every request is recorded with what the model saw in it and how its answer ended.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import h11
import trio
from attrs import define, field

from agentteam_runtimes import jsonfields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

SCRIPT = re.compile(r"(?<!> )#do (?=\[)")  # not one that a note of ours quotes
ABORTED = "<turn_aborted>"
CALLS = frozenset({"function_call", "custom_tool_call"})
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}

Step = dict[str, Any]
M = TypeVar("M", bound="ModelServer")


def do(*steps: Step) -> str:
    """Write a script as the text of a user message."""
    return "#do " + json.dumps(list(steps))


@define
class ModelRequest:
    """One request of the runtime, as the model saw it."""

    number: int
    at: float
    body: dict[str, Any] = field(repr=False)
    step: Step
    ended_at: float | None = None
    end: str = "open"  # completed | refused | cut | client gone

    @property
    def user_texts(self) -> list[str]:
        """All user messages in order, the runtime's own context blocks left out."""
        return [t for t in self.all_user_texts if not t.startswith(("<", "# AGENTS"))]

    @property
    def all_user_texts(self) -> list[str]:
        return [_text(i) for i in self.items if _is_message(i, "user")]

    @property
    def assistant_texts(self) -> list[str]:
        return [_text(i) for i in self.items if _is_message(i, "assistant")]

    @property
    def outputs(self) -> list[str]:
        """What the model was told that its calls gave, in order."""
        return [
            json.dumps(i.get("output"), ensure_ascii=False)
            for i in self.items
            if str(i.get("type", "")).endswith("_output")
        ]

    @property
    def tools(self) -> list[str]:
        return [str(t.get("name") or t.get("type")) for t in self.body.get("tools", [])]

    @property
    def items(self) -> list[dict[str, Any]]:
        if isinstance(given := self.body.get("input"), str):
            return [{"type": "message", "role": "user", "content": given}]
        return [*jsonfields.objects(self.body, "input")]


class ModelServer:
    """What one sees of the model: its address, its scripts, its requests."""

    request_kind: type[ModelRequest] = ModelRequest
    interrupted = ABORTED  # how the runtime begins its note of an interrupt

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[ModelRequest] = []
        self._scripts: dict[str, list[Step]] = {}
        self._taken: Counter[tuple[str, str]] = Counter()
        self._changed = trio.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, phrase: str, *steps: Step) -> None:
        """Play these steps after a user message that contains the phrase."""
        self._scripts[phrase] = list(steps)

    def told(self, text: str) -> list[ModelRequest]:
        """The requests in which the model saw a user message with this text."""
        return [r for r in self.requests if any(text in t for t in r.user_texts)]

    async def wait_for_requests(self, count: int) -> ModelRequest:
        """Wait until so many requests came; the last of them."""
        while len(self.requests) < count:
            await self._changed.wait()
        return self.requests[count - 1]

    async def wait_until_told(self, text: str) -> ModelRequest:
        """Wait for the first request that contains this user text."""
        while not (requests := self.told(text)):
            await self._changed.wait()
        return requests[0]

    def take(self, body: dict[str, Any], at: float) -> ModelRequest:
        """Record a request and choose its step."""
        request = self.request_kind(len(self.requests) + 1, at, body, {})
        request.step = self._next_step(request)
        self.requests.append(request)
        self._announce()
        return request

    def close_request(self, request: ModelRequest, at: float) -> None:
        request.ended_at = at
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _next_step(self, request: ModelRequest) -> Step:
        texts = request.all_user_texts
        heard = {"say": "Heard: " + (request.user_texts or [""])[-1]}
        for place in range(len(texts) - 1, -1, -1):
            if texts[place].startswith(self.interrupted):
                return heard
            if (steps := self._script_in(texts[place])) is not None:
                return self._step_of(steps, self._key(request, texts, place), heard)
        return heard

    def _key(
        self, request: ModelRequest, texts: list[str], place: int
    ) -> tuple[str, str]:
        """Name the script's place, so that its steps are counted."""
        thread = str(request.body.get("prompt_cache_key", ""))
        return thread, f"{texts[:place].count(texts[place])}:{texts[place]}"

    def _step_of(self, steps: list[Step], key: tuple[str, str], rest: Step) -> Step:
        """Take the next step of a script; `rest` when it has no more."""
        self._taken[key] += 1
        taken = self._taken[key]
        return steps[taken - 1] if taken <= len(steps) else rest

    def _script_in(self, text: str) -> list[Step] | None:
        if (steps := newest_script(text)) is not None:
            return steps
        return next((s for phrase, s in self._scripts.items() if phrase in text), None)


def newest_script(text: str) -> list[Step] | None:
    """Read the last script of a text; one in the words of another is part of that."""
    steps: list[Step] | None = None
    place = 0
    while found := SCRIPT.search(text, place):
        steps, place = json.JSONDecoder().raw_decode(text, found.end())
    return steps


def open_model_server() -> AbstractAsyncContextManager[ModelServer]:
    """Serve the scripted model on a free loopback port until the context is left."""
    return open_model(ModelServer, serve_connection)


@asynccontextmanager
async def open_model(
    make: Callable[[int], M], serve: Callable[[M, trio.SocketStream], Awaitable[None]]
) -> AsyncGenerator[M]:
    """Serve a scripted model, made of its port, until the context is left."""
    async with trio.open_nursery() as nursery:
        listeners: Sequence[trio.SocketListener] = await trio.open_tcp_listeners(
            0, host="127.0.0.1"
        )
        model = make(listeners[0].socket.getsockname()[1])
        answering = partial(serve, model)
        nursery.start_soon(partial(trio.serve_listeners, answering, list(listeners)))
        yield model
        nursery.cancel_scope.cancel()


async def serve_connection(server: ModelServer, stream: trio.SocketStream) -> None:
    connection = h11.Connection(h11.SERVER)
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            while await _serve_request(server, stream, connection):
                connection.start_next_cycle()


async def _serve_request(
    server: ModelServer, stream: trio.SocketStream, connection: h11.Connection
) -> bool:
    """Answer one request; tell whether the connection can take another."""
    head = await _next_event(stream, connection)
    if not isinstance(head, h11.Request):
        return False
    body = bytearray()
    while isinstance(event := await _next_event(stream, connection), h11.Data):
        body += event.data
    reply = _Reply(stream, connection)
    if head.method == b"GET":
        await reply.json(200, {"object": "list", "data": [], "models": []})
    else:
        await play(server, stream, json.loads(body), partial(_play, reply))
    return connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def _next_event(
    stream: trio.SocketStream, connection: h11.Connection
) -> h11.Event | type[h11.PAUSED]:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await stream.receive_some())
    return event  # type: ignore[return-value]  # NEED_DATA is ruled out above


async def play(
    server: ModelServer,
    stream: trio.SocketStream,
    body: dict[str, Any],
    answer: Callable[[ModelRequest], Awaitable[None]],
) -> None:
    """Play the step of a request, unless the client leaves first."""
    request = server.take(body, trio.current_time())
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, stream, nursery.cancel_scope)
            await answer(request)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client left, or the step cut the connection
    if request.end == "open":
        request.end = "client gone"
    server.close_request(request, trio.current_time())


async def _watch(stream: trio.SocketStream, playing: trio.CancelScope) -> None:
    """End the step when the client closes: it asks nothing before its answer is whole."""
    await stream.receive_some(1)
    playing.cancel()


async def _play(reply: _Reply, request: ModelRequest) -> None:
    step, number = request.step, request.number
    await trio.sleep(step.get("after", 0))
    if "http" in step:
        error = {"message": "scripted failure", "type": "server_error"}
        await reply.json(step["http"], {"error": error})
        request.end = "refused"
        return
    await reply.begin_events()
    await reply.event("response.created", response={"id": f"resp_{number}"})
    if "hang" in step:
        await trio.sleep(step["hang"])
    elif calls := _calls(step, number):
        for index, call in enumerate(calls):
            await reply.event(
                "response.output_item.done", output_index=index, item=call
            )
    else:
        await _speak(reply, step, f"msg_{number}")
        if "cut" in step:
            request.end = "cut"
            await reply.stream.aclose()
            return
    done = {"id": f"resp_{number}", "object": "response", "status": "completed"}
    await reply.event("response.completed", response=done | {"usage": USAGE})
    # From here on a client that leaves has its whole answer.
    request.end = "completed"
    await reply.finish()


async def _speak(reply: _Reply, step: Step, message: str) -> None:
    words = words_of(step)
    item: dict[str, Any] = {"type": "message", "id": message, "role": "assistant"}
    opened: dict[str, Any] = item | {"status": "in_progress"}
    opened["content"] = []
    await reply.event("response.output_item.added", output_index=0, item=opened)
    for word in words:
        await reply.event(
            "response.output_text.delta",
            item_id=message,
            output_index=0,
            content_index=0,
            delta=word,
        )
        await trio.sleep(step.get("ms", 0) / 1000)
    if "cut" not in step:
        part: dict[str, Any] = {"type": "output_text", "annotations": []}
        part |= {"text": "".join(words)}
        whole = item | {"content": [part], "status": "completed"}
        await reply.event("response.output_item.done", output_index=0, item=whole)


def words_of(step: Step) -> list[str]:
    """Give the words that a step says, or all of them as one."""
    if count := step.get("stream") or step.get("cut"):
        return [f"tok{n} " for n in range(count)]
    text = str(step.get("say", ""))
    return re.findall(r"\S+\s*", text) if step.get("ms") else [text]


def calls_of(step: Step) -> list[Step]:
    """Give the calls that a step makes, as they are scripted."""
    return step.get("calls") or ([step] if {"run", "call"} & step.keys() else [])


def _calls(step: Step, number: int) -> list[dict[str, Any]]:
    if "patch" in step:
        call = {"type": "custom_tool_call", "name": "apply_patch"}
        return [call | {"call_id": f"call_{number}_0", "input": step["patch"]}]
    return [
        {"type": "function_call", "call_id": f"call_{number}_{index}"} | _function(call)
        for index, call in enumerate(calls_of(step))
    ]


def _function(call: Step) -> dict[str, str]:
    if "run" in call:
        # Longer than any test: a call of the shell tool returns when its command does.
        given = {"cmd": call["run"], "yield_time_ms": call.get("yield_ms", 30_000)}
        return {"name": "exec_command", "arguments": json.dumps(given)}
    named = {"name": call["call"]} | ({"namespace": call["in"]} if "in" in call else {})
    return named | {"arguments": json.dumps(call.get("with", {}))}


class _Reply:
    """The answer to one request."""

    def __init__(self, stream: trio.SocketStream, connection: h11.Connection) -> None:
        self.stream = stream
        self._connection = connection

    async def json(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(content))),
        ]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=content))
        await self.finish()

    async def begin_events(self) -> None:
        headers = [("content-type", "text/event-stream")]
        await self._send(h11.Response(status_code=200, headers=headers))

    async def event(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields})
        await self._send(h11.Data(data=f"event: {kind}\ndata: {data}\n\n".encode()))

    async def finish(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        if data := self._connection.send(event):
            await self.stream.send_all(data)


def _is_message(item: dict[str, Any], role: str) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == role


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(
        jsonfields.text(part, "text") for part in jsonfields.objects(item, "content")
    )
