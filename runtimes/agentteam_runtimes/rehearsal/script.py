"""
The script of a turn: bodies become checked steps. Standard library only.

A body whose first line starts with `#do ` carries a JSON list of steps on that line.
Lines in square brackets above it (the header of a group target, a notice of the
daemon) are passed over. Any other body is answered with `Heard: BODY`. What a steer's
body asks for is played after what is left of the turn.

| step                                 | does                                          |
|--------------------------------------|-----------------------------------------------|
| `{"say": TEXT, "ms", "times"}`       | streams TEXT (N times) word by word           |
| `{"run": SHELL}`                     | a tool call with a real shell child           |
| `{"ask": NAME, "input", "reason"}`   | asks; not allowed: a `run` next is passed over |
| `{"send": TEXT, "target"}`           | calls `send_message`, says what came back     |
| `{"read": TARGET, "after"}`          | calls `read_history`, says what came back     |
| `{"wait": MS}`                       | silence                                       |
| `{"deaf": [interrupt, TERM, stdin]}` | ignores these from here on                    |
| `{"late": {"ms", "step"}}`           | STEP after the turn's end, under its id; with  |
|                                      | `ms` 0 in the same instant                    |
| `{"raw": TEXT, "times"}`             | TEXT to stdout as it stands, no newline added |
| `{"bytes": BASE64}`                  | these bytes to stdout                         |
| `{"stderr": N, "lines": false}`      | N bytes to stderr, without newlines           |
| `{"spawn": SHELL}`                   | a child in a session of its own, left alone   |
| `{"exit": CODE}`, `{"die": SIGNAL}`  | leaves, or sends itself KILL, SEGV, STOP ...  |
| `{"lose": steer, ack, end, sign}`    | takes the next such thing and never reports it |
| `{"delay": ack, end, "ms": N}`       | reports the next such thing N ms late         |
| `{"refuse": turn, steer, interrupt}` | refuses the next; `named` is the turn it names |
| `{"fail": TEXT}`                     | the turn fails                                |
| `{"end": STATUS, "text", "detail"}`  | the turn ends here; in `late`: ends once more |
| `{"last": TEXT, "ms": N}`            | at TERM writes TEXT and leaves N ms later     |
| `{"close": stdin, stdout}`           | closes it and lives on                        |
"""

from __future__ import annotations

import binascii
import json
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MARK = "#do "
MAX_STEPS = 1000
MAX_BYTES = 256 * 1024 * 1024
MAX_MS = 24 * 3600 * 1000
HEARD_MS = 1000
STATUSES = ("completed", "interrupted", "failed", "max-tokens")


class ScriptError(ValueError):
    """A script that cannot be played; the message says which step and why."""


class Step:
    """One checked step: its verb, the verb's value, and what stands beside it."""

    __slots__ = ("options", "value", "verb")

    def __init__(
        self, verb: str, value: Any, options: Mapping[str, Any] | None = None
    ) -> None:
        self.verb = verb
        self.value = value
        self.options = dict(options or {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        mine = (self.verb, self.value, self.options)
        return mine == (other.verb, other.value, other.options)

    __hash__ = None  # type: ignore[assignment]  # its options may change

    def __repr__(self) -> str:
        return f"Step({self.verb!r}, {self.value!r}, {self.options!r})"


class Check:
    """What a value must be, and the words for it."""

    def __init__(self, words: str, holds: Callable[[Any], bool]) -> None:
        self.words = words
        self.holds = holds


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


# JSON stays `Any` for whoever asks these: its parts are checked one by one.
def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= MAX_MS


def _is_base64(value: Any) -> bool:
    try:
        binascii.a2b_base64(value, strict_mode=True)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str)


def _is_signal(value: Any) -> bool:
    return isinstance(value, str) and hasattr(signal.Signals, f"SIG{value}")


def _one_of(*names: str) -> Check:
    return Check(f"one of {', '.join(names)}", lambda v: v in names)


def _some_of(*names: str) -> Check:
    return Check(
        f"a list of some of {', '.join(names)}",
        lambda v: _is_list(v) and bool(v) and all(each in names for each in v),
    )


TEXT = Check("a text", lambda v: isinstance(v, str))
MS = Check("milliseconds", _is_number)
COUNT = Check("a count of bytes", _whole(0, MAX_BYTES))
TIMES = Check("a count", _whole(1, MAX_BYTES))
NUMBER = Check("a whole number", _whole(0, 2**53))
FLAG = Check("true or false", lambda v: isinstance(v, bool))
LATE = Check("an object with a step", lambda v: _is_object(v) and "step" in v)

# Each verb: what its value must be, and which other keys may stand beside it.
VERBS: dict[str, tuple[Check, dict[str, Check]]] = {
    "say": (TEXT, {"ms": MS, "times": TIMES}),
    "run": (TEXT, {}),
    "ask": (TEXT, {"input": TEXT, "reason": TEXT}),
    "send": (TEXT, {"target": TEXT}),
    "read": (TEXT, {"after": NUMBER}),
    "wait": (MS, {}),
    "deaf": (_some_of("interrupt", "TERM", "stdin"), {}),
    "late": (LATE, {}),
    "raw": (TEXT, {"times": TIMES}),
    "bytes": (Check("base64", _is_base64), {}),
    "stderr": (COUNT, {"lines": FLAG}),
    "spawn": (TEXT, {}),
    "exit": (Check("an exit code", _whole(0, 255)), {}),
    "die": (Check("a signal's name such as KILL", _is_signal), {}),
    "lose": (_one_of("steer", "ack", "end", "sign"), {}),
    "delay": (_one_of("ack", "end"), {"ms": MS}),
    "refuse": (_one_of("turn", "steer", "interrupt"), {"named": TEXT}),
    "fail": (TEXT, {}),
    "end": (_one_of(*STATUSES), {"text": TEXT, "detail": TEXT}),
    "last": (TEXT, {"ms": MS}),
    "close": (_one_of("stdin", "stdout"), {}),
}


def parse_steps(value: object) -> list[Step]:
    """Check a list of steps; raises `ScriptError`."""
    steps = _list(value, "a script is a list of steps")
    if len(steps) > MAX_STEPS:
        raise ScriptError(f"more than {MAX_STEPS} steps")
    return [_parse_step(each, f"step {n}") for n, each in enumerate(steps, 1)]


def parse_turns(value: object) -> list[list[Step]]:
    """Check `options.config.script`: a list of scripts, one for each turn."""
    turns = _list(value, "options.config.script is a list of lists of steps")
    return [parse_steps(each) for each in turns]


def plan_bodies(bodies: list[str]) -> list[Step]:
    """
    Turn the bodies of one submission into one plan.

    Plain bodies that stand together are answered together. A broken script is said.
    """
    plan: list[Step] = []
    heard: list[str] = []
    for body in bodies:
        line = _script_line(body)
        if line is None:
            heard.append(f"Heard: {body}")
            continue
        plan += _answer(heard)
        heard = []
        plan += _read_line(line)
    return plan + _answer(heard)


def _list(value: Any, problem: str) -> list[Any]:
    if not _is_list(value):
        raise ScriptError(problem)
    steps: list[Any] = value
    return steps


def _parse_step(value: Any, where: str, *, in_late: bool = False) -> Step:
    if not _is_object(value):
        raise ScriptError(f"{where} is no object")
    verbs: list[str] = [key for key in value if key in VERBS]
    if len(verbs) != 1:
        raise ScriptError(f"{where} names no step, or two: {_shorten(value)}")
    verb = verbs[0]
    _check_keys(verb, value, where)
    options: dict[str, Any] = dict(value)
    del options[verb]
    if verb == "late":
        if in_late:
            raise ScriptError(f"{where}: late inside late")
        return _parse_late(value["late"], where)
    return Step(verb, value[verb], options)


def _check_keys(verb: str, value: Mapping[str, Any], where: str) -> None:
    check, beside = VERBS[verb]
    for key, each in value.items():
        wanted = check if key == verb else beside.get(key)
        if wanted is None:
            raise ScriptError(f'{where}: "{verb}" has no "{key}"')
        if not wanted.holds(each):
            raise ScriptError(
                f'{where}: "{key}" takes {wanted.words}, not {_shorten(each)}'
            )
    text = value[verb]
    if isinstance(text, str) and len(text) * value.get("times", 1) > MAX_BYTES:
        raise ScriptError(f"{where}: more than {MAX_BYTES} bytes")


def _parse_late(value: Mapping[str, Any], where: str) -> Step:
    if not MS.holds(value.get("ms", 0)):
        raise ScriptError(f'{where}: "ms" takes {MS.words}')
    step = _parse_step(value["step"], f"{where}, late", in_late=True)
    return Step("late", step, {"ms": value.get("ms", 0)})


def _script_line(body: str) -> str | None:
    for line in body.split("\n"):
        if line.startswith(MARK):
            return line[len(MARK) :]
        if not (line.startswith("[") and line.rstrip().endswith("]")):
            return None
    return None


def _read_line(line: str) -> list[Step]:
    try:
        return parse_steps(json.loads(line))
    except ScriptError as exc:
        return [complain(str(exc))]
    except (ValueError, RecursionError) as exc:
        return [complain(f"not JSON: {exc}")]


def complain(problem: str) -> Step:
    """Make the step that says what is wrong with a script."""
    return Step("say", f"bad script: {problem}", {"ms": 0})


def _answer(heard: list[str]) -> list[Step]:
    if not heard:
        return []
    text = "\n".join(heard)
    return [Step("say", text, {"ms": HEARD_MS / max(4, len(text.split(" ")))})]


def _shorten(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
