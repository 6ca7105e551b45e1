"""
The judge: what an outsider saw, against what the product promises. Pure.

It knows nothing of the journal or the store. Each check gives what is wrong, with the
delivery, run or process that shows it.

| kind | what is wrong |
|---|---|
| lost | an accepted delivery is nowhere, or waits although nothing keeps it waiting |
| silent | it did not arrive, and nobody is told why |
| doubled | the runtime has it twice, and its history does not say so |
| claimed | it counts as surfaced, and the runtime's record does not have it |
| denied | the runtime's record has it, and its state says otherwise |
| guessed | it is unknown although the runtime's record can tell |
| outlived, orphan | a process lived on without the service, or at the end |
| late | output of a run was shown as live after the run's stop or end |
| unsettled | a Stop did not end its run, or not within the bound |
| disorder | the lines of an urgent message are out of order |
| ahead | an agent's message was published before it had read what precedes it |
| fault | the service wrote a trace |
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from attrs import frozen

from agentteam_supervisor.session.deadlines import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentteam_supervisor.chaos.observations import Accepted, Observations

OPEN = frozenset({"queued", "accepted"})
NOT_READ = frozenset({"failed", "blocked", "cancelled", "superseded"})
NEED_WORDS = frozenset({"failed", "blocked", "cancelled", "unknown"})
TOLD_TWICE = "seen twice"
TOLD_READ = "it may have been read"
# These were read as part of another answer, which no record lists by delivery.
SHOWN_BY = frozenset({"read_history", "attached to a held reply"})
URGENT_LINES = re.compile(
    r"requested( stopping( interrupted)?)?( (started|failed))?( failed)?"
)
# Everything the ladder may take, and what a busy machine adds.
SLACK = 5.0


@frozen
class Finding:
    """Something wrong: which rule, whom it is about, and what was seen."""

    kind: str
    about: str
    seen: str


def stop_bound(limits: Limits | None = None) -> float:
    """Give the seconds within which a stopped run has ended, at the worst."""
    limits = limits or Limits()
    stages = (
        limits.interrupt,
        limits.sweep,
        limits.settle,
        limits.terminate,
        limits.kill,
    )
    return sum(stage or 0.0 for stage in stages) + SLACK


def judge(seen: Observations) -> list[Finding]:
    """Hold every promise against what was seen."""
    return [finding for check in _CHECKS for finding in check(seen)]


def _deliveries(seen: Observations) -> Iterator[Finding]:
    reads: dict[str, list[int]] = defaultdict(list)
    for read in seen.reads:
        reads[read.delivery].append(read.attempt)
    for each in seen.accepted:
        view = seen.deliveries.get(each.delivery)
        if view is None:
            yield Finding("lost", each.delivery, "the API does not know it any more")
            continue
        yield from _pending(seen, each, view)
        yield from _read(seen, each, view, reads[each.delivery])


def _pending(
    seen: Observations, each: Accepted, view: Mapping[str, Any]
) -> Iterator[Finding]:
    state = view["state"]
    if state in OPEN and not _has_reason(seen.agents.get(each.agent)):
        yield Finding("lost", each.delivery, f"{state} for ever: {_history(view)}")
    if state in NEED_WORDS and not view.get("diagnostic"):
        yield Finding("silent", each.delivery, f"{state} without a word")


def _has_reason(agent: Mapping[str, Any] | None) -> bool:
    return agent is None or bool(
        agent.get("parked") or agent.get("problem") or agent["status"] != "idle"
    )


def _read(
    seen: Observations, each: Accepted, view: Mapping[str, Any], attempts: list[int]
) -> Iterator[Finding]:
    if each.agent in seen.blind:
        return
    state, about = view["state"], each.delivery
    told_twice = any(TOLD_TWICE in (h.get("note") or "") for h in view["history"])
    what = f"{state}, read as attempts {sorted(attempts)}: {_history(view)}"
    if len(attempts) > 1 and not told_twice:
        yield Finding("doubled", about, what)
    if state == "surfaced" and not attempts and not _was_shown(view):
        yield Finding("claimed", about, what)
    told_read = any(TOLD_READ in (h.get("note") or "") for h in view["history"])
    if attempts and state in NOT_READ | OPEN and not (told_twice or told_read):
        yield Finding("denied", about, what)
    if state == "unknown":
        yield Finding("guessed", about, what)


def _told(seen: Observations) -> Iterator[Finding]:
    """Hold what models were told against what the deliveries of a message say."""
    views: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in seen.accepted:
        if (view := seen.deliveries.get(each.delivery)) is not None:
            views[each.message].append(view)
    for message, told in seen.told.items():
        states = Counter(view["state"] for view in views[message])
        steps = [h.get("note") or "" for v in views[message] for h in v["history"]]
        again = sum(TOLD_TWICE in note for note in steps)
        what = f"{told}: " + "; ".join(_history(view) for view in views[message])
        surfaced = states["surfaced"]
        if surfaced and not told.most:
            yield Finding("claimed", message, what)
        if told.last > max(surfaced, 1) + states["unknown"] + again:
            yield Finding("doubled", message, what)
        excused = any(TOLD_TWICE in note or TOLD_READ in note for note in steps)
        if told.last and not (surfaced or states["unknown"] or excused):
            yield Finding("denied", message, what)


def _was_shown(view: Mapping[str, Any]) -> bool:
    return bool(view["evidence"]) and view["evidence"]["kind"] in SHOWN_BY


def _history(view: Mapping[str, Any]) -> str:
    steps = (
        f"{h['state']}.{h.get('attempt', '')}"
        + (f" ({n})" if (n := h.get("note")) else "")
        for h in view["history"]
    )
    return " > ".join(steps)


def _urgents(seen: Observations) -> Iterator[Finding]:
    lines: dict[str, list[str]] = defaultdict(list)
    for line in seen.activity:
        if line.get("deliveryId"):
            lines[line["deliveryId"]].append(line["kind"])
    for each in seen.accepted:
        view = seen.deliveries.get(each.delivery)
        if not each.urgent or view is None:
            continue
        said = " ".join(lines[each.delivery])
        surfaced = view["state"] == "surfaced" and not _was_in_doubt(view)
        whole = not surfaced or said.endswith("started")
        if not (URGENT_LINES.fullmatch(said) and whole):
            yield Finding("disorder", each.delivery, f"{view['state']}: {said}")


def _was_in_doubt(view: Mapping[str, Any]) -> bool:
    """It was told as failed before a later process knew that it was read."""
    return any(step["state"] == "unknown" for step in view["history"])


def _live(seen: Observations) -> Iterator[Finding]:
    held: set[tuple[str, tuple[int, ...]]] = set()
    ended: set[tuple[str, str]] = set()
    for line in seen.shown:
        here = None if line.generation is None else (line.agent, line.generation)
        run = None if line.run is None else (line.agent, line.run)
        if line.kind == "progress":
            if here in held or run in ended:
                what = f"{line.text!r} of {line.generation}, run {line.run}"
                yield Finding("late", line.agent, what)
        elif line.kind == "stopping" and here is not None:
            held.add(here)
        elif line.kind == "failed" and here is not None:
            held.discard(here)  # the run could not be stopped, and goes on
        elif line.kind == "run_ended" and run is not None:
            ended.add(run)


def _stops(seen: Observations) -> Iterator[Finding]:
    bound = stop_bound()
    for stop in seen.stops:
        if not stop.ended:
            yield Finding("unsettled", stop.run, f"{stop.agent} runs on")
        elif stop.seconds is not None and stop.seconds > bound:
            yield Finding("unsettled", stop.run, f"it took {stop.seconds:.1f} s")


def _processes(seen: Observations) -> Iterator[Finding]:
    for kind, sightings in (("outlived", seen.outlived), ("orphan", seen.orphans)):
        for each in sightings:
            about = f"pid {each.pid}"
            yield Finding(kind, about, f"{each.command} ({each.when})")


def _frontier(seen: Observations) -> Iterator[Finding]:
    """Whatever an agent published, it had read all that precedes it."""
    ids = {view["name"]: agent for agent, view in seen.agents.items()}
    known = {each.message for each in seen.accepted}
    read = _read_times(seen)
    for said in seen.messages:
        author = ids.get(said["author"]["name"])
        if said["author"]["kind"] != "agent" or author is None:
            continue
        for earlier in seen.messages:
            same = earlier["target"] == said["target"]
            if not same or earlier["targetSeq"] >= said["targetSeq"]:
                continue
            if earlier["id"] not in known or earlier["author"] == said["author"]:
                continue
            times = (*read[author, earlier["id"]], *read[author, _place(earlier)])
            if not any(at <= said["createdAt"] for at in times):
                what = f"{said['id']} was published before {earlier['id']} was read"
                yield Finding("ahead", author, what)


def _read_times(seen: Observations) -> dict[tuple[str, str], list[str]]:
    """When each agent read each message: as a delivery, or in a tool's answer."""
    times: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in seen.accepted:
        for step in (seen.deliveries.get(each.delivery) or {}).get("history", ()):
            if step["state"] == "surfaced":
                times[each.agent, each.message].append(step["at"])
    for given in seen.by_tools:
        times[given.agent, f"{given.target} {given.seq}"].append(given.at)
    return times


def _place(message: Mapping[str, Any]) -> str:
    name = message.get("targetName", message["target"])
    return f"{name} {message['targetSeq']}"


def _traces(seen: Observations) -> Iterator[Finding]:
    for trace in seen.traces:
        yield Finding("fault", "the service", trace)


_CHECKS: tuple[Callable[[Observations], Iterator[Finding]], ...] = (
    _deliveries,
    _told,
    _urgents,
    _live,
    _stops,
    _processes,
    _frontier,
    _traces,
)


def count(findings: list[Finding]) -> Counter[str]:
    """Count by kind."""
    return Counter(finding.kind for finding in findings)
