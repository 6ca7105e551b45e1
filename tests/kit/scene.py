"""
One situation of the matrix: what was said in it, and what must hold at its end.

The model is the outside checker: what its requests hold of a message is counted against
the deliveries of that message. Processes are found by a number in their command lines,
as those without an environment are.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import trio
from attrs import define, field
from tests.kit import mcp_server
from tests.kit.product import of_kind
from tests.kit.product_agent import TERMINAL, Agent, Live, until
from tests.kit.real_agent import RealAgent
from tests.kit.seat import Seat, kinds

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CUT = ["requested", "stopping", "interrupted", "started"]
# In the tool's own session, in another, and in one without an environment or a parent.
HIDING = (
    '(setsid {sleep} &); (env -i PATH="$PATH" setsid {sleep} >/dev/null 2>&1 &); '
    "touch {begun}; {sleep}"
)
DEAF = (
    "trap '' TERM INT HUP; (env -i PATH=\"$PATH\" setsid {sleep} >/dev/null 2>&1 &); "
    "touch {begun}; {sleep}; touch {late}"
)
STUBBORN = f"trap '' TERM INT HUP; {HIDING}"
LATE = 6  # seconds of a tool that leaves a file at its end


@define(eq=False)
class Scene:
    it: RealAgent[Any, Any]
    live: Live
    seat: Seat
    able: dict[str, Any]
    since: int = 0  # of the journal
    runs_before: int = 0
    requests_before: int = 0
    processes: list[int] = field(factory=list[int])
    messages: list[Any] = field(factory=list[Any])
    tags: list[str] = field(factory=list[str])
    over: bool = False

    @property
    def agent(self) -> Agent:
        return self.it.agent

    async def begins(self) -> None:
        """Note what was before."""
        await self.it.idle()
        self.since = (await self._entries())[-1]["seq"]
        self.runs_before = len(await self.agent.runs())
        self.requests_before = len(self.it.model.requests)
        self.processes = self._lasting()

    # What a person does.

    def body(self, words: str) -> str:
        """Make words that occur once."""
        return f"{words} {next(self.seat.numbers):04};"

    async def note(self, words: str, to: str = "") -> Any:
        """Send an ordinary message."""
        return await self._send(self.body(words), to)

    async def urge(self, words: str) -> str:
        """Send a message and mark it urgent; gives the urgent delivery."""
        return await self.mark(await self.note(words))

    async def mark(self, message: Any) -> str:
        return str((await self.agent.mark(message))["id"])

    async def _send(self, body: str, to: str = "") -> Any:
        message = await self.agent.send(body, to=to)
        self.messages.append(message)
        return message

    async def stop(self, run: str) -> None:
        """Stop a run that may be over."""
        body = {"action": "interrupt_current_run", "runId": run}
        await self.it.product.client.post(f"{self.agent.path}/control", json=body)

    async def parked(self, delivery: str) -> bool:
        """Wait until a delivery has ended or waits for somebody; tells whether it waits."""

        async def look() -> tuple[bool, str]:
            found = await self.it.product.delivery(delivery)
            view = await self.agent.view()
            return view["parked"] and view["status"] == "idle", found["state"]

        seen = await until(look, lambda s: s[0] or s[1] in TERMINAL, self.it.patience)
        return bool(seen[0])

    # What the agent is at.

    async def speaks(self) -> Any:
        """Have it stream words; they are shown, where somebody looks."""
        script = do({"stream": 3000 + next(self.seat.numbers), "ms": 20})
        message = await self._send(script)
        with trio.fail_after(self.it.patience):
            await self.it.model.wait_until_told(script)
            run = (await self.agent.running())["currentRun"]["id"]
            while self.live.open and not self.live.progress(self.agent, run):  # noqa: ASYNC110
                await trio.sleep(0.002)
        return message

    async def answers(self, words: str, pause: int) -> Any:
        """Have it say words, milliseconds apart, to their end."""
        said = f"{words} {next(self.seat.numbers)}"
        return await self._send(do({"say": said, "ms": pause}))

    async def runs(self, shape: str = HIDING) -> Any:
        """Have it run a command that a person allows."""
        tag = f"{next(self.seat.numbers)}{os.getpid()}"
        self.tags.append(tag)
        sleep = f"sleep {LATE if shape is DEAF else 300}.{tag}"
        words = {"sleep": sleep, "begun": f"begun-{tag}", "late": f"late-{tag}"}
        message = await self._send(do({"run": shape.format(**words)}))
        approval = await self.asked()
        await self.it.product.decide(approval["id"], "allowed-once")
        await self.it.appears(words["begun"])
        assert len(self.tools()) >= shape.count("{sleep}")
        return message

    async def asks(self, file: str) -> Any:
        """Have it ask a person for a command that makes a file."""
        await self._send(do({"run": f"touch {file}"}))
        return await self.asked()

    async def asked(self) -> Any:
        view = await self.agent.until(
            lambda view: view["pendingApprovals"], within=self.it.patience
        )
        return view["pendingApprovals"][0]

    def tools(self) -> list[str]:
        """Name the processes that tools of this scene started and that live."""
        found: list[str] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                found += [line for tag in self.tags if f".{tag}" in line]
        return found

    def _lasting(self) -> list[int]:
        """Name what a graceful cut leaves: the runtime, and tool servers of its own."""
        servers = [
            p.pid
            for p in self.it.processes(mcp_server.__file__)
            if mcp_server.__file__ in p.cmdline()
        ]
        assert len(servers) == 1
        return [self.it.runtime().pid, *servers]

    # What must hold.

    async def read(self, message: Any) -> Any:
        """Wait until an ordinary message was read."""
        return await self.it.surfaced(message["deliveries"][0]["id"])

    async def proved_at_last(self, message: Any) -> str:
        """Mark a message urgent, once more if that failed honestly; the delivery."""
        urgent = await self.mark(message)
        found = await self.it.ended(urgent)
        if found["state"] == "failed":
            assert found["evidence"] is None, found
            assert found["diagnostic"]["whatToDo"], found
            urgent = await self.mark(message)
        await self.proved(urgent)
        return urgent

    async def proved(self, urgent: str) -> Any:
        """Wait for the end of an urgent: read, with evidence, where that is declared."""
        found = await self.it.ended(urgent)
        if self.able["evidence"] != "none":
            assert found["state"] == "surfaced", found
            assert found["evidence"]["kind"], found
        else:
            assert (found["state"], found["evidence"]) == ("unknown", None), found
            assert found["diagnostic"]["whatToDo"], found
        assert found["interruptPolicy"] == "interrupt_current_run"
        return found

    async def interrupted(self, urgent: str) -> list[str]:
        """Wait until people are told that the run was cut; gives the tools left then."""
        await self.shown("interrupted", urgent)
        return self.tools()

    async def shown(self, kind: str, delivery: str) -> None:
        with trio.fail_after(self.it.patience):
            while not any(  # noqa: ASYNC110 - the stream tells nobody
                e["kind"] == kind and e["deliveryId"] == delivery
                for e in self.live.of(self.agent)
            ):
                await trio.sleep(0.002)

    async def ends(
        self,
        *order: Any,
        outcomes: Sequence[str] = (),
        ways: Iterable[str] = (),
        killed: bool = False,
    ) -> None:
        """
        Insist on all that holds at the end of every situation.

        `order` are messages in the order in which they are to be read; the runs ended
        with these `outcomes`, or each in one of these `ways` and the last completed.
        """
        for message in self.messages:
            for delivery in await self._deliveries(message):
                await self.it.ended(delivery["id"])
        view = await self.it.idle()
        for message in self.messages:
            await self._as_often_as_told(message)
        assert (view["pendingApprovals"], view["problem"]) == ([], None)
        told = self.it.told
        places = [told.rindex(message["body"]) for message in order]
        assert places == sorted(places), [m["body"] for m in order]
        await self._fenced()
        ended = (await self.agent.outcomes())[self.runs_before :]
        assert ended[-1:] == ["completed"]
        assert set(ended) <= set(ways or outcomes), ended
        assert ways or ended == list(outcomes), ended
        await self._alone()
        if not killed and self.able["interrupt"] != "none":
            assert self._lasting() == self.processes, "nothing of it was killed"
        self.over = True

    async def _as_often_as_told(self, message: Any) -> None:
        """
        Insist that the model was told a message as often as its deliveries say.

        A copy that the runtime had begun with when the urgent copy came may be in its
        record for good: only then it may be told twice, and the delivery says so.
        """
        found = await self._deliveries(message)
        states = Counter(delivery["state"] for delivery in found)
        least, body = states["surfaced"], message["body"]
        most = least + str([d["history"] for d in found]).count("seen twice")
        assert not set(states) - {"surfaced", "superseded", "failed"}, found
        assert least >= 1, found
        assert least <= self.it.told.count(body) <= most, found
        for request in self.it.model.requests[self.requests_before :]:
            assert "\n".join(request.user_texts).count(body) <= most, body

    async def _deliveries(self, message: Any) -> list[Any]:
        found = await self.it.product.get(f"/api/messages/{message['id']}")
        return list(found["deliveries"])

    async def _fenced(self) -> None:
        """Insist that each cut generation is closed, and nothing of its run is live."""
        held = [e["gen"] for e in await self.journal("fence/held")]
        closed = {str(e["gen"]): e for e in await self.journal("fence/closed")}
        epochs = [e["gen"] for e in await self.journal("run/epoch")]
        for gen in held:
            after = [closed[str(gen)]["opened"]] if str(gen) in closed else epochs
            assert after[-1:] > [gen], (held, closed, epochs)
        calls = [e["kind"] for e in await self.journal("tool/call", "tool/result")]
        assert calls.count("tool/call") == calls.count("tool/result"), calls
        events = self.live.of(self.agent)
        for place, event in enumerate(events):
            if event["kind"] in ("stopping", "interrupted"):
                late = of_kind(events[place:], "progress", "tool")
                assert [e for e in late if e["runId"] == event["runId"]] == []

    async def _alone(self) -> None:
        """Insist that nothing of the scene runs: the runtime, and what it always has."""

        async def look() -> dict[str, int]:
            return dict(kinds(self.it.processes()))

        assert self.tools() == []
        await until(look, lambda found: found == dict(self.seat.kinds), 5)

    async def journal(self, *wanted: str) -> list[Any]:
        """Read the events of these kinds that are in the journal since the beginning."""
        events = [entry["event"] for entry in await self._entries()]
        return [e for e in events if e["kind"] in wanted]

    async def tale(self) -> str:
        """Tell all that the journal has of it, for somebody who looks for a fault."""
        return "\n".join(str(entry["event"]) for entry in await self._entries())

    async def _entries(self) -> list[Any]:
        path, found = f"{self.agent.path}/journal", list[Any]()
        while True:
            after = found[-1]["seq"] if found else self.since
            options = {"after": after, "limit": 1000}
            more = (await self.it.product.get(path, params=options))["events"]
            if not more:
                return found
            found += more
