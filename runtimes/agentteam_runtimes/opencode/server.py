"""
Requests to one OpenCode server, and its stream of events.

Every request has a deadline. A failure that the end of the process explains is told as
that: a broken connection is noticed a moment before the exit is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import orjson
import trio

from agentteam_protocol.errors import RuntimeExited, RuntimeRefused, RuntimeTooSlow
from agentteam_runtimes import jsonfields
from agentteam_runtimes.jsonlines import Noise, decode_line, encode_line
from agentteam_runtimes.lines import LineFramer
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.tapped import transport
from agentteam_runtimes.pipes import Portions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agentteam_runtimes.jsonlines import JsonObject

ANSWER_SECONDS = 10.0
EXIT_SECONDS = 0.5
# It sends a heartbeat each 10 s.
SILENCE_SECONDS = 25.0
RECONNECT_SECONDS = (0.05, 0.2, 1.0)


class Unconnected(RuntimeRefused):
    """Not a byte of the request reached the server."""


class BrokenOff(RuntimeRefused):
    """The connection broke: whether the server took the request is not known."""


class Server:
    """One running server, at its address."""

    def __init__(self, url: str, password: str) -> None:
        self.url = url
        self._client = httpx.AsyncClient(
            base_url=url,
            auth=httpx.BasicAuth("opencode", password),
            transport=transport(),
            timeout=None,  # each request is bounded here
            trust_env=False,
        )
        self._gone = trio.Event()
        self._exited: RuntimeExited | None = None

    async def aclose(self) -> None:
        await self._client.aclose()

    def exited(self, error: RuntimeExited) -> None:
        """Fail whatever waits: the process is gone."""
        self._exited = error
        self._gone.set()

    async def get(self, path: str, seconds: float = ANSWER_SECONDS) -> Any:
        """Read; one that hangs or breaks is asked once more."""
        try:
            return await self._request("GET", path, None, seconds)
        except (RuntimeTooSlow, BrokenOff, Unconnected):
            return await self._request("GET", path, None, seconds)

    async def post(
        self,
        path: str,
        body: Mapping[str, object] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """
        Ask for something; raises what `RuntimeFailure` fits, never twice sent.

        `Unconnected`: nothing was written. `BrokenOff`, `RuntimeTooSlow`: who knows.
        Any other `RuntimeRefused`: the server said no.
        """
        return await self._request("POST", path, body, seconds)

    async def delete(self, path: str, seconds: float = ANSWER_SECONDS) -> Any:
        """Delete something; as often as one likes."""
        return await self._request("DELETE", path, None, seconds)

    async def _request(
        self, method: str, path: str, body: Mapping[str, object] | None, seconds: float
    ) -> Any:
        content = None if body is None else encode_line(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            with trio.fail_after(seconds):
                answer = await self._client.request(
                    method, path, content=content, headers=headers
                )
        except trio.TooSlowError as slow:
            raise RuntimeTooSlow(
                f"{method} {path}: no answer in {seconds:g} s"
            ) from slow
        except httpx.ConnectError as error:
            await self._raise_exit()
            raise Unconnected(f"{method} {path}: {error}") from error
        except httpx.HTTPError as error:
            await self._raise_exit()
            raise BrokenOff(f"{method} {path}: {error!r}") from error
        return _read(answer)

    async def _raise_exit(self) -> None:
        with trio.move_on_after(EXIT_SECONDS):
            await self._gone.wait()
        if self._exited is not None:
            raise RuntimeExited(
                self._exited.returncode, self._exited.stderr_tail
            ) from self._exited

    async def follow(
        self,
        receive: Callable[[Sequence[JsonObject]], None],
        connected: Callable[[], None],
    ) -> None:
        """
        Hand on the events until the process is gone; a lost stream is opened again.

        `connected` is called each time: what happened before it was not heard.
        """
        failures = 0
        while self._exited is None:
            try:
                await self._follow_once(receive, connected)
                failures = 0
            except httpx.HTTPError:
                failures += 1
            pause = RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)]
            with trio.move_on_after(pause):
                await self._gone.wait()

    async def _follow_once(
        self,
        receive: Callable[[Sequence[JsonObject]], None],
        connected: Callable[[], None],
    ) -> None:
        framer, portions = LineFramer(), Portions()
        quiet = httpx.Timeout(ANSWER_SECONDS, read=SILENCE_SECONDS)
        async with self._client.stream("GET", wire.EVENTS, timeout=quiet) as answer:
            answer.raise_for_status()
            connected()
            async for data in answer.aiter_raw():
                lines = framer.feed(data)
                framer.take_overlong()
                await portions.serve(lines, lambda some: receive(events_of(some)))


def events_of(lines: Sequence[bytes]) -> list[JsonObject]:
    """Read the events of a stream's lines; what is none of them is left out."""
    data = (line[5:] for line in lines if line.startswith(b"data:"))
    decoded = (decode_line(line) for line in data)
    return [event for event in decoded if not isinstance(event, Noise)]


def _read(answer: httpx.Response) -> Any:
    try:
        body: object = orjson.loads(answer.content) if answer.content else None
    except orjson.JSONDecodeError:
        body = answer.text
    if answer.is_success:
        return body
    said = jsonfields.text(
        jsonfields.mapping(body, "data"), "message"
    ) or jsonfields.text(body, "message")
    message = f"HTTP {answer.status_code}: {said or answer.text[:200]}"
    raise RuntimeRefused(message, str(answer.status_code))
