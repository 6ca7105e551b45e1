"""
A runtime that does nothing but answer: the wire of `rehearsal`, as fast as it can.

Run as `python -I -S child.py`; standard library only. What a turn does stands in the
text of its input:

| text         | the turn                                                        |
|--------------|-----------------------------------------------------------------|
| `#flood`     | streams words at full speed until it is interrupted             |
| `#talk`      | says a word every 20 ms until it is interrupted                 |
| `#send N S K`| writes N lines of about S bytes of the kind K, then ends         |
| other        | waits to be interrupted                                         |
"""

from __future__ import annotations

import json
import os
import select

WORD = "w" * 120
NUMBERS = 1000
FLOOD_LINES = 16  # of about 200 bytes: what fits a pipe that is ready for writing


def line(type: str, **fields: object) -> bytes:
    return json.dumps({"type": type, **fields}).encode() + b"\n"


def payloads(turn: str, kind: str, size: int) -> bytes:
    """Write a thousand lines of about `size` bytes (fewer long ones), numbered."""
    bare = len(line(kind, turn=turn, text="#00000000"))
    filling = "x" * max(0, size - bare)
    head, _, tail = line(kind, turn=turn, text="#?").partition(b"?")
    tail = filling.encode() + tail
    return b"".join(head + b"%08d" % number + tail for number in range(NUMBERS))


def write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


class Child:
    def __init__(self) -> None:
        self.turns = 0
        self.flood = b""
        self.word = b""

    def serve(self) -> None:
        pending = b""
        while True:
            if self.flood and not select.select([0], [], [], 0)[0]:
                if select.select([0], [1], [])[1]:
                    os.write(1, self.flood)
                continue
            if self.word and not select.select([0], [], [], 0.02)[0]:
                write(self.word)
                continue
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for each in lines:
                self.take(json.loads(each))

    def take(self, message: dict[str, object]) -> None:
        match message["op"]:
            case "hello":
                write(line("ready", session="bench", version="1"))
            case "turn":
                self.turn(message)
            case "interrupt":
                self.flood = self.word = b""
                write(line("reply", id=message["id"]) + self.end("interrupted"))
            case "history":
                write(line("reply", id=message["id"], items={}))
            case "shutdown":
                os._exit(0)
            case _:
                pass

    def turn(self, message: dict[str, object]) -> None:
        self.turns += 1
        turn = f"turn-{self.turns}"
        items: list[dict[str, str]] = message["items"]  # type: ignore[assignment]  # as the driver writes it
        write(
            line("reply", id=message["id"], turn=turn)
            + line("turn_started", turn=turn, batch=message["batch"])
            + b"".join(line("surfaced", turn=turn, key=i["key"]) for i in items)
        )
        text = items[-1]["text"] if items else ""
        if "#flood" in text:
            self.flood = line("delta", turn=turn, text=WORD) * FLOOD_LINES
        elif "#talk" in text:
            self.word = line("delta", turn=turn, text="word ")
        elif "#send" in text:
            count, size, kind = text.partition("#send")[2].split()[:3]
            self.send(turn, int(count), int(size), kind)

    def send(self, turn: str, count: int, size: int, kind: str) -> None:
        if size > 1 << 16:
            self.send_long(turn, count, size, kind)
        else:
            block = payloads(turn, kind, size)
            assert count % NUMBERS == 0 or count < NUMBERS
            for _ in range(count // NUMBERS):
                write(block)
            for one in block.splitlines(keepends=True)[: count % NUMBERS]:
                write(one)
        write(self.end("completed"))

    def send_long(self, turn: str, count: int, size: int, kind: str) -> None:
        for number in range(count):
            text = f"#{number:08d}" + "x" * size
            write(line(kind, turn=turn, text=text))

    def end(self, status: str) -> bytes:
        turn = f"turn-{self.turns}"
        return line(
            "turn_ended", turn=turn, status=status, detail="", items={}, text=""
        )


if __name__ == "__main__":
    Child().serve()
