"""What a line is to JSON-RPC, and that every request gets one reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentteam_runtimes.jsonlines import Noise
from agentteam_runtimes.jsonrpc import (
    Answer,
    Notification,
    Peer,
    Refusal,
    Request,
)


def line(**message: Any) -> bytes:
    return json.dumps(message).encode()


@pytest.mark.parametrize("spelled", [1, "1"], ids=repr)
def test_answer_meets_its_request_under_either_spelling(spelled: int | str) -> None:
    peer = Peer()
    id, written = peer.request("turn/start", {"threadId": "x"})
    assert json.loads(written) == {
        "id": id,
        "method": "turn/start",
        "params": {"threadId": "x"},
    }
    answer = peer.receive(line(id=spelled, result={"a": 1}))
    assert answer == Answer(1, "turn/start", {"a": 1})
    assert isinstance(peer.receive(line(id=spelled, result={})), Noise)


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (
            {"code": -32600, "message": "no active turn", "data": 1},
            Refusal(1, "m", -32600, "no active turn", 1),
        ),
        ({}, Refusal(1, "m", 0, "")),
        ({"code": "x", "message": None}, Refusal(1, "m", 0, "None")),
        ("broken", Refusal(1, "m", 0, "broken")),
    ],
)
def test_error_refuses_its_request(error: Any, refusal: Refusal) -> None:
    peer = Peer()
    peer.request("m", {})
    assert peer.receive(line(id=1, error=error)) == refusal


def test_answer_with_null_result_is_an_answer() -> None:
    peer = Peer()
    peer.request("m", {})
    assert peer.receive(line(id=1, result=None, error=None)) == Answer(1, "m", None)


@pytest.mark.parametrize("params", [None, [], "x", 3])
def test_params_that_are_no_object_read_as_empty(params: Any) -> None:
    peer = Peer()
    assert peer.receive(line(method="m", params=params)) == Notification("m", {})
    asked = peer.receive(line(id=1, method="m", params=params))
    assert asked == Request(1, "m", {})


@pytest.mark.bug("B26")
def test_each_request_gets_one_reply_under_the_type_of_its_id() -> None:
    peer = Peer()
    for id in (7, "7", 0, "abc"):
        assert peer.receive(line(id=id, method="m")) == Request(id, "m", {})
    assert json.loads(peer.result(7, {}) or b"") == {"id": 7, "result": {}}
    assert json.loads(peer.error("7", -1, "no") or b"") == {
        "id": "7",
        "error": {"code": -1, "message": "no"},
    }
    assert peer.result(7, {}) is None
    assert peer.error("7", -1, "no") is None
    peer.withdraw(0)
    assert peer.result(0, {}) is None
    assert peer.waits("abc")


@pytest.mark.bug("B15")
@pytest.mark.parametrize(
    "message",
    [
        {},
        {"id": 1},
        {"result": 1},
        {"id": None, "result": 1},
        {"id": True, "result": 1},
        {"id": 1.5, "result": 1},
        {"id": 2, "result": 1},
        {"id": "x", "error": {}},
        {"id": True, "method": "m"},
        {"id": [], "method": "m"},
        {"method": 7},
        {"type": "banner"},
    ],
)
def test_object_that_is_no_message_is_noise(message: dict[str, Any]) -> None:
    peer = Peer()
    peer.request("m", {})
    assert isinstance(peer.receive(line(**message)), Noise)


def test_notification_is_written_without_an_id() -> None:
    peer = Peer()
    assert json.loads(peer.notification("initialized")) == {"method": "initialized"}
    written = json.loads(peer.notification("x", {"a": 1}))
    assert written == {"method": "x", "params": {"a": 1}}
