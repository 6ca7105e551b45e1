"""
The contract between a session and a runtime: types without trio, and two protocols.

An adapter author implements `Driver` and `Runtime` and registers the driver class
under the entry-point group `agentteam.runtimes`.

Rules that a driver keeps:

* `emit` is a plain call that may come from the reader, in any order with the answers
  of the methods below; a driver never waits inside it.
* Every event of a turn carries the runtime's own turn id. `TurnStarted(turn, batch)`
  is emitted before any other event of that turn. A driver never guesses the turn: an
  event that cannot be tied to one has `turn=None`.
* `Surfaced` is emitted only on the runtime's own evidence that the entry is in the
  model's input, tied to our key. Accepting a request is not evidence.
* Each turn ends with exactly one `TurnEnded`, naming what became of each entry that
  the runtime had accepted and not surfaced, as far as the runtime's receipt tells.
  After `Exited` no `TurnEnded` is owed.
* A method raises a `RuntimeFailure` (or the two refusals below) and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy
from agentteam_protocol.delivery import Evidence
from agentteam_protocol.errors import RuntimeFailure, RuntimeRefused
from agentteam_protocol.ids import AgentId, ItemId

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


# The version of this contract. A driver says which one it was written for; what may
# change under a number, and how it is told before, stands in `runtimes/ADAPTERS.md`.
CONTRACT = 1


class Steer(enum.StrEnum):
    none = "none"
    queue = "queue"  # taken, but no sign when the model reads it
    ack = "ack"  # a surfaced sign follows


class Interrupt(enum.StrEnum):
    none = "none"
    turn = "turn"


class EvidenceLevel(enum.StrEnum):
    none = "none"
    recorded = "recorded"  # in the runtime's history, so in the next model request
    requested = "requested"  # in a model request that was sent
    answered = "answered"  # the model answered it


@frozen
class Capabilities:
    """What the installed version can do; declared, never guessed (R65)."""

    version: str
    steer: Steer = Steer.none
    interrupt: Interrupt = Interrupt.none
    evidence: EvidenceLevel = EvidenceLevel.none
    approval_cancel: bool = False
    resume: bool = False
    batch_input: bool = False  # several entries in one submission
    steps: bool = False  # waits for us at step boundaries (the in-process loop)
    tools: bool = False  # offers send_message and read_history to its model
    maintenance: bool = False
    rewind: bool = False  # disabled everywhere for now (R67)


@frozen
class Options:
    """The keys of an agent's `options`, the same for every runtime that is a process."""

    bin: str | None = None
    command: tuple[str, ...] = ()  # for a runtime that has no program of its own
    env: Mapping[str, str] = field(factory=dict[str, str])
    home: str | None = None
    config: Mapping[str, Any] = field(factory=dict[str, Any])
    args: tuple[str, ...] = ()
    resume: str | None = None  # the runtime's own session id to continue


@frozen
class SessionSpec:
    agent_id: AgentId
    agent_name: str
    workdir: Path
    state_dir: Path  # a private directory of this session, made by the caller
    model: str | None = None
    approval_policy: ApprovalPolicy = ApprovalPolicy.ask
    options: Options = field(factory=Options)


@frozen
class TurnRef:
    """The runtime's own name of a turn."""

    id: str


@frozen
class AskRef:
    """The runtime's own name of an ask; opaque to everybody but its driver."""

    id: str


@frozen
class CallRef:
    """The runtime's own name of a call of one of our agent tools."""

    id: str


@frozen
class InputItem:
    """`key` is fresh for each attempt: the id the runtime shall echo as evidence."""

    id: ItemId
    key: str
    text: str


@frozen
class Batch:
    """One submission. Its id is fresh for each attempt."""

    id: str
    items: tuple[InputItem, ...]


class TurnStatus(enum.StrEnum):
    completed = "completed"
    interrupted = "interrupted"
    failed = "failed"
    max_tokens = "max-tokens"


class ItemOutcome(enum.StrEnum):
    """What became of an entry that the runtime accepted and did not surface."""

    surfaced = "surfaced"  # its history has it after all
    dropped = "dropped"  # certainly not in the history: may be sent again
    carried = "carried"  # stays with the runtime, joins its next input: never resend
    unknown = "unknown"


@frozen
class TurnStarted:
    turn: TurnRef
    batch: str


@frozen
class TurnEnded:
    turn: TurnRef
    status: TurnStatus
    detail: str = ""
    items: Mapping[ItemId, ItemOutcome] = field(factory=dict[ItemId, ItemOutcome])
    text: str = ""  # the turn's final answer, for `auto_reply`
    usage: Mapping[str, int] = field(factory=dict[str, int])
    advice: str = ""  # after an error: what a person can do, such as to log in


@frozen
class StepEnded:
    """Only with `Capabilities.steps`: the runtime waits for `next_step`."""

    turn: TurnRef
    more: bool  # it has something to go on with by itself


@frozen
class Surfaced:
    turn: TurnRef
    item: ItemId
    key: str
    evidence: Evidence


@frozen
class Output:
    """A piece of streaming text: live progress, never journalled piece by piece."""

    turn: TurnRef | None
    text: str


@frozen
class Said:
    """A whole message of the model."""

    turn: TurnRef | None
    text: str


@frozen
class ToolStarted:
    turn: TurnRef | None
    call_id: str
    name: str
    input: str = ""


@frozen
class ToolEnded:
    turn: TurnRef | None
    call_id: str
    output: str = ""
    error: str | None = None


@frozen
class Asked:
    turn: TurnRef | None
    ask: AskRef
    tool_name: str
    input: str = ""
    call_id: str | None = None
    reason: str | None = None


@frozen
class AskClosed:
    """The runtime withdrew an ask, or somebody else answered it."""

    ask: AskRef


@frozen
class SendCalled:
    turn: TurnRef | None
    call: CallRef
    target: str  # a name or id, as the model wrote it
    text: str


@frozen
class ReadCalled:
    turn: TurnRef | None
    call: CallRef
    target: str
    after: int | None = None


@frozen
class SessionNamed:
    """The runtime named its own session; never from a hook, only from its init."""

    resume: str


@frozen
class Noticed:
    """
    Something worth a diagnostic: noise, an unknown event, a retry.

    With `told`, people read it among what the agent did.
    """

    what: str
    detail: str = ""
    told: bool = False


@frozen
class Exited:
    """
    The runtime's process is gone, after its last output was read.

    `fault` is set when the stream itself broke ("line over limit"): then the next
    start is a restart with a cause, not a plain end.
    """

    returncode: int | None
    stderr_tail: str = ""
    fault: str = ""


RuntimeEvent = (
    TurnStarted
    | TurnEnded
    | StepEnded
    | Surfaced
    | Output
    | Said
    | ToolStarted
    | ToolEnded
    | Asked
    | AskClosed
    | SendCalled
    | ReadCalled
    | SessionNamed
    | Noticed
    | Exited
)

Emit = Callable[[Sequence[RuntimeEvent]], None]


class SubmitRefused(RuntimeRefused):
    """
    `start_turn` did not take the batch.

    `written` False: not a byte reached the runtime, so it may be sent again. True:
    the outcome is open and the history decides.
    """

    def __init__(self, message: str, *, written: bool, code: str = "") -> None:
        super().__init__(message, code)
        self.written = written


class SteerRefused(RuntimeRefused):
    """`steer` did not take the entry; `written` as in `SubmitRefused`."""

    def __init__(self, message: str, *, written: bool = False, code: str = "") -> None:
        super().__init__(message, code)
        self.written = written


class InterruptRefused(RuntimeRefused):
    """`named` is the turn that the runtime says is active, when it says so."""

    def __init__(self, message: str, named: TurnRef | None = None) -> None:
        super().__init__(message)
        self.named = named


class ResumeRefused(RuntimeFailure):
    """The session to resume does not exist: the one start error with a second try."""


@frozen
class Survivor:
    """A process that is still there although it should be gone."""

    pid: int
    started: int  # its start time in clock ticks: with the pid, its identity
    command: str = ""


class Containment(Protocol):
    """The processes of one incarnation. `open_incarnation` gives one."""

    @property
    def identity(self) -> str:
        """What a later supervisor needs to find and end this tree, as JSON text."""
        ...

    def mark(self) -> int:
        """Now, in the unit of process start times."""
        ...

    def alone(self) -> bool:
        """Tell at once whether nothing but the runtime lives; False: look closer."""
        ...

    async def sweep(self, born_after: int) -> Sequence[Survivor]:
        """End what was born after the mark in another session than the runtime's."""
        ...

    async def terminate(self) -> None:
        """Ask the whole incarnation to end; do not wait."""
        ...

    async def kill(self) -> Sequence[Survivor]:
        """End the whole incarnation, return when nothing is left, or what is."""
        ...


class Runtime(Protocol):
    """
    One live incarnation. Its methods may run at the same time.

    Inherit from it: what a runtime cannot do is left out, and answers as that. Without
    bodies of its own are `containment`, `start_turn` and `interrupt`.
    """

    @property
    def containment(self) -> Containment | None:
        """None: it runs inside our own process."""
        ...

    async def start_turn(self, batch: Batch) -> TurnRef:
        """Submit a batch as a turn of its own; raises `SubmitRefused`."""
        ...

    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        """Hand an entry to the running turn; raises `SteerRefused`."""
        raise SteerRefused("this runtime takes nothing while it runs")

    async def next_step(self, turn: TurnRef, items: Sequence[InputItem]) -> None:
        """Go on after `StepEnded`, with these entries in the model's input."""
        raise RuntimeRefused("this runtime takes its steps by itself")

    async def interrupt(self, turn: TurnRef | None) -> None:
        """
        Cut the turn; return when the runtime took the request.

        The turn is over when its `TurnEnded` comes. With None the driver finds the
        active turn, or waits until it is named. Raises `InterruptRefused`.
        """
        ...

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        """Answer an ask; an unknown or closed one is ignored."""
        return

    async def tool_result(self, call: CallRef, text: str, *, error: bool) -> None:
        """Answer a call of `send_message` or `read_history`."""
        return

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        """
        Tell from the runtime's own record what became of the entries with these keys.

        An entry that it cannot decide is left out, or unknown.
        """
        return {}

    async def maintain(self, task: str) -> str:
        """Run a maintenance task such as `compact`; raises `RuntimeRefused`."""
        raise RuntimeRefused(f"this runtime has no maintenance task {task}")


class Driver(Protocol):
    """
    One per runtime. `name` is what agents name it by.

    `contract` is the `CONTRACT` that it was written for, as a number of its own.
    """

    name: str
    contract: int

    def probe(self, options: Options) -> Capabilities:
        """Look at the installed version; raises `RuntimeMissing` with what to do."""
        ...

    def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AbstractAsyncContextManager[Runtime]:
        """
        Start an incarnation and shake hands; leaving the context ends all of it.

        Raises `RuntimeMissing`, `RuntimeExited`, `RuntimeRefused`, `RuntimeTooSlow`,
        or `ResumeRefused` when the session named by `resume` does not exist.
        """
        ...
