"""What the scripted agents are asked to play: honest work and every hostile habit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from attrs import frozen

# Each with its weight; most turns are honest, or nothing would ever be delivered.
STEPS: tuple[tuple[int, dict[str, Any]], ...] = (
    (20, {"say": "word by word it goes on and on", "ms": 30}),
    (10, {"say": "quick", "ms": 0}),
    (6, {"say": "long " * 60, "ms": 20}),
    (6, {"wait": 200}),
    (8, {"run": "sleep 0.1; echo done"}),
    (4, {"run": "trap '' TERM; sleep 30"}),
    (3, {"run": "setsid sleep 31 & sleep 0.2"}),
    (6, {"ask": "shell"}),
    (6, {"send": "an answer of mine"}),
    (4, {"spawn": "sleep 32"}),
    (2, {"spawn": "trap '' TERM HUP; while :; do sleep 33; done"}),
    (5, {"late": {"ms": 30, "step": {"say": "too late", "ms": 0}}}),
    (3, {"late": {"ms": 0, "step": {"say": "late at once", "ms": 0}}}),
    (2, {"late": {"ms": 50, "step": {"ask": "late"}}}),
    (2, {"deaf": ["interrupt"]}),
    (1, {"deaf": ["interrupt", "TERM", "stdin"]}),
    (3, {"raw": "this is no JSON\n"}),
    (2, {"raw": '{"type": "turn_ended"}\n'}),
    (2, {"stderr": 100_000}),
    (3, {"die": "KILL"}),
    (1, {"die": "SEGV"}),
    (1, {"exit": 3}),
    (2, {"lose": "steer"}),
    (2, {"lose": "sign"}),
    (1, {"lose": "ack"}),
    (1, {"lose": "end"}),
    (3, {"delay": "ack", "ms": 100}),
    (3, {"delay": "end", "ms": 200}),
    (2, {"refuse": "interrupt"}),
    (2, {"refuse": "steer"}),
    (1, {"refuse": "turn"}),
    (2, {"fail": "the model is unwell"}),
    (1, {"end": "max-tokens"}),
)


def write_body(rng: Random) -> str:
    """Write a message: plain words, or steps to play."""
    if rng.random() < 0.3:
        return f"plain words {rng.randrange(10**6)}"
    weights = [weight for weight, _ in STEPS]
    steps = rng.choices([step for _, step in STEPS], weights, k=rng.randint(1, 3))
    return f"#do {json.dumps(steps)}"


# How the agents of a campaign differ; the last keeps no record that could tell.
AGENTS: tuple[dict[str, Any], ...] = (
    {},
    {"surfaceMs": 60},
    {"steer": "queue"},
    {"steer": "none", "killChildren": True},
    {"turnAck": "after"},
    {"evidence": "none"},
)


def is_blind(config: dict[str, Any]) -> bool:
    return config.get("evidence") == "none"


# What a scripted model of a real runtime is asked to do, each with its weight.
REAL_STEPS: tuple[tuple[int, dict[str, Any]], ...] = (
    (20, {"say": "word by word it goes on and on", "ms": 30}),
    (10, {"say": "quick"}),
    (8, {"stream": 200, "ms": 20}),
    (8, {"run": "sleep 0.2; echo done"}),
    (4, {"run": "trap '' TERM; sleep 30"}),
    (3, {"run": "setsid sleep 31 & sleep 0.2"}),
    (3, {"say": "after a while", "after": 1.0}),
    (2, {"hang": 20}),
    (2, {"cut": 5}),
    (2, {"http": 400}),
)
NUMBERED = re.compile(r"\(no\. (\d{9})\)")


def write_numbered_body(rng: Random) -> str:
    """Write a message for a real runtime; its number is found again at the model."""
    number = f"(no. {rng.randrange(10**9):09})"
    if rng.random() < 0.3:
        return f"plain words {number}"
    weights = [weight for weight, _ in REAL_STEPS]
    steps = rng.choices([step for _, step in REAL_STEPS], weights, k=rng.randint(1, 2))
    return f"#do {json.dumps(steps)} {number}"


@frozen
class Pace:
    """How the lives of a campaign are drawn: for whom, and how long they are."""

    agents: int = len(AGENTS)
    write: Callable[[Random], str] = write_body
    slower: float = 1.0  # so many times


REHEARSED = Pace()
REAL = Pace(2, write_numbered_body, 4.0)
