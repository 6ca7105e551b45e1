"""A person at the product, who repeats what was not answered, with the same key."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import httpx
import trio
from attrs import define, field

# So long somebody waits for a service that is down or refuses for the moment.
PATIENCE = 90.0
PAUSE = 0.1
REQUEST = 20.0


class GaveUp(Exception):
    """The service did not answer within the patience of a person."""


@define(eq=False)
class Person:
    """`url` tells where the service is now, None while it is down."""

    url: Callable[[], str | None]
    name: str
    client: httpx.AsyncClient = field(
        factory=lambda: httpx.AsyncClient(
            timeout=REQUEST, trust_env=False, verify=False
        )
    )
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1))

    async def get(self, path: str, **query: Any) -> Any:
        """Get what is there; raises `GaveUp`, None for what does not exist."""
        return (await self._ask("GET", path, params=query))[1]

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Post once, however often it has to be said; gives the status as well."""
        return await self.change("POST", path, json=body)

    async def change(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        key = f"{self.name}-{next(self._numbers)}"
        headers = {"Idempotency-Key": key}
        return await self._ask(method, path, headers=headers, **options)

    async def pages(self, path: str, kind: str, after: int) -> list[Any]:
        """Get a whole list, from a sequence number on."""
        found: list[Any] = []
        while True:
            answer = await self.get(path, after=after, limit=1000)
            page: list[Any] = answer[kind] if answer else []
            found += page
            if len(page) < 1000:
                return found
            after = int(page[-1]["seq"])

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        last = "it was down"
        with trio.move_on_after(PATIENCE):
            while True:
                url = self.url()
                if url is not None:
                    try:
                        answer = await self.client.request(
                            method, url + path, **options
                        )
                    except httpx.HTTPError as exc:
                        last = repr(exc)
                    else:
                        if answer.status_code < 500:
                            return answer.status_code, _body(answer)
                        last = f"{answer.status_code} {answer.text[:300]}"
                await trio.sleep(PAUSE)
        raise GaveUp(f"{method} {path}: {last}")


def _body(answer: httpx.Response) -> Any:
    if answer.status_code == 404:
        return None
    return answer.json() if answer.content else None
