"""
The mechanism of the crash points; their names are in `registry.py`.

`AGENTTEAM_CRASH=POINT:before` (or `:after`, with `:N` for the Nth time) makes the
process kill itself there with SIGKILL, as a power cut would: nothing is flushed, no
`finally` runs. `AGENTTEAM_CRASH_LOG=FILE` appends the name of each point that is
passed. Without either, a point costs one look at a constant.

A point is named by its stage and the class of what passes it, such as
`effect/submit`. What has no name in the registry is let by.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import orjson
from attrs import define, field, frozen

from agentteam_protocol.errors import AgentTeamError
from agentteam_protocol.frames import FRAME_KINDS
from agentteam_supervisor.chaos.registry import POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

VARIABLE = "AGENTTEAM_CRASH"
LOG_VARIABLE = "AGENTTEAM_CRASH_LOG"

_FRAMES = {kind: frame for frame, kind in FRAME_KINDS.items()}

T = TypeVar("T")
R = TypeVar("R")


class CrashPointError(AgentTeamError):
    """The variable names no crash point; the message says what it may say."""


@frozen
class Crash:
    """Where and when to die."""

    point: str
    side: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.point}:{self.side}:{self.nth}"


def parse(text: str) -> Crash:
    """Read `POINT:before|after[:N]`; raises `CrashPointError`."""
    match text.split(":"):
        case [point, ("before" | "after") as side, *rest] if point in POINTS:
            match rest:
                case []:
                    return Crash(point, side)
                case [nth] if nth.isascii() and nth.isdigit() and int(nth) > 0:
                    return Crash(point, side, int(nth))
                case _:
                    pass
        case _:
            pass
    raise CrashPointError(
        f"{VARIABLE}={text} names no crash point; it takes POINT:before or"
        " POINT:after, then :N for the Nth time; `agentteam chaos list` prints the"
        " points"
    )


@define
class _Armed:
    """What this process was told to do at its points."""

    crash: Crash | None
    log: int | None
    passed: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]])

    def reach(self, stage: str, things: Iterable[object], side: str) -> None:
        for name in sorted({name_of(stage, thing) for thing in things}):
            if self.log is not None:
                os.write(self.log, f"{name}:{side}\n".encode())
            self.passed[name, side] += 1
            if self.crash is not None and self._due(self.crash, name, side):
                os.kill(os.getpid(), signal.SIGKILL)

    def _due(self, crash: Crash, name: str, side: str) -> bool:
        here = (crash.point, crash.side) == (name, side)
        return here and self.passed[name, side] == crash.nth


def _arm(environment: Mapping[str, str]) -> _Armed | None:
    where, log = environment.get(VARIABLE), environment.get(LOG_VARIABLE)
    if not where and not log:
        return None
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(log, flags, 0o600) if log else None
    return _Armed(parse(where) if where else None, fd)


_armed: _Armed | None = None
_problem: CrashPointError | None = None


def arm(environment: Mapping[str, str]) -> None:
    """Do what this environment says, from now on."""
    global _armed, _problem  # a look at a constant is all it may cost
    _armed, _problem = None, None
    try:
        _armed = _arm(environment)
    except CrashPointError as error:
        _problem = error


arm(os.environ)


def check() -> None:
    """Raise `CrashPointError` if the variable cannot be understood."""
    if _problem is not None:
        raise _problem


def before(stage: str, things: Iterable[object]) -> None:
    if _armed is not None:
        _armed.reach(stage, things, "before")


def after(stage: str, things: Iterable[object]) -> None:
    if _armed is not None:
        _armed.reach(stage, things, "after")


def through(stage: str, thing: T, call: Callable[[T], R]) -> R:
    """Call it with the thing, between both sides of the thing's point."""
    if _armed is None:
        return call(thing)
    _armed.reach(stage, (thing,), "before")
    result = call(thing)
    _armed.reach(stage, (thing,), "after")
    return result


def name_of(stage: str, thing: object) -> str:
    """Name the point that a thing passes at a stage: a word, a frame as JSON, an object."""
    if isinstance(thing, str):
        return f"{stage}/{thing}"
    if isinstance(thing, bytes):
        frame = _FRAMES[orjson.loads(thing)["kind"]]
        return f"{stage}/{_words(frame.__name__)}"
    return f"{stage}/{_words(type(thing).__name__)}"


@lru_cache(maxsize=256)
def _words(name: str) -> str:
    """Write `SubmitAccepted` as `submit-accepted`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
