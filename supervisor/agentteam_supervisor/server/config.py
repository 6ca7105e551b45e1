"""What a server is told before it starts."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

DEFAULT_PORT = 8642


@frozen
class ServerConfig:
    """
    Everything that varies between two servers.

    `port` 0 picks a free one. `event_retention` is how many events a client can
    have missed and still resume from the store; `stall` is how long a subscriber
    may leave its socket full before it is cut; `daemon_silence` how long a daemon
    may say nothing (it speaks every 15 seconds) before it counts as gone.
    """

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    event_retention: int = 10_000
    max_body: int = 1024 * 1024
    grace: float = 2.0
    stall: float = 20.0
    keepalive: float = 15.0
    query_timeout: float = 10.0
    handshake_timeout: float = 10.0
    daemon_silence: float = 45.0

    @property
    def database(self) -> Path:
        return self.state_dir / "server.sqlite3"
