"""One open incarnation in the hands of a check: every wait has a bound and a reason."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import trio

from agentteam_protocol.errors import RuntimeFailure
from agentteam_protocol.ids import ItemId
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.contained import read_identity
from agentteam_runtimes.driver import (
    Batch,
    Exited,
    InputItem,
    ItemOutcome,
    TurnEnded,
    TurnRef,
    TurnStarted,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.judge import Entry
    from agentteam_runtimes.driver import Runtime
    from agentteam_runtimes.process_table import Process

E = TypeVar("E")
R = TypeVar("R")

SETTLED_SECONDS = 0.3  # what a liar would say at once has been said by then
METHODS = (
    "A method returns, or raises a `RuntimeFailure` and nothing else;"
    " it never waits for more than the runtime's answer."
)
NUMBERS = itertools.count(1)


class Live:
    """A `Runtime`, everything it has told, and the questions a check asks it."""

    runtime: Runtime

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.judge = bench.judge
        # What was told before is of earlier incarnations, or checks.
        self.since = len(self.judge.events)
        self._told = trio.Event()

    def look(self) -> None:
        """Let whoever waits look again: something was told."""
        self._told.set()
        self._told = trio.Event()

    @property
    def entries(self) -> list[Entry]:
        """The entries that this check has sent, to all its incarnations."""
        return list(self.judge.entries.values())[self.bench.known :]

    # Looking at what was told

    def all(
        self, kind: type[E], where: Callable[[E], bool] = lambda _: True
    ) -> list[E]:
        events = self.judge.events[self.since :]
        return [e for e in events if isinstance(e, kind) and where(e)]

    def of(self, turn: TurnRef, kind: type[E]) -> list[E]:
        return self.all(kind, lambda e: getattr(e, "turn", None) == turn)

    def verdict(self) -> None:
        """Raise the first rule that was broken so far."""
        if self.judge.faults:
            raise self.judge.faults[0]

    async def until(
        self,
        kind: type[E],
        where: Callable[[E], bool] = lambda _: True,
        *,
        otherwise: Fault | None = None,
        within: float | None = None,
    ) -> E:
        """Wait for the first such event, told already or not."""
        patience = within or self.bench.patience
        with trio.move_on_after(patience):
            while not (found := self.all(kind, where)):
                await self._told.wait()
            return found[0]
        self.verdict()
        raise otherwise or Fault(
            f"no {kind.__name__} came within {patience:g} s; {self._last()}",
            f"`{kind.__name__}` is emitted when the runtime shows it.",
        )

    async def settle(self, seconds: float = SETTLED_SECONDS) -> None:
        """Give time to what must not come."""
        await trio.sleep(seconds)
        self.verdict()

    def _last(self) -> str:
        told = self.judge.events[self.since :]
        names = [type(event).__name__ for event in told[-5:]]
        return f"the last events were {', '.join(names) or 'none'}"

    # Doing

    def entry(self, body: str) -> InputItem:
        number = next(NUMBERS)
        return InputItem(ItemId(f"item_{number}"), f"key_{number}", body)

    def batch(self, *bodies: str) -> Batch:
        return Batch(f"batch_{next(NUMBERS)}", tuple(map(self.entry, bodies)))

    async def submit(self, batch: Batch) -> TurnRef:
        """Call `start_turn`, which must take the batch."""
        self.judge.submits(batch)
        turn = await self.bounded("start_turn", self.runtime.start_turn(batch))
        self.judge.accepted(batch.items)
        return turn

    async def begin(self, *bodies: str) -> TurnRef:
        """Submit these as a turn, and wait until it has started."""
        batch = self.batch(*bodies)
        turn = await self.submit(batch)
        started = await self.until(TurnStarted, lambda e: e.batch == batch.id)
        if started.turn != turn:
            raise Fault(
                f"start_turn returned the turn {turn.id}, and {started.turn.id} started",
                "`start_turn` returns the runtime's own name of the turn.",
            )
        return turn

    async def ended(self, turn: TurnRef, why: str = "") -> TurnEnded:
        """Wait for the end of the turn; `why` says what should have ended it."""
        patience = self.bench.patience
        ended = await self.until(
            TurnEnded,
            lambda e: e.turn == turn,
            otherwise=Fault(
                f"the turn {turn.id} did not end within {patience:g} s{why};"
                f" {self._last()}",
                "each turn ends with exactly one `TurnEnded`; `interrupt` =="
                " `turn` is declared only if the runtime ends the turn by it.",
            ),
        )
        self.verdict()
        return ended

    async def play(self, *bodies: str) -> TurnEnded:
        return await self.ended(await self.begin(*bodies))

    async def steer(self, turn: TurnRef, body: str) -> Entry:
        """Hand an entry to the turn, which must take it."""
        item = self.entry(body)
        self.judge.steers(item)
        await self.bounded("steer", self.runtime.steer(turn, item))
        self.judge.accepted([item])
        return self.judge.entries[item.key]

    async def interrupt(self, turn: TurnRef | None) -> None:
        await self.bounded("interrupt", self.runtime.interrupt(turn))

    async def next_turn(self) -> TurnEnded:
        """Play a plain turn: the session is usable, and the books agree."""
        batch = self.batch(self.bench.stage.say(self.bench.word()))
        turn = await self.submit(batch)
        ended = await self.ended(turn, " although its model only says a word")
        if ended.status != "completed":
            raise Fault(
                f"the turn after it ended as {ended.status}, and nobody touched it"
                f" ({ended.detail or 'no detail'})",
                "an interrupt concerns the turn it names, is sent once, and leaves the"
                " session usable.",
            )
        self.agree()
        return ended

    async def history(self, *entries: Entry) -> Mapping[ItemId, ItemOutcome]:
        """Ask the runtime's record for these, and let the judge compare."""
        keys = {entry.item.key: entry.item.id for entry in entries}
        found = await self.bounded("history", self.runtime.history(keys))
        for item, outcome in found.items():
            self.judge.tells(item, outcome, "history()")
        self.verdict()
        return found

    def agree(self) -> None:
        """Compare what was said of each entry with what the model was given."""
        for entry in self.entries:
            seen = self.bench.stage.seen(entry.item)
            if seen is None or not entry.accepted:
                continue
            if seen > 1:
                raise Fault(
                    f"{entry} was given to the model {seen} times, and sent once",
                    "what the runtime accepted is never submitted again by the driver,"
                    " not at a resume either.",
                )
            lost = seen == 0 and not entry.at_risk
            if lost and entry.fate is ItemOutcome.surfaced:
                raise Fault(
                    f"{entry} is said to be surfaced, and the model was never given it",
                    "`Surfaced` is emitted only on the runtime's own evidence that the"
                    " entry is in the model's input. Accepting a request is not"
                    " evidence.",
                )
            if seen == 1 and entry.fate is ItemOutcome.dropped:
                raise Fault(
                    f"{entry} is said to be dropped, and the model was given it",
                    "`dropped` means certainly not in the history: it is sent again.",
                )

    async def bounded(self, method: str, call: Awaitable[R]) -> R:
        """Await a method of the driver; it must return, within the patience."""
        patience = self.bench.patience
        with trio.move_on_after(patience), self.lawful(method):
            return await call
        self.verdict()
        raise Fault(
            f"{method}() did not return within {patience:g} s; {self._last()}", METHODS
        )

    @contextmanager
    def lawful(self, method: str) -> Generator[None]:
        """Turn what a method raises into a fault."""
        try:
            yield
        except RuntimeFailure as failure:
            kind = type(failure).__name__
            raise Fault(f"{method}() raised {kind}: {failure}", METHODS) from failure
        except Fault:
            raise
        except Exception as error:  # the boundary: a driver is somebody else's code
            kind = type(error).__name__
            raise Fault(
                f"{method}() raised {kind}: {error}, which is no RuntimeFailure",
                METHODS,
            ) from error

    # Its processes

    @property
    def process(self) -> Process | None:
        """The runtime's own process; None: it runs inside ours, or is gone."""
        contained = self.runtime.containment
        named = read_identity(contained.identity) if contained is not None else None
        return named.runtime.find() if named is not None else None

    async def exit(self, why: str) -> Exited:
        return await self.until(
            Exited,
            otherwise=Fault(
                f"no Exited came within {self.bench.patience:g} s after {why}",
                "`Exited` is emitted when the runtime's process is gone, after its last"
                " output was read.",
            ),
        )

    async def holding(self, name: str) -> Process:
        """Wait for the process that one of the kit's shell programs has become."""
        file = self.bench.workdir / name
        with trio.move_on_after(self.bench.patience):
            while (process := traces.read_pid(file)) is None:  # noqa: ASYNC110 - a file appears
                await trio.sleep(0.02)
            return process
        self.verdict()
        raise Fault(
            f"the tool did not run within {self.bench.patience:g} s; {self._last()}",
            "the stage's `run` makes the model run a shell command as a tool.",
        )
