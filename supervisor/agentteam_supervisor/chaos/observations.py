"""What was seen from outside: the API's answers, processes, the runtimes' records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class Accepted:
    """The server answered that it has this delivery."""

    delivery: str
    message: str
    agent: str
    urgent: bool = False


@frozen
class Read:
    """A line of a runtime's own record: this attempt is in its model's input."""

    agent: str
    delivery: str
    attempt: int


@frozen
class ToolShowed:
    """A runtime's own record: a tool's answer held this message of a target."""

    agent: str
    target: str  # its name, as agents read it
    seq: int
    at: str  # as the API writes times


@frozen
class Shown:
    """A line of the event stream, in the order in which it came."""

    agent: str
    kind: str
    run: str | None = None
    generation: tuple[int, ...] | None = None
    text: str = ""


@frozen
class Stop:
    """A Stop that was accepted; `seconds` until its run ended, downtime aside."""

    agent: str
    run: str
    ended: bool
    seconds: float | None = None


@frozen
class Sighting:
    """A process of the product that should not have been there."""

    when: str
    pid: int
    command: str


@frozen
class Told:
    """How often a model's request held a message: at most in one, and in the last."""

    most: int
    last: int


@frozen
class Observations:
    """
    One round, looked at when everything had come to rest.

    `blind` are the agents whose runtime keeps no record that could tell what it read;
    `told` has what the model of a real runtime was told, by message.
    """

    accepted: tuple[Accepted, ...] = ()
    deliveries: Mapping[str, Mapping[str, Any]] = field(
        factory=dict[str, Mapping[str, Any]]
    )
    agents: Mapping[str, Mapping[str, Any]] = field(
        factory=dict[str, Mapping[str, Any]]
    )
    messages: tuple[Mapping[str, Any], ...] = ()
    activity: tuple[Mapping[str, Any], ...] = ()
    reads: tuple[Read, ...] = ()
    by_tools: tuple[ToolShowed, ...] = ()
    shown: tuple[Shown, ...] = ()
    stops: tuple[Stop, ...] = ()
    outlived: tuple[Sighting, ...] = ()
    orphans: tuple[Sighting, ...] = ()
    traces: tuple[str, ...] = ()
    blind: frozenset[str] = frozenset()
    told: Mapping[str, Told] = field(factory=dict[str, Told])
