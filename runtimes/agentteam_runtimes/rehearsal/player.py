"""Plays the steps of a turn. Standard library only."""

from __future__ import annotations

import base64
import os
import signal
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentteam_runtimes.rehearsal.script import Step
    from agentteam_runtimes.rehearsal.shells import Shell
    from agentteam_runtimes.rehearsal.stage import Stage, Turn

WORD_MS = 30
STDERR_LINE = b"rehearsal: a line of diagnostics that nobody asked for, to fill it up\n"
# How long a signal may take to end us; what survives it plays on.
DYING_SECONDS = 0.5
ALLOWED = "allowed-once"


class Ended(Exception):
    """The turn is over here."""

    def __init__(self, status: str, detail: str = "", text: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.detail = detail
        self.text = text


class Player:
    """
    Plays one turn, or a step of a turn that has ended (`late`).

    An interrupt ends every wait of a turn, and no wait of a late step.
    """

    def __init__(self, stage: Stage, turn: Turn, *, late: bool = False) -> None:
        self._stage = stage
        self._turn = turn
        self._late = late
        self._allowed = True
        self._verbs: dict[str, Callable[[Step], None]] = {
            "say": self._say,
            "run": self._run,
            "ask": self._ask,
            "send": self._send,
            "read": self._read,
            "wait": self._wait,
            "deaf": self._deaf,
            "late": self._keep_late,
            "raw": self._raw,
            "bytes": self._bytes,
            "stderr": self._stderr,
            "spawn": self._spawn,
            "exit": self._exit,
            "die": self._die,
            "lose": self._adopt,
            "delay": self._adopt,
            "refuse": self._adopt,
            "fail": self._fail,
            "end": self._end,
            "last": self._last,
            "close": self._close,
        }

    def play(self, step: Step) -> None:
        """Play one step; raises `Ended`."""
        passed_over = step.verb == "run" and not self._allowed
        self._allowed = True
        if not passed_over:
            self._verbs[step.verb](step)

    def pause(self, ms: float | None, until: Callable[[], bool] | None = None) -> None:
        """Wait; raises `Ended` when the turn is interrupted meanwhile."""
        seconds = None if ms is None else ms / 1000
        with self._stage.changed:
            self._stage.changed.wait_for(
                lambda: self._is_cut() or (until is not None and until()), seconds
            )
            self.check()

    def check(self) -> None:
        """Raise `Ended` when the turn is interrupted."""
        if self._turn.interrupted and not self._late:
            raise Ended("interrupted")

    def emit(self, type: str, **fields: Any) -> None:
        """Tell the host something of this turn."""
        self._stage.outlet.send(type, turn=self._turn.id, **fields)

    def _is_cut(self) -> bool:
        return self._turn.interrupted and not self._late

    def _say(self, step: Step) -> None:
        if "times" in step.options:
            self._said(step.value * step.options["times"])
            return
        words = step.value.split(" ")
        for word in [f"{word} " for word in words[:-1]] + words[-1:]:
            self.emit("delta", text=word)
            self.pause(step.options.get("ms", WORD_MS))
        self._said(step.value)

    def _said(self, text: str) -> None:
        self._turn.text = text
        self.emit("said", text=text)

    def _run(self, step: Step) -> None:
        # Here because most processes run no tool: it costs a third of the start.
        from agentteam_runtimes.rehearsal.shells import Shell

        call, stage = self._stage.name("call"), self._stage
        ended = threading.Event()

        def on_end(shell: Shell) -> None:
            code = shell.returncode
            error = None if code == 0 else f"exit code {code}"
            self.emit("tool_ended", call=call, output=shell.output, error=error)
            with stage.changed:
                stage.shells.discard(shell)
                ended.set()
                stage.changed.notify_all()

        self.emit("tool_started", call=call, name="shell", input=step.value)
        with stage.changed:
            shell = Shell(
                step.value,
                lambda text: self.emit("tool_output", call=call, text=text),
                on_end,
            )
            stage.shells.add(shell)
        try:
            self.pause(None, ended.is_set)
        except Ended:
            if stage.config.get("killChildren"):
                shell.kill()
            raise

    def _ask(self, step: Step) -> None:
        ask = self._stage.name("ask")
        try:
            outcome = self._question(
                ask,
                "asked",
                ask=ask,
                tool=step.value,
                input=step.options.get("input", ""),
                reason=step.options.get("reason"),
            )
        except Ended:
            self.emit("ask_closed", ask=ask)
            raise
        self._said(f"{step.value}: {outcome}")
        self._allowed = outcome == ALLOWED

    def _send(self, step: Step) -> None:
        target = step.options.get("target", f"@{self._stage.agent}")
        self._tool("send_message", "send", target=target, text=step.value)

    def _read(self, step: Step) -> None:
        after = step.options.get("after")
        self._tool("read_history", "read", target=step.value, after=after)

    def _tool(self, name: str, type: str, **fields: Any) -> None:
        call = self._stage.name("call")
        text, error = self._question(call, type, call=call, **fields)
        self._stage.record.show(text)
        self._said(f"{name} failed: {text}" if error else f"{name}: {text}")

    def _question(self, name: str, type: str, **fields: Any) -> Any:
        self._stage.expect(name)
        try:
            self.emit(type, **fields)
            self.pause(None, lambda: self._stage.reply_to(name) is not None)
            return self._stage.reply_to(name)
        finally:
            self._stage.forget(name)

    def _wait(self, step: Step) -> None:
        self.pause(step.value)

    def _deaf(self, step: Step) -> None:
        self._stage.habits.deaf.update(step.value)
        self._stage.wake()

    def _keep_late(self, step: Step) -> None:
        self._turn.late.append(step)

    def _raw(self, step: Step) -> None:
        text = step.value.encode("utf-8", "surrogatepass")
        self._stage.outlet.write(text, step.options.get("times", 1))

    def _bytes(self, step: Step) -> None:
        self._stage.outlet.write(base64.b64decode(step.value))

    def _stderr(self, step: Step) -> None:
        line = STDERR_LINE if step.options.get("lines", True) else b"x" * 4096
        left = step.value
        while left > 0:
            left -= os.write(2, line[:left])

    def _spawn(self, step: Step) -> None:
        from agentteam_runtimes.rehearsal.shells import spawn

        call = self._stage.name("call")
        self.emit("tool_started", call=call, name="spawn", input=step.value)
        pid = spawn(step.value)
        self.emit("tool_ended", call=call, output=str(pid), error=None)

    def _exit(self, step: Step) -> None:
        self._stage.outlet.leave(step.value)

    def _die(self, step: Step) -> None:
        # At this thread: one at the process may let it play on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.Signals[f"SIG{step.value}"])
        if step.value != "STOP":
            time.sleep(DYING_SECONDS)

    def _adopt(self, step: Step) -> None:
        with self._stage.changed:
            self._stage.habits.adopt(step)

    def _fail(self, step: Step) -> None:
        raise Ended("failed", detail=step.value)

    def _end(self, step: Step) -> None:
        detail = step.options.get("detail", "")
        raise Ended(step.value, detail, step.options.get("text"))

    def _last(self, step: Step) -> None:
        self._stage.habits.last_words = (step.value, step.options.get("ms", 0))

    def _close(self, step: Step) -> None:
        if step.value == "stdout":
            self._stage.outlet.close()
        else:
            self._stage.stdin_closed = True
            self._stage.wake()
