"""
JSON-RPC over lines, without any I/O.

The dialect of coding agents: both sides ask, and no `jsonrpc` key is needed in what
comes in; a peer that insists on one in what it gets is told its version. What comes in
is one of four things; every other line is `Noise` and changes nothing.

| line holds            | meaning                         | becomes        |
|-----------------------|---------------------------------|----------------|
| id of ours, `result`  | the answer to our request       | `Answer`       |
| id of ours, `error`   | our request was refused         | `Refusal`      |
| `method`, no id       | something happened              | `Notification` |
| `method` and id       | they ask, and block on our reply | `Request`      |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from agentteam_runtimes.jsonlines import (
    JsonObject,
    Noise,
    decode_line,
    encode_line,
    noise,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

METHOD_NOT_FOUND = -32601

RequestId = int | str


@frozen
class Answer:
    """The result of a request of ours."""

    id: int
    method: str
    result: Any


@frozen
class Refusal:
    """The error with which a request of ours was answered."""

    id: int
    method: str
    code: int
    message: str
    data: Any = None


@frozen
class Notification:
    """Something happened at the peer."""

    method: str
    params: JsonObject


@frozen
class Request:
    """The peer asks, and waits until we reply exactly once."""

    id: RequestId
    method: str
    params: JsonObject


Incoming = Answer | Refusal | Notification | Request | Noise


class Peer:
    """Our end of one connection: which requests wait, on both sides."""

    def __init__(self, version: str | None = None) -> None:
        self._head = {} if version is None else {"jsonrpc": version}
        self._last_id = 0
        self._ours: dict[int, str] = {}
        self._theirs: set[RequestId] = set()

    def request(self, method: str, params: Mapping[str, object]) -> tuple[int, bytes]:
        """Make a request: its id, and the line to write."""
        self._last_id += 1
        self._ours[self._last_id] = method
        line = {"id": self._last_id, "method": method, "params": params}
        return self._last_id, encode_line(self._head | line)

    def notification(
        self, method: str, params: Mapping[str, object] | None = None
    ) -> bytes:
        """Make a notification."""
        line: dict[str, object] = {**self._head, "method": method}
        return encode_line(line if params is None else line | {"params": params})

    def result(self, id: RequestId, value: object) -> bytes | None:
        """Reply to a request of the peer; None when it has its reply already."""
        return self._reply(id, {"result": value})

    def error(self, id: RequestId, code: int, message: str) -> bytes | None:
        """Refuse a request of the peer; None when it has its reply already."""
        return self._reply(id, {"error": {"code": code, "message": message}})

    def withdraw(self, id: RequestId) -> None:
        """Forget a request that the peer no longer waits for."""
        self._theirs.discard(id)

    def waits(self, id: RequestId) -> bool:
        """Tell whether the peer still waits for our reply to this request."""
        return id in self._theirs

    def receive(self, line: bytes) -> Incoming:
        """Say what a line is."""
        message = decode_line(line)
        if isinstance(message, Noise):
            return message
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str):
            return self._asked(method, id, _params(message), line)
        if "result" in message or "error" in message:
            return self._answered(id, message, line)
        return noise("a JSON object, but no message", line)

    def _reply(self, id: RequestId, body: dict[str, object]) -> bytes | None:
        if id not in self._theirs:
            return None
        self._theirs.remove(id)
        return encode_line({**self._head, "id": id, **body})

    def _asked(
        self, method: str, id: object, params: JsonObject, line: bytes
    ) -> Incoming:
        if id is None:
            return Notification(method, params)
        if isinstance(id, bool) or not isinstance(id, int | str):
            return noise("a request whose id is no number and no string", line)
        if id in self._theirs:
            return noise("a request under an id that still waits", line)
        self._theirs.add(id)
        return Request(id, method, params)

    def _answered(self, id: object, message: JsonObject, line: bytes) -> Incoming:
        ours = _our_id(id)
        if ours is None or (method := self._ours.pop(ours, None)) is None:
            return noise("an answer to no request", line)
        error = message.get("error")
        if error is None:
            return Answer(ours, method, message.get("result"))
        return _refusal(ours, method, error)


def _our_id(id: object) -> int | None:
    """Read the id of an answer; some peers turn numbers into strings."""
    if isinstance(id, str) and id.isascii() and id.isdigit():
        return int(id)
    return id if isinstance(id, int) and not isinstance(id, bool) else None


def _refusal(id: int, method: str, error: object) -> Refusal:
    if not isinstance(error, dict):
        return Refusal(id, method, 0, str(error))
    fields = cast("JsonObject", error)
    code = fields.get("code")
    return Refusal(
        id=id,
        method=method,
        code=code if isinstance(code, int) else 0,
        message=str(fields.get("message", "")),
        data=fields.get("data"),
    )


def _params(message: JsonObject) -> JsonObject:
    params = message.get("params")
    return cast("JsonObject", params) if isinstance(params, dict) else {}
