"""Errors as people and programs read them: `application/problem+json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from agentteam_protocol.errors import AgentTeamError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Problem(AgentTeamError):
    """A refusal: a stable slug, and a detail that says what to do."""

    def __init__(self, status: int, slug: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.more = more

    def body(self) -> dict[str, Any]:
        return {
            "type": self.slug,
            "title": self.slug.replace("_", " "),
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        return Response(
            orjson.dumps(self.body()),
            self.status,
            headers,
            "application/problem+json",
        )


def invalid(slug: str, detail: str, **more: Any) -> Problem:
    return Problem(422, slug, detail, **more)


def conflict(slug: str, detail: str, **more: Any) -> Problem:
    return Problem(409, slug, detail, **more)


def unknown(noun: str, name: str) -> Problem:
    """Say that there is no such thing; `noun` names the slug and the list."""
    return Problem(
        404,
        f"unknown_{noun}",
        f"there is no {noun} {name!r}; check the id or name",
    )
