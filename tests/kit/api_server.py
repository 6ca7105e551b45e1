"""A server of the HTTP contract on loopback that says what the test wrote down."""

from __future__ import annotations

import json
import queue
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Generator


@frozen
class Request:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any = None


@define
class ApiServer:
    """
    `answers` maps "METHOD /path" to a list of (status, body): each request takes the
    next one, the last stays. `then` maps it to events that its request brings about.
    """

    url: str = ""
    answers: dict[str, list[tuple[int, Any]]] = field(factory=dict)
    then: dict[str, list[tuple[str, str, Any]]] = field(factory=dict)
    requests: list[Request] = field(factory=list)
    events: queue.Queue[bytes | None] = field(factory=queue.Queue)
    closing: threading.Event = field(factory=threading.Event)
    hello: bytes = b": hello\n\nid: s.0\n\n"  # what every stream begins with
    pings: int = 0  # so many comments keep the stream's line alive

    def answer(self, call: str, *bodies: Any, status: int = 200) -> None:
        self.answers.setdefault(call, []).extend((status, body) for body in bodies)

    def problem(self, call: str, status: int, slug: str, detail: str) -> None:
        body = {"type": slug, "status": status, "detail": detail}
        self.answer(call, body, status=status)

    def cause(self, call: str, *events: tuple[str, str, Any]) -> None:
        self.then.setdefault(call, []).extend(events)

    def emit(self, id: str, name: str, data: Any) -> None:
        head = f"id: {id}\n" if id else ""
        text = f"{head}event: {name}\ndata: {json.dumps(data)}\n\n"
        self.events.put(text.encode())

    def break_stream(self) -> None:
        """End the current connection of the event stream."""
        self.events.put(None)

    def seen(self, call: str) -> list[Request]:
        return [r for r in self.requests if f"{r.method} {r.path}" == call]

    def take(self, request: Request) -> tuple[int, Any]:
        self.requests.append(request)
        call = f"{request.method} {request.path}"
        listed = self.answers.get(call)
        if not listed:
            detail = f"there is no {request.path!r}; check the id or name"
            return 404, {"type": "not_found", "status": 404, "detail": detail}
        for event in self.then.pop(call, []):
            self.emit(*event)
        return listed.pop(0) if len(listed) > 1 else listed[0]


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def _request(self) -> Request:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("Content-Length", 0))
            text = self.rfile.read(length)
            body = json.loads(text) if text else None
            headers = {k.lower(): v for k, v in self.headers.items()}
            return Request(self.command, unquote(path), query, headers, body)

        def do_GET(self) -> None:
            request = self._request()
            if request.path == "/api/events":
                server.requests.append(request)
                self._stream()
            else:
                self._answer(request)

        def do_POST(self) -> None:
            self._answer(self._request())

        do_DELETE = do_PATCH = do_POST

        def _answer(self, request: Request) -> None:
            status, body = server.take(request)
            if status == 0:  # a connection that breaks before the answer
                self.close_connection = True
                return
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(server.hello)
            self.wfile.flush()
            while not server.closing.is_set():
                try:
                    event = server.events.get(timeout=0.05)
                except queue.Empty:
                    if server.pings:
                        server.pings -= 1
                        self.wfile.write(b": still here\n\n")
                        self.wfile.flush()
                    continue
                if event is None:
                    return
                self.wfile.write(event)
                self.wfile.flush()

    return Handler


@contextmanager
def open_api_server() -> Generator[ApiServer]:
    """Serve until the block ends; every connection is closed then."""
    server = ApiServer()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    httpd.daemon_threads = False  # so that closing waits for them
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        httpd.shutdown()
        thread.join()
        httpd.server_close()
