"""A turn from its start to what comes after its end. Standard library only."""

from __future__ import annotations

import functools
import threading

from agentteam_runtimes.rehearsal.player import Ended, Player

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentteam_runtimes.rehearsal.script import Step
    from agentteam_runtimes.rehearsal.stage import Stage, Turn


def run_turn(stage: Stage, turn: Turn, after: Callable[[], None]) -> None:
    """Play a whole turn; `after` is called when its end is told."""
    player = Player(stage, turn)
    end = Ended("completed")
    try:
        _begin(stage, turn, player)
        while (step := _next_step(stage, turn, player)) is not None:
            player.play(step)
    except Ended as exc:
        end = exc
    except (OSError, ValueError) as exc:  # a shell line that cannot be started
        end = Ended("failed", f"{type(exc).__name__}: {exc}")
    with stage.changed:
        turn.closing = True
        stage.turn = None
        _tell_end(stage, turn, end)
        stage.changed.notify_all()
    after()
    play_late(stage, turn)


def play_late(stage: Stage, turn: Turn) -> None:
    """Play what was kept for after the end, in the same instant or on a timer."""
    for step in turn.late:
        play = functools.partial(_play_late_step, stage, turn, step.value)
        if step.options["ms"]:
            call_later(step.options["ms"], play)
        else:
            play()


def call_later(ms: float, call: Callable[[], None]) -> None:
    """Call it on a thread of its own, unless the program ends before."""
    timer = threading.Timer(ms / 1000, call)
    timer.daemon = True
    timer.start()


def _begin(stage: Stage, turn: Turn, player: Player) -> None:
    player.emit("turn_started", batch=turn.batch)
    player.pause(stage.config.get("surfaceMs", 0))
    with stage.changed:
        _surface(stage, turn, player, turn.unread, sign=True)
        turn.unread = []


def _next_step(stage: Stage, turn: Turn, player: Player) -> Step | None:
    """Cross a step boundary: what waits is read there, and only there."""
    with stage.changed:
        player.check()
        turn.plan += [
            step for body in turn.waiting.values() for step in stage.plan_steer(body)
        ]
        sign = stage.config.get("steer") != "queue"
        _surface(stage, turn, player, turn.waiting, sign=sign)
        turn.waiting = {}
        turn.closing = not turn.plan
        return turn.plan.pop(0) if turn.plan else None


def _surface(
    stage: Stage, turn: Turn, player: Player, keys: Iterable[str], *, sign: bool
) -> None:
    for key in keys:
        stage.record.surface(key)
        if stage.config.get("evidence") == "none":
            continue
        if not sign:
            turn.unsigned.append(key)
        elif stage.habits.take("lose", "sign") is None:
            player.emit("surfaced", key=key)


def _tell_end(stage: Stage, turn: Turn, end: Ended) -> None:
    if stage.habits.take("lose", "end") is not None:
        return
    items = dict.fromkeys([*turn.unread, *turn.waiting], "dropped")
    items |= dict.fromkeys(turn.unsigned, "surfaced")
    delay = stage.habits.take("delay", "end")
    _send_end(stage, turn, end, items, 0 if delay is None else delay.get("ms", 0))


def _send_end(
    stage: Stage, turn: Turn, end: Ended, items: dict[str, str], delay: float
) -> None:
    def send() -> None:
        stage.outlet.send(
            "turn_ended",
            turn=turn.id,
            status=end.status,
            detail=end.detail,
            items=items,
            text=turn.text if end.text is None else end.text,
        )

    if delay:
        call_later(delay, send)
    else:
        send()


def _play_late_step(stage: Stage, turn: Turn, step: Step) -> None:
    try:
        Player(stage, turn, late=True).play(step)
    except Ended as end:
        _send_end(stage, turn, end, {}, 0)
