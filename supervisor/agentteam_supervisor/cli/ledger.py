"""
The ledger of turns, made of a session's journal as it comes over HTTP (pure).

The runs (`/runs`) give each turn its times; the events give what happened in it. A
journal that begins in the middle of a turn, or lacks its runs, still has a ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from agentteam_supervisor.cli.json_object import part
from agentteam_supervisor.cli.output import clean
from agentteam_supervisor.cli.speech import say

WIDTH = 200

Json = Mapping[str, Any]


@frozen
class Turn:
    """`number` None: what happened between turns."""

    number: int | None
    events: list[Json] = field(factory=list[Json])


def turns_of(events: Iterable[Json]) -> list[Turn]:
    """Cut the journal at its turn brackets, in order."""
    turns: list[Turn] = []
    number: int | None = None
    for entry in events:
        event = entry.get("event", entry)
        if event["kind"] == "turn/start":
            number = int(event["turn"])
        if not turns or turns[-1].number != number:
            turns.append(Turn(number))
        turns[-1].events.append(event)
        if event["kind"] == "turn/end":
            number = None
    return turns


def ledger_lines(
    runs: Sequence[Json], events: Iterable[Json], last: int | None = None
) -> Iterator[str]:
    """Make the lines; `last` keeps so many turns and drops what was before them."""
    times = {int(run["turn"]): run for run in runs if "turn" in run}
    found = turns_of(events)
    if last is not None:
        at = [i for i, turn in enumerate(found) if turn.number is not None]
        found = found[at[-last] :] if len(at) > last else found
    for turn in found:
        yield from _turn_lines(turn, times)


def _turn_lines(turn: Turn, times: Mapping[int, Json]) -> Iterator[str]:
    lines = [line for event in turn.events if (line := _line(event))]
    if turn.number is not None:
        yield _heading(turn, times.get(turn.number, {}))
    yield from (f"  {line}" for line in lines)


def _heading(turn: Turn, run: Json) -> str:
    start = turn.events[0]
    run_id = start.get("runId", run.get("runId", run.get("id", "")))
    epoch, number = start.get("gen") or run.get("gen") or ("?", "?")
    head = say(f"turn {turn.number}", f"第 {turn.number} 回合")
    return f"{head}  {run_id}  {epoch}.{number}  {run.get('startedAt', '')}".rstrip()


def _line(event: Json) -> str | None:
    """Say one event in one line; None for what only a machine reads."""
    match event["kind"]:
        case "user/message":
            return f"> {_short(event['body'])}"
        case "assistant/message":
            cut = say(" [cut here]", " [在此被打断]") if event.get("partial") else ""
            return f"< {_short(event['text'])}{cut}"
        case "tool/call":
            return f"* {event['name']} {_short(event.get('input', ''))}".rstrip()
        case "tool/result":
            return f"  = {_short(event.get('error') or event.get('output', ''))}"
        case "approval/asked":
            return f"? {event['request']['toolName']}"
        case "approval/decided":
            return f"  = {event['outcome']}"
        case _:
            return _passage(event)


def _passage(event: Json) -> str | None:
    match event["kind"]:
        case "interrupt/requested":
            who = f" {say('by', '由')} {event['who']}" if event.get("who") else ""
            return say("! interrupt: ", "! 打断：") + str(event["cause"]) + who
        case "fence/closed":
            epoch, number = event["gen"]
            return say(
                f"| generation {epoch}.{number} is closed",
                f"| 第 {epoch}.{number} 代已关闭",
            )
        case "fence/late":
            what = f"{event['what']} {_short(event.get('detail', ''))}".rstrip()
            return say("~ late, not shown live: ", "~ 迟到，未实时显示：") + what
        case "turn/end":
            cause = f" ({event['cause']})" if event.get("cause") else ""
            return f"= {event['outcome']}{cause} {_short(event.get('detail', ''))}".rstrip()
        case "run/notice":
            return f"i {_short(event['text'])}"
        case "delivery/changed":
            proof = part(event, "evidence") or part(event, "diagnostic")
            why = proof.get("kind") or proof.get("problem") or ""
            return f"- {event['delivery']} {event['state']} {_short(why)}".rstrip()
        case _:
            return None


def _short(text: Any) -> str:
    line = clean(" ".join(str(text).split()))
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
