"""Journal records as bytes: whatever text a runtime produced, it can be written."""

from __future__ import annotations

import json
from typing import Any, cast

import orjson

from agentteam_protocol.codec import CONVERTER, Hooks, from_wire
from agentteam_protocol.frames import FRAME_KINDS, NUMBERED, DeliveryReceived, Frame
from agentteam_protocol.ids import DeliveryId
from agentteam_protocol.journal import KINDS, FenceLate, JournalEvent, RunNotice

# Every record of a busy daemon passes here, so the way to each class is looked up once.
_KINDS: dict[type, str] = {**KINDS, **FRAME_KINDS}
_HOOKS = Hooks[type](CONVERTER.get_unstructure_hook)


def encode(value: JournalEvent | Frame) -> bytes:
    """Make the JSON text of an event or a frame; this never fails for its content."""
    cls = type(value)
    kind = _KINDS[cls]
    plain: dict[str, Any] = _HOOKS[cls](value)
    plain["kind"] = kind
    try:
        return orjson.dumps(plain)
    except TypeError:
        # Lone surrogates and integers beyond 64 bit: a runtime may print either.
        return json.dumps(_scrubbed(plain), separators=(",", ":")).encode()


def encode_frame(frame: Frame) -> bytes:
    if type(frame) not in NUMBERED:
        raise ValueError(f"{type(frame).__name__} is not a numbered frame")
    return encode(frame)


def marker(first: bool, seq: int) -> JournalEvent:
    """Stand in for a record that cannot be read; people see the first of a log."""
    if first:
        return RunNotice("log damaged here", f"record {seq} was set aside")
    return FenceLate(None, "damaged record", f"record {seq} was set aside")


def sound_frame(data: bytes) -> bytes:
    """
    Give the bytes back if they are a frame, else a harmless one that keeps the number.

    A number that is never sent would stop the link for ever.
    """
    try:
        frame = from_wire(orjson.loads(data), Frame)
    except Exception:
        frame = None
    if type(frame) in NUMBERED:
        return data
    return encode_frame(DeliveryReceived(DeliveryId("dlv_damaged"), 0))


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {_scrubbed(k): _scrubbed(v) for k, v in members.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(v) for v in cast("list[Any]", value)]
    return value
