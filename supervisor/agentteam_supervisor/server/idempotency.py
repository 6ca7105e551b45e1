"""One effect per Idempotency-Key: the key stands in the transaction of its effect."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen
from sqlalchemy import bindparam, delete, select

from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.problems import conflict, invalid
from agentteam_supervisor.server.schema import idempotency

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentteam_supervisor.server.transaction import Tx

# Keys are forgotten after this; the table's size is bounded by it alone.
KEPT = 24 * 3600
MAX_KEY = 255

_FORGET = Prepared(
    delete(idempotency).where(idempotency.c.created <= bindparam("before"))
)
_FIND = Prepared(
    select(idempotency).where(
        idempotency.c.scope == bindparam("scope"),
        idempotency.c.key == bindparam("same"),
    )
)
_INSERT = insertion(idempotency)


@frozen
class Reply:
    """What a command answers; `body` None has no content."""

    status: int
    body: Any = None


@frozen
class Key:
    scope: str  # method and path
    key: str
    body_hash: str


def make_key(method: str, path: str, key: str, body: Mapping[str, Any]) -> Key:
    if not 1 <= len(key) <= MAX_KEY:
        detail = f"Idempotency-Key must have 1 to {MAX_KEY} characters"
        raise invalid("invalid_idempotency_key", detail)
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return Key(f"{method} {path}", key, hashlib.sha256(text).hexdigest())


def once(
    tx: Tx, key: Key, command: Callable[[Tx], Reply], now: float | None = None
) -> Reply:
    """
    Run the command, or give the answer that this key got before.

    A command that raises leaves no trace, the key included.
    """
    moment = int(time.time() if now is None else now)
    forget_old(tx, moment)
    known = tx.one(_FIND, scope=key.scope, same=key.key)
    if known is None:
        reply = command(tx)
        tx.run(_INSERT, **_row(key, reply, moment))
        return reply
    if known["body_hash"] != key.body_hash:
        detail = (
            "this Idempotency-Key was used with another body; use a new key, or"
            " repeat the first body"
        )
        raise conflict("idempotency_conflict", detail)
    return Reply(known["status"], known["reply"])


def forget_old(tx: Tx, moment: int) -> None:
    tx.run(_FORGET, before=moment - KEPT)


def _row(key: Key, reply: Reply, moment: int) -> dict[str, Any]:
    return {
        "scope": key.scope,
        "key": key.key,
        "body_hash": key.body_hash,
        "status": reply.status,
        "reply": reply.body,
        "created": moment,
    }
