"""The driver: one host process per session, which keeps its data in a directory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from agentteam_protocol.delivery import Evidence
from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeMissing,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_protocol.ids import ItemId
from agentteam_runtimes import driver as d
from agentteam_runtimes.contained import Contained
from agentteam_runtimes.incarnation import Exit, Incarnation, open_incarnation
from agentteam_runtimes.jsonlines import Noise, decode_line, encode_line
from agentteam_runtimes.last_words import closing, dropped, write_or_refuse
from agentteam_runtimes.waiting import Waiting
from attrs import define, field

HOST = Path(__file__).with_name("host.py")
START_SECONDS = 30.0


@define(eq=False)
class ToyRuntime(Waiting, d.Runtime):
    emit: d.Emit
    incarnation: Incarnation = field(init=False)
    turn: str | None = None  # the one that runs
    answers: dict[str, dict[str, Any]] = field(factory=dict[str, dict[str, Any]])
    items: dict[str, d.InputItem] = field(factory=dict[str, d.InputItem])
    cut: set[str] = field(factory=set[str])

    # What the host says. Called by the reader: nothing here waits.

    def feed(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            message = decode_line(line)
            if isinstance(message, Noise):
                self.emit([d.Noticed("noise on stdout", message.sample)])
            elif "turn" in message:
                self.emit([self.read(d.TurnRef(message["turn"]), message)])
            else:
                self.answers[message["type"]] = message
        self.announce()

    def read(self, turn: d.TurnRef, m: dict[str, Any]) -> d.RuntimeEvent:
        match m["type"]:
            case "started":
                return d.TurnStarted(turn, turn.id)
            case "read":  # the SDK has it in its record: evidence, tied to our key
                item = self.items[m["text"]]
                return d.Surfaced(turn, item.id, item.key, Evidence("recorded"))
            case "delta":
                return d.Output(turn, m["text"])
            case "answer":
                return d.Said(turn, m["text"])
            case "tool":
                return d.ToolStarted(turn, m["call"], "shell", m["text"])
            case "result":
                return d.ToolEnded(turn, m["call"], m["text"])
            case "ended":
                self.turn = None if self.turn == turn.id else self.turn
                left = {self.items[k].id: d.ItemOutcome.dropped for k in m["dropped"]}
                status = d.TurnStatus(m["status"])
                return d.TurnEnded(turn, status, m["detail"], left, m["text"])
            case unknown:
                return d.Noticed("an unknown line", unknown)

    def ended(self, end: Exit) -> None:
        if "ready" in self.answers:  # before, it is the start that fails
            self.emit(closing(end))
        self.exited(RuntimeExited(end.returncode, end.stderr_tail))

    async def tell(self, **order: Any) -> None:
        await write_or_refuse(self.incarnation, encode_line(order))

    # The contract.

    @property
    def containment(self) -> d.Containment:
        return Contained(self.incarnation)

    async def start_turn(self, batch: d.Batch) -> d.TurnRef:
        if self.turn is not None:
            raise d.SubmitRefused("a turn is running", written=False)
        self.items |= {item.key: item for item in batch.items}
        messages = {item.key: item.text for item in batch.items}
        self.turn = batch.id  # the SDK names no turns: each line of it says this
        try:
            await self.tell(op="turn", turn=batch.id, messages=messages)
        except RuntimeRefused as refused:
            self.turn = None
            raise d.SubmitRefused(refused.message, written=False) from refused
        return d.TurnRef(batch.id)

    async def interrupt(self, turn: d.TurnRef | None) -> None:
        wanted = turn.id if turn is not None else self.turn
        if wanted is None:
            raise d.InterruptRefused("no turn is running")
        if wanted == self.turn and wanted not in self.cut:
            self.cut.add(wanted)
            await self.tell(op="interrupt")

    async def history(self, keys: Mapping[str, ItemId]) -> dict[ItemId, d.ItemOutcome]:
        self.answers.pop("history", None)
        await self.tell(op="history")
        await self.until(lambda: "history" in self.answers)
        found = set(self.answers["history"]["ids"])
        surfaced, dropped = d.ItemOutcome.surfaced, d.ItemOutcome.dropped
        absent = dropped if self.turn is None else d.ItemOutcome.unknown
        return {id: surfaced if key in found else absent for key, id in keys.items()}


class ToyDriver(d.Driver):
    name = "toy"
    contract = 1

    def probe(self, options: d.Options) -> d.Capabilities:
        if shutil.which(options.bin or sys.executable) is None:
            raise RuntimeMissing(f"there is no {options.bin}", "set the option `bin`")
        return d.Capabilities(
            version="1.0",
            interrupt=d.Interrupt.turn,
            evidence=d.EvidenceLevel.recorded,
            resume=True,
            batch_input=True,
        )

    @asynccontextmanager
    async def open(
        self, spec: d.SessionSpec, resume: str | None, emit: d.Emit
    ) -> AsyncGenerator[d.Runtime]:
        runtime = ToyRuntime(emit)
        command = [spec.options.bin or sys.executable, str(HOST), str(spec.state_dir)]
        async with open_incarnation(
            command + ([resume] if resume is not None else []),
            cwd=spec.workdir,
            env={"PATH": os.environ["PATH"], **spec.options.env},
            on_lines=runtime.feed,
            on_overlong=lambda line: emit([dropped(line)]),
            on_exit=runtime.ended,
        ) as runtime.incarnation:
            with trio.move_on_after(START_SECONDS) as start:
                await runtime.until(lambda: bool(runtime.answers))
            if start.cancelled_caught:
                raise RuntimeTooSlow("the host did not say that it is ready")
            if "ready" not in runtime.answers:
                raise d.ResumeRefused(f"there is no session {resume}")
            emit([d.SessionNamed(runtime.answers["ready"]["session"])])
            yield runtime
