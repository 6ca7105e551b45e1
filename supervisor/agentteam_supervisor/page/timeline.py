"""
A run as a picture: lanes of what happened in it, over time (pure).

Made of the session's journal as it comes over HTTP. A run that was cut for an urgent
message goes on until that message is read, so that the whole way is in one picture.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from attrs import define, field, frozen

from agentteam_protocol.activity import Language

Json = Mapping[str, Any]

WIDTH, LEFT, RIGHT, TOP, LANE = 920, 110, 24, 34, 34
SHOWN = 44  # letters of a label
LETTER = 7.0  # its width, about
# Coarse enough that a picture has four to ten of them.
STEPS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

COLOURS = {
    "run": "#3a6fd8",
    "cut": "#c2452d",
    "tool": "#7b5cc4",
    "approval": "#b07a00",
    "message": "#1c7a45",
    "late": "#8a8f99",
}
WORDS: dict[str, tuple[str, str]] = {
    "run": ("run", "run"),
    "tool": ("tools", "工具"),
    "approval": ("approvals", "审批"),
    "cut": ("cut", "打断"),
    "message": ("messages", "消息"),
    "late": ("late", "迟到"),
    "requested": ("asked to interrupt", "请求打断"),
    "closed": ("generation closed", "该代已关闭"),
    "read": ("read: ", "已读："),
}


@frozen
class Bar:
    """From `start` to `end` in seconds; without an end it is a mark."""

    lane: str
    label: str
    start: float
    end: float | None = None
    colour: str = ""


@define
class _Picture:
    language: Language
    began: float
    bars: list[Bar] = field(factory=list[Bar])
    open: dict[tuple[str, str], tuple[float, str]] = field(
        factory=dict[tuple[str, str], tuple[float, str]]
    )

    def say(self, word: str) -> str:
        english, chinese = WORDS[word]
        return chinese if self.language is Language.zh else english

    def begin(self, lane: str, key: str, at: float, label: str) -> None:
        self.open[lane, key] = (at, label)

    def end(self, lane: str, key: str, at: float, more: str = "") -> None:
        start, label = self.open.pop((lane, key), (at, ""))
        self.bars.append(Bar(lane, f"{label}{more}", start, at))

    def mark(self, lane: str, at: float, label: str) -> None:
        self.bars.append(Bar(lane, label, at))


def draw_run(entries: Iterable[Json], run: str, language: Language) -> str | None:
    """Draw a run as SVG; None if the journal knows nothing of it."""
    chosen = _of_run(entries, run)
    if not chosen:
        return None
    picture = _Picture(language, _seconds(chosen[0]))
    at = 0.0
    for entry in chosen:
        at = max(at, _seconds(entry) - picture.began)
        _take(picture, entry["event"], at)
    for lane, key in list(picture.open):
        picture.end(lane, key, at, " …")
    return _svg(picture, max(at, 0.001), run)


def _of_run(entries: Iterable[Json], run: str) -> list[Json]:
    """Take its turns, and what follows a cut until the urgent message is read."""
    chosen: list[Json] = []
    mine = urgent = False
    for entry in entries:
        event = entry["event"]
        kind = event["kind"]
        if kind == "turn/start":
            mine = event["runId"] == run
        if mine or (chosen and urgent):
            chosen.append(entry)
        if kind == "turn/end" and mine:
            urgent = event.get("cause") == "urgent"
            mine = event["outcome"] == "aborted" and not urgent
        elif kind == "user/message" and urgent:
            break
        elif kind == "fence/closed" and not urgent:
            mine = False
    return chosen


def _take(p: _Picture, event: Json, at: float) -> None:
    match event["kind"]:
        case "turn/start":
            p.begin("run", "", at, f"{event['gen'][0]}.{event['gen'][1]}")
        case "turn/end":
            p.end("run", "", at, f" · {event['outcome']}")
        case "tool/call":
            p.begin("tool", str(event["callId"]), at, str(event["name"]))
        case "tool/result":
            p.end("tool", str(event["callId"]), at)
        case "approval/asked":
            asked = event["request"]
            p.begin("approval", str(asked["id"]), at, str(asked["toolName"]))
        case "approval/decided":
            p.end("approval", str(event["id"]), at, f" · {event['outcome']}")
        case "interrupt/requested":
            p.begin("cut", "", at, p.say("requested"))
        case "fence/closed":
            p.end("cut", "", at, f" → {p.say('closed')}")
        case "user/message":
            p.mark("message", at, p.say("read") + _short(event["body"], 30))
        case "fence/late":
            p.mark("late", at, _short(event["what"], SHOWN))
        case _:
            pass


def _seconds(entry: Json) -> float:
    return datetime.datetime.fromisoformat(entry["at"]).timestamp()


def _short(text: Any, most: int) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _svg(p: _Picture, length: float, title: str) -> str:
    lanes = [lane for lane in COLOURS if any(bar.lane == lane for bar in p.bars)]
    height = TOP + LANE * len(lanes) + 12
    scale = (WIDTH - LEFT - RIGHT) / length
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img" aria-label={quoteattr(title)}'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *_axis(length, scale, height),
    ]
    for index, lane in enumerate(lanes):
        y = TOP + LANE * index
        parts.append(
            f'<text x="12" y="{y + 20}" fill="#333a45">{escape(p.say(lane))}</text>'
        )
        mine = [bar for bar in p.bars if bar.lane == lane]
        parts += _lane(mine, y, scale, COLOURS[lane])
    return "\n".join([*parts, "</svg>"])


def _axis(length: float, scale: float, height: int) -> Iterable[str]:
    step = next((s for s in STEPS if length / s <= 8), length / 4)
    for n in range(int(length / step) + 1):
        x = LEFT + n * step * scale
        yield (
            f'<path d="M{x:.1f} {TOP - 8}V{height - 8}" stroke="#dfe3ea"/>'
            f'<text x="{x:.1f}" y="18" fill="#5a6270" text-anchor="middle">'
            f"{_time(n * step)}</text>"
        )


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"


def _lane(bars: Sequence[Bar], y: int, scale: float, colour: str) -> Iterable[str]:
    taken = 0.0
    for bar in bars:
        x = LEFT + bar.start * scale
        tip = f"<title>{escape(bar.label)}</title>"
        if bar.end is None:
            wide = 6.0
            yield f'<circle cx="{x:.1f}" cy="{y + 15}" r="5" fill="{colour}">{tip}</circle>'
        else:
            wide = max(2.0, (bar.end - bar.start) * scale)
            yield (
                f'<rect x="{x:.1f}" y="{y + 6}" width="{wide:.1f}" height="18" rx="3"'
                f' fill="{colour}">{tip}</rect>'
            )
        yield _label(x, y, wide, bar.label, taken)
        taken = x + wide


def _label(x: float, y: int, wide: float, label: str, taken: float) -> str:
    """Write inside the bar if it fits, else beside it where there is room, or not."""
    shown = _short(label, SHOWN)
    needed = LETTER * len(shown)
    if wide > needed + 8:
        return _text(x + 5, y, "#ffffff", "start", shown)
    if x + wide + needed < WIDTH - 4:
        return _text(x + wide + 5, y, "#333a45", "start", shown)
    if x - needed > taken:
        return _text(x - 6, y, "#333a45", "end", shown)
    return ""


def _text(x: float, y: int, colour: str, anchor: str, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y + 20}" fill="{colour}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
