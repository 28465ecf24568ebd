"""Webhooks: signed POST requests, to this machine or to hosts that the settings list.

Requests are made in worker threads, by the client of the standard library over connections that
stay open: that takes a fifth of the processor time of httpx, and none of it on the event loop
(docs/figures.md, "Webhooks").
Source: docs/notifications.md, "Webhooks";
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
"""

import base64
import math
import select
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import anyio.to_thread
from standardwebhooks import Webhook

from app_server import VERSION
from app_server.notifications.attempt import Attempt
from app_server.notifications.settings import (
    MAX_TARGETS,
    SecretUnusable,
    Target,
    read_secrets,
)
from app_server.runtime.clock import Clock
from app_server.runtime.http.loopback_address import is_loopback_address, is_this_machine
from app_server.runtime.http.trusted import trusted_certificates
from app_server.threads.outbox import OutboxEntry

MAX_ANSWER_BYTES = 4_096
"""Of an answer's body; more is not read, and the connection is closed."""
MAX_AT_ONCE = 32
"""Worker threads that make requests."""
MAX_IDLE = 8
"""Connections that stay open between requests; beyond that the oldest is closed."""
SECRETS_S = 5.0
"""Seconds for which secrets are not read again."""
MAX_RETRY_AFTER_S = 3_600.0
GONE = 410
LOOPBACK = ("127.0.0.1", "::1")
"""Addresses of `localhost` and names below it, which no resolver is asked for."""


class Webhooks:
    """All webhooks of a server, and their connections."""

    def __init__(self, certificates: ssl.SSLContext, clock: Clock, answer_s: float) -> None:
        """Allow an attempt `answer_s` seconds."""
        self._certificates = certificates
        self._clock = clock
        self._answer_s = answer_s
        self._secrets: dict[Path, tuple[float, Sequence[str]]] = {}
        """By file, with the time at which it was read: as many as there are webhooks."""
        self._route_of = lru_cache(MAX_TARGETS)(_route_of)
        self._idle: list[_Connection] = []
        self._workers = anyio.CapacityLimiter(MAX_AT_ONCE)

    @classmethod
    async def open(cls, clock: Clock, answer_s: float) -> Self:
        """Read the certificates that are trusted."""
        return cls(await trusted_certificates(), clock, answer_s)

    def close(self) -> None:
        """Close its connections."""
        while self._idle:
            self._idle.pop().close()

    async def send(self, entry: OutboxEntry, target: Target) -> Attempt:
        """Send an entry once; it is delivered when the receiver answers 2xx."""
        assert target.secret_file is not None
        try:
            secrets = await self._secrets_of(target.secret_file)
        except SecretUnusable as exc:
            return Attempt(f"`secret_file` {exc}")
        headers = signed_headers(entry.id, entry.body, secrets, self._clock.now_ms())
        try:
            with anyio.fail_after(self._answer_s):
                return await self._post(self._route_of(target.url), headers, entry.body.encode())
        except TimeoutError:
            return Attempt(f"no answer within {self._answer_s:g} s")
        except _ProxyUnusable:
            return Attempt("the proxy that the environment names must be an http address")
        except (OSError, HTTPException) as exc:
            # Its text may repeat the address.
            return Attempt(f"cannot be reached: {type(exc).__name__}")

    async def _secrets_of(self, file: Path) -> Sequence[str]:
        """Return the secrets of a file as they were within SECRETS_S.

        Raises:
            SecretUnusable
        """
        known = self._secrets.get(file)
        if known is None or anyio.current_time() - known[0] > SECRETS_S:
            secrets = await anyio.to_thread.run_sync(read_secrets, file)
            known = self._secrets[file] = anyio.current_time(), secrets
        return known[1]

    async def _post(self, route: "_Route", headers: Mapping[str, str], body: bytes) -> Attempt:
        while (idle := self._take(route)) is not None:
            # The receiver may have closed it just now.
            with suppress(ConnectionError):
                return await self._exchange(idle, headers, body)
        connection = _Connection(route, self._certificates, self._answer_s)
        return await self._exchange(connection, headers, body)

    def _take(self, route: "_Route") -> "_Connection | None":
        """Return an open connection of a route, the one that was used last."""
        for connection in reversed(self._idle):
            if connection.route == route:
                self._idle.remove(connection)
                if connection.is_silent:
                    return connection
                connection.close()
        return None

    async def _exchange(
        self, connection: "_Connection", headers: Mapping[str, str], body: bytes
    ) -> Attempt:
        exchange = partial(connection.exchange, headers, body)
        try:
            attempt = await anyio.to_thread.run_sync(
                exchange, abandon_on_cancel=True, limiter=self._workers
            )
        except BaseException:
            connection.abandon()
            raise
        if connection.sock is not None:
            self._idle.append(connection)
            if len(self._idle) > MAX_IDLE:
                self._idle.pop(0).close()
        return attempt


def signed_headers(
    message_id: str, body: str, secrets: Sequence[str], now_ms: int
) -> dict[str, str]:
    """Return the headers of an attempt; each secret gives a signature."""
    at = datetime.fromtimestamp(now_ms // 1000, UTC)
    signatures = [Webhook(secret).sign(message_id, at, body) for secret in secrets]
    return {
        "content-type": "application/json",
        "user-agent": f"app-server/{VERSION}",
        "webhook-id": message_id,
        "webhook-timestamp": str(now_ms // 1000),
        "webhook-signature": " ".join(signatures),
    }


# The way to a receiver.


class _ProxyUnusable(OSError):
    """The environment names a proxy that is not spoken to in plain HTTP."""


@dataclass(frozen=True, slots=True)
class _Route:
    addresses: Sequence[str]
    """To be connected to: the first one that answers."""
    port: int
    host: str
    """As requests name it, with the port if the address does."""
    path: str
    """With the query."""
    tls_name: str | None
    """Name that the certificate must have; None: there is no TLS."""
    tunnel: tuple[str, int] | None = None
    """Host and port to ask a proxy at the address for."""
    proxy_authorization: str | None = field(default=None, repr=False)


def _route_of(url: str) -> _Route:
    """Return the way to an address that the settings allow.

    Raises:
        _ProxyUnusable
    """
    parts = urlsplit(url)
    name, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    # A resolver, or whoever answers in its place, has no say in where `localhost` is.
    is_localhost = is_this_machine(name) and not is_loopback_address(name)
    addresses = LOOPBACK if is_localhost else (name,)
    direct = _Route(addresses, port, parts.netloc, path, name if is_tls else None)
    proxies = {} if is_this_machine(name) or proxy_bypass(name) else getproxies()
    proxy = proxies.get("https") or proxies.get("all")
    if proxy is None:
        return direct
    there = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if there.scheme != "http" or not there.hostname:
        raise _ProxyUnusable
    authorization = None
    if there.username is not None:
        words = f"{unquote(there.username)}:{unquote(there.password or '')}"
        authorization = f"Basic {base64.b64encode(words.encode()).decode()}"
    return replace(
        direct,
        addresses=(there.hostname,),
        port=there.port or 80,
        tunnel=(name, port),
        proxy_authorization=authorization,
    )


# Requests, in worker threads.


class _Connection(HTTPConnection):
    """A connection, which one worker thread uses at a time."""

    def __init__(self, route: _Route, certificates: ssl.SSLContext, step_s: float) -> None:
        """Let each step, such as the wait for bytes, take `step_s` seconds."""
        super().__init__(route.addresses[0], route.port, timeout=step_s)
        self.route = route
        self._certificates = certificates
        self._lock = threading.Lock()
        self._is_busy = self._is_abandoned = False
        if route.tunnel is not None:
            authorization = route.proxy_authorization
            headers = {} if authorization is None else {"Proxy-Authorization": authorization}
            self.set_tunnel(*route.tunnel, headers)

    def connect(self) -> None:
        """Connect to the first address that answers. Blocks.

        Raises:
            OSError
        """
        *first, last = self.route.addresses
        for self.host in first:
            with suppress(ConnectionRefusedError):
                super().connect()
                break
        else:
            self.host = last
            super().connect()
        if self._is_abandoned:
            raise ConnectionAbortedError
        if self.route.tls_name is not None:
            self.sock = self._certificates.wrap_socket(
                self.sock, server_hostname=self.route.tls_name
            )

    def exchange(self, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Make a request and read the beginning of its answer. Blocks.

        Raises:
            OSError, HTTPException: it cannot be reached, or its answer makes no sense.
        """
        with self._lock:
            if self._is_abandoned:
                raise ConnectionAbortedError
            self._is_busy = True
        is_whole = False
        try:
            self.request("POST", self.route.path, body, {"host": self.route.host, **headers})
            response = self.getresponse()
            response.read(MAX_ANSWER_BYTES)
            is_whole = response.isclosed()
        finally:
            with self._lock:
                self._is_busy = False
                if self._is_abandoned or not is_whole:
                    self.close()
        if 200 <= response.status < 300:
            return Attempt()
        return Attempt(
            f"answered {response.status}",
            is_gone=response.status == GONE,
            after_s=_seconds(response.headers.get("retry-after", "")),
        )

    @property
    def is_silent(self) -> bool:
        """Whether it is open, and its receiver has neither closed it nor said anything."""
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        return not waiting.poll(0)

    def abandon(self) -> None:
        """Close it, also while a worker is in the middle of a request."""
        with self._lock:
            self._is_abandoned = True
            if not self._is_busy:
                self.close()
            elif (connected := self.sock) is not None:
                # The worker wakes up, and closes it.
                with suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)


def _seconds(text: str) -> float:
    """Read a Retry-After in seconds; a date counts as none."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else 0.0
