"""The HTTP of one OpenCode server, with a tap on it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import httpx
from attrs import define, field

from agentteam_runtimes.lines import LineFramer
from agentteam_runtimes.wiretap import Tap, current_tap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


STREAM = "text/event-stream"


def transport() -> httpx.AsyncBaseTransport | None:
    """Give what carries the requests: httpx's own, where no tap is set."""
    tap = current_tap()
    return None if tap is None else Tapped(tap)


@define(eq=False)
class Tapped(httpx.AsyncBaseTransport):
    """Tells of each request, its answer, and the events of a stream; not of headers."""

    tap: Tap
    _inner: httpx.AsyncHTTPTransport = field(factory=httpx.AsyncHTTPTransport)
    _numbers: count[int] = field(factory=lambda: count(1))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number = next(self._numbers)
        body = request.content.decode("utf-8", "replace")
        path = request.url.raw_path.decode()
        asked = {"method": request.method, "path": path, "body": body}
        self.tap({"dir": "in", "request": asked, "number": number})
        answer = await self._inner.handle_async_request(request)
        told: dict[str, object] = {"status": answer.status_code}
        if answer.headers.get("content-type", "").startswith(STREAM):
            assert isinstance(answer.stream, httpx.AsyncByteStream)
            answer.stream = _Heard(self.tap, answer.stream)
        else:
            told["body"] = (await answer.aread()).decode("utf-8", "replace")
        self.tap({"dir": "out", "answer": told, "number": number})
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


@define(eq=False)
class _Heard(httpx.AsyncByteStream):
    tap: Tap
    stream: httpx.AsyncByteStream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        framer = LineFramer()
        async for data in self.stream:
            for line in framer.feed(data):
                if line.startswith(b"data:"):
                    text = line[5:].strip().decode("utf-8", "replace")
                    self.tap({"dir": "out", "event": text})
            yield data

    async def aclose(self) -> None:
        await self.stream.aclose()
