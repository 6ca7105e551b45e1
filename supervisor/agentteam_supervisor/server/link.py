"""The WebSocket endpoint for daemons: who is let in, and who is spoken to."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from sqlalchemy.exc import SQLAlchemyError
from starlette.websockets import WebSocketDisconnect

from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.errors import RemoteProtocolError
from agentteam_protocol.frames import VERSION, Envelope, Hello, Refused
from agentteam_supervisor.server import agents, frontiers, leases
from agentteam_supervisor.server.connection import GOING_DOWN, UNREADABLE, Connection
from agentteam_supervisor.server.problems import Problem
from agentteam_supervisor.server.writer import StoreUnwritable, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.websockets import WebSocket

    from agentteam_protocol.frames import Answer
    from agentteam_protocol.ids import AgentId
    from agentteam_supervisor.server.config import ServerConfig
    from agentteam_supervisor.server.feed import Feed
    from agentteam_supervisor.server.freshness import Fence
    from agentteam_supervisor.server.http import Connections
    from agentteam_supervisor.server.store import Store
    from agentteam_supervisor.server.transaction import Tx

LOG = logging.getLogger(__name__)

# How long the old connection of a returning daemon may take to end.
REPLACING = 5.0


class Link:
    """One daemon at a time; a second one is refused, and told by whom."""

    def __init__(
        self,
        store: Store,
        feed: Feed,
        sockets: Connections,
        config: ServerConfig,
    ) -> None:
        self._store = store
        self._feed = feed
        self._sockets = sockets
        self._config = config
        self._current: Connection | None = None
        self._door = trio.Lock()
        self._closing = False

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one connection from its handshake to its end."""
        await websocket.accept()
        entered = await self._enter(websocket)
        if entered is None:
            return
        hello, connection = entered
        try:
            session = await self._store.write(
                lambda tx: leases.greet(tx, self._store.id, hello)
            )
            await connection.run(session)
        except WebSocketDisconnect:
            pass
        except StoreUnwritable as exc:
            LOG.error("daemon %s cannot be greeted: %s", hello.daemon, exc)
            await _close(websocket, 1011, "the store cannot be written; come back")
        finally:
            with trio.CancelScope(shield=True):
                await self._leave(connection)

    async def _enter(self, websocket: WebSocket) -> tuple[Hello, Connection] | None:
        """Let the daemon in, or close with the reason why not."""
        try:
            hello = await self._read_hello(websocket)
            return hello, await self._let_in(websocket, hello)
        except WebSocketDisconnect:
            pass
        except _Unwelcome as exc:
            await _refuse(websocket, exc.refused)
        except _GoingDown:
            # Not refused, and nothing that its people should read: it comes again.
            await _close(websocket, *GOING_DOWN)
        except SQLAlchemyError as exc:
            LOG.error("a daemon cannot be let in: %s", words_of(exc))
            await _close(websocket, 1011, UNREADABLE)
        return None

    async def ask(self, agent: AgentId, what: str, arguments: dict[str, Any]) -> Answer:
        """Ask the daemon; raises `Problem` when it is away or does not answer."""
        if self._current is None:
            raise self._away()
        patience = self._config.query_timeout
        answer = await self._current.ask(agent, what, arguments, patience)
        if answer is None:
            detail = "the daemon did not answer; try again"
            raise Problem(503, "daemon_away", detail)
        if not answer.ok:
            raise Problem(502, "daemon_refused", _words(answer.body))
        return answer

    @property
    def connected(self) -> bool:
        return self._current is not None

    def _away(self) -> Problem:
        """While the store takes nothing, no daemon is let in, and this is why."""
        if (trouble := self._store.unstored.problem) is not None:
            detail = f"{trouble['problem']}: {trouble['whatToDo']}; then try again"
            return Problem(507, "store_unwritable", detail)
        detail = f"{agents.NO_DAEMON}; {agents.GET_DAEMON}; then try again"
        return Problem(503, "daemon_away", detail)

    def close(self) -> None:
        """Say goodbye to the daemon, and let nobody in any more."""
        self._closing = True
        if self._current is not None:
            self._current.close(*GOING_DOWN)

    async def _read_hello(self, websocket: WebSocket) -> Hello:
        frames: tuple[Any, ...] = ()
        with trio.move_on_after(self._config.handshake_timeout):
            frames = await _receive_frames(websocket)
        if len(frames) != 1 or not isinstance(frames[0], Hello):
            raise _Unwelcome(
                "a connection begins with one `link:hello`", "fix the client"
            )
        hello = frames[0]
        if hello.version != VERSION:
            raise _Unwelcome(
                f"the daemon speaks version {hello.version} of the link,"
                f" this server version {VERSION}",
                "install the same version of agentteam on both sides",
            )
        return hello

    async def _let_in(self, websocket: WebSocket, hello: Hello) -> Connection:
        async with self._door:
            other = self._current
            if other is not None and other.daemon != hello.daemon:
                raise _Unwelcome(
                    f"daemon {other.name!r} ({other.daemon}) holds the agents already",
                    "stop that daemon first; a server has one daemon",
                )
            if other is not None:
                await self._replace(other)
            if self._closing:
                raise _GoingDown
            fences = await self._store.read(_fences)
            self._current = Connection(
                websocket,
                hello.daemon,
                hello.name,
                self._store,
                self._feed,
                fences,
                partial(self._sockets.cut, websocket.client),
                self._config.daemon_silence,
            )
            return self._current

    async def _replace(self, other: Connection) -> None:
        other.close(1000, "replaced by a newer connection of the same daemon")
        self._sockets.cut(other.client)
        with trio.move_on_after(REPLACING):
            await other.ended.wait()

    async def _leave(self, connection: Connection) -> None:
        try:
            if self._current is connection:
                self._current = None
                await self._store.write(lambda tx: leases.part(tx, connection.daemon))
        except StoreUnwritable as exc:
            # Only what people see of it is stale, until the daemon is back.
            LOG.error("the parting of a daemon was not stored: %s", exc)
        finally:
            connection.ended.set()


class _GoingDown(Exception):
    """This daemon is welcome at the next server."""


class _Unwelcome(Exception):
    def __init__(self, problem: str, what_to_do: str) -> None:
        super().__init__(problem)
        self.refused = Refused(problem, what_to_do)


async def _receive_frames(websocket: WebSocket) -> tuple[Any, ...]:
    try:
        return decode_envelope(await websocket.receive_text()).frames
    except (RemoteProtocolError, KeyError, TypeError) as exc:
        LOG.warning("a daemon's first message is not ours: %s", exc)
        return ()


async def _refuse(websocket: WebSocket, refused: Refused) -> None:
    LOG.warning("a daemon was refused: %s", refused.problem)
    try:
        text = encode_envelope(Envelope((refused,))).decode()
        await websocket.send_text(text)
        await websocket.close(1008, "refused")
    except WebSocketDisconnect:
        pass  # it did not wait for the answer


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with suppress(WebSocketDisconnect):
        await websocket.close(code, reason)


def _fences(tx: Tx) -> dict[AgentId, Fence]:
    return {row["id"]: frontiers.fence_of(row) for row in agents.living(tx)}


def _words(body: Mapping[str, Any]) -> str:
    return str(body.get("problem") or "the daemon refused to answer")
