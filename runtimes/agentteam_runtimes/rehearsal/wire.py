"""
The lines between the driver and the scripted runtime: one JSON object each.

| driver to program (`op`)                  | answer                               |
|-------------------------------------------|--------------------------------------|
| `hello {session, dir, agent, config}`     | `ready`, or `reply` with an error    |
| `turn {id, batch, items: [{key, text}]}`  | `reply {turn}`                       |
| `steer {id, turn, key, text}`             | `reply`                              |
| `interrupt {id, turn}`                    | `reply`; `turn` null: whatever runs  |
| `history {id, keys}`                      | `reply {items: {key: outcome}}`      |
| `maintain {id, task}`                     | `reply {text}`                       |
| `answer {ask, outcome}`                   | none                                 |
| `tool_result {call, text, error}`         | none                                 |
| `abort`                                   | none: it ends what `maintain` began  |
| `shutdown`                                | none: it leaves, as at end of stdin  |

A refused request is answered with `reply {id, error: {code, message, named}}`.
What the program says by itself stands in `SHAPES`, with the fields each must have;
`surfaced` is the evidence: the entry is in the session's record by then.

`options.config` of an agent. `script` is checked by the program, which says what is
wrong with it; the rest is checked here.

| key            | meaning                                                           |
|----------------|-------------------------------------------------------------------|
| `script`       | list of lists of steps: each turn takes the next, no body is read  |
| `start`        | list of steps played before `ready`: `wait` is a slow start,      |
|                | `raw` a banner, `stderr`, `exit`, `die`, `deaf` as anywhere;       |
|                | `late` counts from `ready`                                        |
| `steer`        | `ack` (default), `queue` (no sign when it is read), `none`         |
| `interrupt`    | `turn` (default), `none`: each one is refused                      |
| `evidence`     | `recorded` (default), `none`: no sign of anything, no history      |
| `resume`, `batchInput`, `tools` | false: only declared so, for the caller to keep   |
| `surfaceMs`    | how long after `turn_started` the batch is surfaced               |
| `turnAck`      | `after`: a turn is only answered once it has ended                |
| `killChildren` | true: an interrupt ends the shell of a running tool               |
| `maintainMs`   | how long `compact` takes                                          |
| `refuseResume` | true: no session is ever found again                              |
| `resumeError`  | TEXT: resuming fails with it, and not because nothing is there     |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agentteam_protocol.errors import RuntimeRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentteam_runtimes.driver import Batch, SessionSpec
    from agentteam_runtimes.jsonlines import JsonObject

VERSION = "1"
NO_SESSION = "no_session"

TURN = "turn"
STEER = "steer"
INTERRUPT = "interrupt"
HISTORY = "history"
MAINTAIN = "maintain"

CHOICES = {
    "steer": ("ack", "queue", "none"),
    "interrupt": ("turn", "none"),
    "evidence": ("recorded", "none"),
    "turnAck": ("before", "after"),
}
CONFIG: dict[str, type | tuple[type, ...]] = {
    "script": list,
    "start": list,
    "steer": str,
    "interrupt": str,
    "evidence": str,
    "resume": bool,
    "batchInput": bool,
    "tools": bool,
    "surfaceMs": (int, float),
    "turnAck": str,
    "killChildren": bool,
    "maintainMs": (int, float),
    "refuseResume": bool,
    "resumeError": str,
}

OPTIONAL_TEXT = (str, type(None))
SHAPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "ready": {"session": str, "version": str},
    "reply": {"id": int},
    "turn_started": {"turn": str, "batch": str},
    "surfaced": {"turn": str, "key": str},
    "delta": {"turn": str, "text": str},
    "said": {"turn": str, "text": str},
    "tool_started": {"turn": str, "call": str, "name": str, "input": str},
    "tool_output": {"turn": str, "call": str, "text": str},
    "tool_ended": {"turn": str, "call": str, "output": str, "error": OPTIONAL_TEXT},
    "asked": {
        "turn": str,
        "ask": str,
        "tool": str,
        "input": str,
        "reason": OPTIONAL_TEXT,
    },
    "ask_closed": {"ask": str},
    "send": {"turn": str, "call": str, "target": str, "text": str},
    "read": {"turn": str, "call": str, "target": str, "after": (int, type(None))},
    "turn_ended": {
        "turn": str,
        "status": str,
        "detail": str,
        "items": dict,
        "text": str,
    },
}


def misfit(message: JsonObject) -> str | None:
    """Say why an object is no line of this protocol; None when it is one."""
    kind = message.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return "JSON, but no line of the protocol"
    for name, wanted in shape.items():
        if name not in message or not isinstance(message[name], wanted):
            return f"{kind} without a proper {name}"
    return None


def hello(spec: SessionSpec, resume: str | None) -> JsonObject:
    return {
        "op": "hello",
        "id": 0,
        "session": resume,
        "dir": str(spec.state_dir),
        "agent": spec.agent_name,
        "config": dict(spec.options.config),
    }


def turn(batch: Batch) -> JsonObject:
    items = [{"key": item.key, "text": item.text} for item in batch.items]
    return {"batch": batch.id, "items": items}


def refusal(reply: JsonObject) -> JsonObject | None:
    """Return the error in a reply, if it is one."""
    error = reply.get("error")
    return cast("JsonObject", error) if isinstance(error, dict) else None


def check_config(config: Mapping[str, Any]) -> None:
    """Raise `RuntimeRefused` for a key or a value that the program does not know."""
    for key, value in config.items():
        wanted = CONFIG.get(key)
        if wanted is None:
            known = ", ".join(CONFIG)
            raise RuntimeRefused(f"options.config has no {key}; it has {known}")
        if not isinstance(value, wanted):
            raise RuntimeRefused(f"options.config.{key} cannot be {value!r}")
        if key in CHOICES and value not in CHOICES[key]:
            choices = ", ".join(CHOICES[key])
            raise RuntimeRefused(f"options.config.{key} is one of {choices}")
