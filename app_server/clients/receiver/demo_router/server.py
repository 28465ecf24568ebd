"""A router on this machine, to try the bridge with, and for tests: streams, acks, redelivery.

Whoever has the key may read and write for every session. It is no router for a network.
Source: docs/receiver.md, "The demo router".
"""

import hmac
import http
import logging
import secrets
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import anyio.to_thread
from pydantic_core import from_json, to_json
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from app_server.clients.receiver.failpoints import reached
from app_server.clients.receiver.ledger import SqliteFile, open_file, read_number
from app_server.clients.receiver.router.envelope import BadEnvelope, parse_envelope
from app_server.clients.receiver.router.wire import (
    MAX_SENT_FRAME_BYTES,
    REPLACED,
    parse_frame,
    render_frame,
)
from app_server.runtime.http.peer_user import refusal_of_stranger
from protocol.model import Json, JsonObject

MAX_WAITING = 1000
"""Signals of one session that it has not acknowledged; the next one is refused."""

MAX_KNOWN = 10_000
"""Acknowledged signals of one session whose ids are remembered, so that none is taken twice."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS signals (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB,
    acked INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, id)
);
CREATE INDEX IF NOT EXISTS by_session ON signals (session, acked, place);
CREATE TABLE IF NOT EXISTS epoch (one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL);
"""


class QueueFull(Exception):
    """A session has not acknowledged as many signals as may wait."""


class RouterStore:
    """The signals of all sessions. Use `open_store`."""

    def __init__(self, file: SqliteFile, epoch: str) -> None:
        self._file = file
        self._epoch = epoch

    def add(self, session: str, signal_id: str, body: bytes) -> bool:
        """Keep a signal for a session; False if it has had one with this id.

        Raises:
            QueueFull
        """
        with self._file.transaction() as sql:
            known = "SELECT count(*) FROM signals WHERE session = ? AND id = ?"
            if read_number(sql, known, session, signal_id):
                return False
            waiting = "SELECT count(*) FROM signals WHERE session = ? AND acked = 0"
            if read_number(sql, waiting, session) >= MAX_WAITING:
                raise QueueFull
            sql.execute(
                "INSERT INTO signals (session, id, body) VALUES (?, ?, ?)",
                (session, signal_id, body),
            )
            return True

    def waiting(self, session: str, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return places and bodies of signals that were not acknowledged, the oldest first."""
        with self._file.transaction() as sql:
            return sql.execute(
                "SELECT place, body FROM signals WHERE session = ? AND acked = 0"
                " AND place > ? ORDER BY place LIMIT ?",
                (session, after, limit),
            ).fetchall()

    def acknowledge(self, session: str, cursor: str) -> None:
        """Delete everything up to a cursor; one of another store has no effect."""
        place = self._place(cursor)
        if place is None:
            return
        with self._file.transaction() as sql:
            sql.execute(
                "UPDATE signals SET acked = 1, body = NULL"
                " WHERE session = ? AND acked = 0 AND place <= ?",
                (session, place),
            )
            sql.execute(
                "DELETE FROM signals WHERE session = ? AND acked = 1 AND place <= (SELECT place"
                " FROM signals WHERE session = ? AND acked = 1"
                " ORDER BY place DESC LIMIT 1 OFFSET ?)",
                (session, session, MAX_KNOWN),
            )

    def cursor(self, place: int) -> str:
        """Return the cursor of a place."""
        return f"{self._epoch}.{place}"

    def _place(self, cursor: str) -> int | None:
        epoch, _, place = cursor.rpartition(".")
        return int(place) if epoch == self._epoch and place.isdecimal() else None


@contextmanager
def open_store(path: Path) -> Iterator[RouterStore]:
    """Open a store, for its owner alone, or make it.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    with open_file(path) as file:
        with file.transaction() as sql:
            for statement in _SCHEMA.split(";"):
                sql.execute(statement)
            sql.execute("INSERT OR IGNORE INTO epoch VALUES (1, ?)", (secrets.token_hex(8),))
            epoch = sql.execute("SELECT value FROM epoch").fetchone()[0]
        yield RouterStore(file, epoch)


logger = logging.getLogger(__name__)

HOW_TO_LET_IN = "It talks to its own user alone."

PAGE = 100
"""Signals that are read from the store at a time."""

MAX_SESSIONS = 100
"""Streams at a time; the next one gets 503."""

MAX_CURSOR_CHARS = 100


@dataclass(eq=False)
class _Stream:
    socket: ServerConnection
    news: anyio.Event


class DemoRouter:
    """Streams of sessions, newest wins."""

    def __init__(self, store: RouterStore, key: str) -> None:
        self._store = store
        self._key = key
        self._streams: dict[str, _Stream] = {}

    @asynccontextmanager
    async def listen(self, port: int = 0) -> AsyncIterator[str]:
        """Listen on 127.0.0.1 while the context lasts; gives the URL for bridges.

        Raises:
            OSError: the port cannot be bound.
        """
        server = await serve(
            self._converse,
            "127.0.0.1",
            port,
            process_request=self._before_upgrade,
            max_size=MAX_SENT_FRAME_BYTES,
            compression=None,
            server_header=None,
        )
        try:
            yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            await server.wait_closed()

    async def _before_upgrade(
        self, connection: ServerConnection, request: Request
    ) -> Response | None:
        given = request.headers.get("Authorization", "")
        if "Origin" in request.headers:
            return connection.respond(http.HTTPStatus.FORBIDDEN, "Not for web pages.\n")
        accepted = connection.transport.get_extra_info("socket")
        if text := await refusal_of_stranger(accepted, HOW_TO_LET_IN):
            return connection.respond(http.HTTPStatus.FORBIDDEN, text)
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "The key is missing.\n")
        if _session(request.path) is None:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "/sessions/NAME/stream\n")
        if len(self._streams) >= MAX_SESSIONS:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "Too many streams.\n")
        return None

    async def _converse(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        session = _session(socket.request.path)
        assert session is not None
        for since in parse_qs(urlsplit(socket.request.path).query).get("since", ()):
            # A bridge that says how far it is has acknowledged as much.
            await self._acknowledge(session, since)
        stream = _Stream(socket, anyio.Event())
        before = self._streams.get(session)
        self._streams[session] = stream
        if before is not None:
            await before.socket.close(REPLACED, "another receiver has this session")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._push, session, stream)
                await self._listen_to(session, socket)
                tasks.cancel_scope.cancel()
        finally:
            if self._streams.get(session) is stream:
                del self._streams[session]

    async def _push(self, session: str, stream: _Stream) -> None:
        sent = 0
        while True:
            stream.news = anyio.Event()
            page = await anyio.to_thread.run_sync(self._store.waiting, session, sent, PAGE)
            for place, body in page:
                frame = render_frame(
                    "signal", cursor=self._store.cursor(place), signal=from_json(body)
                )
                try:
                    await stream.socket.send(frame)
                except ConnectionClosed:
                    return
                reached("router:sent")
                sent = place
            if not page:
                await stream.news.wait()

    async def _listen_to(self, session: str, socket: ServerConnection) -> None:
        try:
            async for text in socket:
                await self._take(session, parse_frame(text) or {}, socket)
        except ConnectionClosed:
            return

    async def _take(self, session: str, frame: JsonObject, socket: ServerConnection) -> None:
        match frame.get("type"):
            case "ack":
                await self._acknowledge(session, frame.get("cursor"))
            case "send":
                await socket.send(await self._route(session, frame.get("signal")))
            case kind:
                logger.debug("a frame was passed over: %.20r", kind)

    async def _acknowledge(self, session: str, cursor: Json) -> None:
        reached("router:acked")
        if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR_CHARS:
            await anyio.to_thread.run_sync(self._store.acknowledge, session, cursor)
            reached("router:forgotten")

    async def _route(self, sender: str, value: Json) -> str:
        """Keep a signal for whom it is to; returns the answer to the sender."""
        signal_id = value.get("signal_id") if isinstance(value, dict) else None
        try:
            envelope = parse_envelope(value)
            if envelope.to is None:
                raise BadEnvelope("`to` is missing")
            # Who sends is not for the sender to say.
            body = to_json({**envelope.to_wire(), "from": sender})
            await anyio.to_thread.run_sync(self._store.add, envelope.to, envelope.id, body)
        except BadEnvelope as exc:
            return render_frame("refused", signal_id=signal_id, reason=str(exc))
        except QueueFull:
            return render_frame("refused", signal_id=signal_id, reason="its queue is full")
        reached("router:stored")
        waiting = self._streams.get(envelope.to)
        if waiting is not None:
            waiting.news.set()
        return render_frame("accepted", signal_id=envelope.id)


async def run(path: Path, key: str, port: int, when_ready: Callable[[str], None]) -> None:
    """Run a router with a store until SIGTERM or SIGINT; `when_ready` is called with its URL.

    Raises:
        OSError: the port cannot be bound, or the store cannot be used.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            with open_store(path) as store:
                async with DemoRouter(store, key).listen(port) as url:
                    when_ready(url)
                    async for _ in signals:
                        break
        except sqlite3.Error as exc:
            raise OSError(f"{path}: {exc}") from exc


def _session(path: str) -> str | None:
    match urlsplit(path).path.split("/"):
        case ["", "sessions", name, "stream"] if 0 < len(name) <= 600:
            return unquote(name)
    return None
