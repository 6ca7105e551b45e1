"""
The program's side of the protocol: reads the host's lines, never waits for a turn.

Standard library only. `wire.py` has the table of the lines.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time

from agentteam_runtimes.rehearsal.outlet import Outlet
from agentteam_runtimes.rehearsal.record import NoSession, Record, new_session
from agentteam_runtimes.rehearsal.script import ScriptError, parse_steps
from agentteam_runtimes.rehearsal.stage import Stage, Turn
from agentteam_runtimes.rehearsal.turns import call_later, play_late, run_turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

VERSION = "1"
MAINTAIN_MS = 200
# The interrupt was answered: who starts the next turn at once is not refused.
CUTTING_SECONDS = 1.0


class Refused(Exception):
    """The host gets an error for an answer."""

    def __init__(self, code: str, message: str, named: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.named = named


class Program:
    """One process: one session, one turn at a time."""

    def __init__(self) -> None:
        self._outlet = Outlet()
        self._stage: Stage | None = None
        self._ready = False
        self._wake_read, self._wake_write = os.pipe()
        self._requests: dict[str, Callable[[Stage, Any, dict[str, Any]], None]] = {
            "turn": self._turn,
            "steer": self._steer,
            "interrupt": self._interrupt,
            "history": self._history,
            "maintain": self._maintain,
        }

    def serve(self) -> None:
        """Run until the host closes stdin, or for ever when deaf to that."""
        # Whichever thread a signal hits, this one wakes up and handles it.
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        for line in self._lines():
            try:
                message: dict[str, Any] = json.loads(line)
            except (ValueError, RecursionError):
                continue
            self._take(message)
        self._leave()

    def _lines(self) -> Iterator[bytes]:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        pending = b""
        listening = True
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if self._wake_read in ready:
                os.read(self._wake_read, 64)
                listening = listening and self._still_listens(poll)
            if 0 not in ready or not listening:
                continue
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from lines

    def _still_listens(self, poll: select.poll) -> bool:
        stage = self._stage
        if stage is None or not (stage.stdin_closed or "stdin" in stage.habits.deaf):
            return True
        poll.unregister(0)
        if stage.stdin_closed:
            os.close(0)
        return False

    def _take(self, message: dict[str, Any]) -> None:
        id, op, stage = message.get("id"), message.get("op"), self._stage
        try:
            if op == "hello":
                self._hello(message)
            elif op == "shutdown":
                self._leave()
            elif stage is None or not self._ready:
                raise Refused("not_ready", "hello comes first, then wait for ready")
            elif op == "answer":
                stage.settle(str(message.get("ask")), message.get("outcome"))
            elif op == "tool_result":
                result = (message.get("text", ""), bool(message.get("error")))
                stage.settle(str(message.get("call")), result)
            elif op == "abort":
                self._abort(stage)
            elif op in self._requests:
                self._requests[op](stage, id, message)
            else:
                raise Refused("unknown", f"no such request: {op}")
        except Refused as refusal:
            self._reply_error(id, refusal)
        except OSError as exc:
            self._reply_error(id, Refused("unwritable", f"no record is kept: {exc}"))

    def _hello(self, message: dict[str, Any]) -> None:
        config: dict[str, Any] = message.get("config") or {}
        resume = message.get("session")
        if resume is not None and "resumeError" in config:
            raise Refused("resume_failed", config["resumeError"])
        record = Record(message["dir"], resume or new_session())
        try:
            if resume is not None and config.get("refuseResume"):
                raise NoSession(resume)
            record.open(resume=resume is not None)
        except NoSession:
            raise Refused("no_session", f"no session {resume} here") from None
        stage = Stage(self._outlet, record, config, message.get("agent", ""))
        stage.wake = self._wake
        self._stage = stage
        threading.Thread(target=self._start, args=(stage,), daemon=True).start()

    def _start(self, stage: Stage) -> None:
        """Play the steps of `config.start`, then say that we are ready."""
        from agentteam_runtimes.rehearsal.player import Player

        opening = Turn("start", "", {})
        player = Player(stage, opening)
        try:
            for step in parse_steps(stage.config.get("start", [])):
                player.play(step)
        except ScriptError as exc:
            os.write(2, f"bad script in config.start: {exc}\n".encode())
            self._outlet.leave(2)
        self._ready = True
        self._outlet.send("ready", session=stage.record.session, version=VERSION)
        play_late(stage, opening)

    def _turn(self, stage: Stage, id: Any, message: dict[str, Any]) -> None:
        with stage.changed:
            self._refuse(stage, "turn")
            stage.changed.wait_for(lambda: not _is_being_cut(stage), CUTTING_SECONDS)
            if stage.turn is not None or stage.maintaining is not None:
                named = stage.turn.id if stage.turn else None
                raise Refused("busy", "a turn is running", named)
            number = stage.record.begin(message["batch"])
            bodies = {each["key"]: each["text"] for each in message["items"]}
            turn = Turn(f"turn-{number}", message["batch"], bodies)
            turn.plan = stage.plan_turn(number, list(bodies.values()))
            stage.turn = turn
        late_ack = stage.config.get("turnAck") == "after"

        def reply() -> None:
            self._acknowledge(stage, id, turn=turn.id)

        if not late_ack:
            reply()
        args = (stage, turn, reply if late_ack else lambda: None)
        threading.Thread(target=run_turn, args=args, daemon=True).start()

    def _steer(self, stage: Stage, id: Any, message: dict[str, Any]) -> None:
        with stage.changed:
            self._refuse(stage, "steer")
            if stage.config.get("steer") == "none":
                raise Refused("unsupported", "this session takes no steer")
            turn = self._active(stage, message.get("turn"))
            if stage.habits.take("lose", "steer") is None:
                turn.waiting[message["key"]] = message["text"]
        self._acknowledge(stage, id)

    def _interrupt(self, stage: Stage, id: Any, message: dict[str, Any]) -> None:
        if "interrupt" in stage.habits.deaf:
            return
        with stage.changed:
            self._refuse(stage, "interrupt")
            if stage.config.get("interrupt") == "none":
                raise Refused("unsupported", "this session takes no interrupt")
            self._active(stage, message.get("turn")).interrupted = True
            # Still locked: what was asked for comes after the answer.
            self._acknowledge(stage, id)
            stage.changed.notify_all()

    def _history(self, stage: Stage, id: Any, message: dict[str, Any]) -> None:
        with stage.changed:
            found = {key: _outcome(stage, key) for key in message["keys"]}
        self._reply(id, items=found)

    def _maintain(self, stage: Stage, id: Any, message: dict[str, Any]) -> None:
        with stage.changed:
            if stage.turn is not None or stage.maintaining is not None:
                raise Refused("busy", "a turn is running")
            if message.get("task") != "compact":
                raise Refused("unsupported", f"no such task: {message.get('task')}")
            stage.maintaining = task = object()
        args = (stage, id, task)
        threading.Thread(target=self._compact, args=args, daemon=True).start()

    def _compact(self, stage: Stage, id: Any, task: object) -> None:
        seconds = stage.config.get("maintainMs", MAINTAIN_MS) / 1000
        with stage.changed:
            aborted = stage.changed.wait_for(
                lambda: stage.maintaining is not task, seconds
            )
            if not aborted:
                stage.maintaining = None
        if aborted:
            self._reply_error(id, Refused("aborted", "the task was aborted"))
        else:
            self._reply(id, text="compacted")

    def _abort(self, stage: Stage) -> None:
        if "interrupt" not in stage.habits.deaf:
            with stage.changed:
                stage.maintaining = None
                stage.changed.notify_all()

    def _active(self, stage: Stage, wanted: str | None) -> Turn:
        turn = stage.turn
        if turn is None or turn.closing:
            raise Refused("no_turn", "no turn is running")
        if wanted not in (None, turn.id):
            raise Refused("other_turn", f"not {wanted}: {turn.id} is running", turn.id)
        return turn

    def _refuse(self, stage: Stage, op: str) -> None:
        fault = stage.habits.take("refuse", op)
        if fault is not None:
            raise Refused("refused", f"{op} refused by the script", fault.get("named"))

    def _acknowledge(self, stage: Stage, id: Any, **fields: Any) -> None:
        if stage.habits.take("lose", "ack") is not None:
            return
        delay = stage.habits.take("delay", "ack")
        if delay is None:
            self._reply(id, **fields)
        else:
            call_later(delay.get("ms", 0), lambda: self._reply(id, **fields))

    def _reply(self, id: Any, **fields: Any) -> None:
        self._outlet.send("reply", id=id, **fields)

    def _reply_error(self, id: Any, refusal: Refused) -> None:
        error = {
            "code": refusal.code,
            "message": str(refusal),
            "named": refusal.named,
        }
        self._reply(id, error=error)

    def _wake(self) -> None:
        os.write(self._wake_write, b"!")

    def _leave(self) -> None:
        if self._stage is not None:
            self._stage.kill_shells()
        self._outlet.leave(0)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        # No lock in here: the thread that was interrupted may hold it.
        if self._stage is not None:
            if "TERM" in self._stage.habits.deaf:
                return
            self._stage.kill_shells()
            if self._stage.habits.last_words is not None:
                text, ms = self._stage.habits.last_words
                os.write(1, text.encode())
                time.sleep(ms / 1000)
                os._exit(0)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _outcome(stage: Stage, key: str) -> str:
    if stage.config.get("evidence") == "none":
        return "unknown"
    if key in stage.record.surfaced:
        return "surfaced"
    turn = stage.turn
    waits = turn is not None and (key in turn.unread or key in turn.waiting)
    return "unknown" if waits else "dropped"


def _is_being_cut(stage: Stage) -> bool:
    return stage.turn is not None and stage.turn.interrupted


def serve() -> None:
    """Run the program."""
    Program().serve()
