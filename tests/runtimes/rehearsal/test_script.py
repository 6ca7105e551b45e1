"""Bodies become plans: pure, no process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from agentteam_runtimes.rehearsal.script import (
    MAX_STEPS,
    VERBS,
    ScriptError,
    Step,
    parse_steps,
    parse_turns,
    plan_bodies,
)

GOOD: list[dict[str, Any]] = [
    {"say": "a", "ms": 1.5, "times": 2},
    {"run": "true"},
    {"ask": "shell", "input": "{}", "reason": "r"},
    {"send": "hi", "target": "@demo"},
    {"read": "@demo", "after": 3},
    {"wait": 0},
    {"deaf": ["interrupt", "TERM", "stdin"]},
    {"late": {"ms": 5, "step": {"say": "late"}}},
    {"raw": "x", "times": 3},
    {"bytes": "/wD+"},
    {"stderr": 100, "lines": False},
    {"spawn": "true"},
    {"exit": 0},
    {"die": "KILL"},
    {"lose": "steer"},
    {"delay": "end", "ms": 5},
    {"refuse": "interrupt", "named": "turn-1"},
    {"fail": "why"},
    {"end": "max-tokens", "text": "t", "detail": "d"},
    {"last": "bye", "ms": 1},
    {"close": "stdin"},
]


def script(*steps: Any) -> str:
    return f"#do {json.dumps(steps)}"


def test_every_step_is_read_with_what_stands_beside_it() -> None:
    steps = parse_steps(GOOD)
    assert [step.verb for step in steps] == list(VERBS)
    for step, given_ in zip(steps, GOOD, strict=True):
        if step.verb == "late":
            assert step == Step("late", Step("say", "late"), {"ms": 5})
        else:
            assert {step.verb: step.value, **step.options} == given_


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({}, "names no step"),
        ({"say": "a", "run": "b"}, "or two"),
        ({"say": "a", "colour": 1}, '"say" has no "colour"'),
        ({"say": None}, '"say" takes a text, not null'),
        ({"say": "a", "ms": -1}, '"ms" takes milliseconds'),
        ({"say": "a", "ms": True}, '"ms" takes milliseconds'),
        ({"say": "a" * 1000, "times": 10**6}, "more than"),
        ({"wait": "5"}, '"wait" takes milliseconds, not "5"'),
        ({"deaf": "TERM"}, "a list of some of"),
        ({"deaf": []}, "a list of some of"),
        ({"deaf": ["KILL"]}, "a list of some of"),
        ({"late": {"ms": 5}}, "an object with a step"),
        ({"late": {"ms": "x", "step": {"wait": 1}}}, '"ms" takes milliseconds'),
        ({"late": {"step": {"late": {"step": {"wait": 1}}}}}, "late inside late"),
        ({"late": {"step": {"dance": 1}}}, "step 1, late names no step"),
        ({"bytes": "???"}, '"bytes" takes base64'),
        ({"bytes": 5}, '"bytes" takes base64'),
        ({"stderr": -1}, "a count of bytes"),
        ({"exit": 256}, "an exit code"),
        ({"exit": True}, "an exit code"),
        ({"die": "SIGKILL"}, "a signal's name"),
        ({"die": "OF_OLD_AGE"}, "a signal's name"),
        ({"lose": "hope"}, "one of steer, ack, end, sign"),
        ({"lose": ["ack"]}, "one of steer, ack, end, sign"),
        ("say", "is no object"),
    ],
)
def test_a_wrong_step_is_refused_by_place_and_reason(step: Any, problem: str) -> None:
    with pytest.raises(ScriptError) as wrong:
        parse_steps([step])
    assert str(wrong.value).startswith("step 1")
    assert problem in str(wrong.value)


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(ScriptError):
        parse_steps([{"wait": 0}] * (MAX_STEPS + 1))


def test_the_script_of_a_session_is_a_list_of_lists() -> None:
    assert parse_turns([[], [{"wait": 1}]]) == [[], [Step("wait", 1)]]
    with pytest.raises(ScriptError):
        parse_turns([{"wait": 1}])


def test_only_the_first_line_is_read() -> None:
    assert plan_bodies([script({"wait": 1}) + "\n#do []"]) == [Step("wait", 1)]
    assert plan_bodies(["hello\n" + script({"wait": 1})])[0].verb == "say"


def test_lines_in_brackets_above_the_script_are_passed_over() -> None:
    header = "[#crew 42 from alice]\n[Your last turn was cut.]\n"
    assert plan_bodies([header + script({"wait": 1})]) == [Step("wait", 1)]
    (heard,) = plan_bodies([header + "hello"])
    assert heard.value == f"Heard: {header}hello"
    (heard,) = plan_bodies(["[x]"])
    assert heard.value == "Heard: [x]"


def test_scripts_and_plain_bodies_keep_their_order() -> None:
    plan = plan_bodies(["a", "b", script({"wait": 1}), "c"])
    assert [step.value for step in plan] == ["Heard: a\nHeard: b", 1, "Heard: c"]


def test_a_plain_body_takes_about_a_second_however_many_words_it_has() -> None:
    for words in (10, 1000):
        (heard,) = plan_bodies(["w " * (words - 2) + "w"])
        assert len(heard.value.split(" ")) * heard.options["ms"] == pytest.approx(1000)
    (short,) = plan_bodies(["hi"])
    assert short.options["ms"] == 250


@given(st.text())
def test_no_body_is_a_crash(body: str) -> None:
    plan_bodies([body])
    plan_bodies([f"#do {body}"])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*VERBS, "ms", "step"]), inner, max_size=3
            )
        ),
    )
)
def test_any_json_is_a_plan_or_a_said_complaint(value: Any) -> None:
    plan = plan_bodies([f"#do {json.dumps(value)}"])
    for step in plan:
        check, beside = VERBS[step.verb]
        assert step.verb == "late" or check.holds(step.value)
        assert set(step.options) <= {*beside, "ms"}
