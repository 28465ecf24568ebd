"""Webhooks: signed POST requests, to this machine or to hosts that the settings list.

Importing this module imports httpx: sending.py does it with the first webhook.
Source: docs/notifications.md, "Webhooks";
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
"""

import math
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import httpcore  # noqa: F401
import httpx
from standardwebhooks import Webhook

from app_server import VERSION
from app_server.notifications.attempt import Attempt
from app_server.notifications.settings import SecretUnusable, Target, read_secrets
from app_server.runtime.clock import Clock
from app_server.runtime.http.bounded_body import read_beginning
from app_server.runtime.http.loopback_address import is_loopback_address, is_this_machine
from app_server.runtime.http.trusted import trusted_certificates
from app_server.threads.outbox import OutboxEntry

MAX_ANSWER_BYTES = 4_096
"""Of an answer's body; more is not read, and the connection is closed."""
SECRETS_S = 5.0
"""Seconds for which secrets are not read again."""
MAX_RETRY_AFTER_S = 3_600.0
GONE = 410
LOOPBACK = ("127.0.0.1", "::1")
"""Addresses of `localhost` and names below it, which no resolver is asked for."""


class Webhooks:
    """The HTTP connections of all webhooks."""

    def __init__(self, certificates: ssl.SSLContext, clock: Clock, answer_s: float) -> None:
        """Allow an attempt `answer_s` seconds."""
        self._clock = clock
        self._answer_s = answer_s
        self._secrets: dict[Path, tuple[float, Sequence[str]]] = {}
        """By file, with the time at which it was read: as many as there are webhooks."""
        self._timeout = httpx.Timeout(answer_s).as_dict()
        # Receivers on this machine are reached directly, whatever proxy the environment names; so
        # the connections do without a client, which is a quarter of the work.
        self._here = httpx.AsyncHTTPTransport(verify=certificates, trust_env=False)
        self._elsewhere = httpx.AsyncClient(verify=certificates)

    @classmethod
    async def open(cls, clock: Clock, answer_s: float) -> Self:
        """Read the certificates that are trusted, and make the client."""
        return cls(await trusted_certificates(), clock, answer_s)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._here.aclose()
        await self._elsewhere.aclose()

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
                return await self._post(target.url, headers, entry.body)
        except TimeoutError:
            return Attempt(f"no answer within {self._answer_s:g} s")
        except httpx.TimeoutException:
            return Attempt(f"no answer within {self._answer_s:g} s")
        except httpx.HTTPError as exc:
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

    async def _post(self, address: str, headers: dict[str, str], body: str) -> Attempt:
        url = httpx.URL(address)
        if not is_this_machine(url.host):
            through = partial(self._elsewhere.send, stream=True, follow_redirects=False)
            return await self._ask(through, url, headers, body)
        send = self._here.handle_async_request
        if is_loopback_address(url.host):
            return await self._ask(send, url, headers, body)
        # A resolver, or whoever answers in its place, has no say in where `localhost` is.
        headers["host"] = url.netloc.decode()
        first, second = (url.copy_with(host=host) for host in LOOPBACK)
        try:
            return await self._ask(send, first, headers, body, server_name=url.host)
        except httpx.ConnectError:
            return await self._ask(send, second, headers, body, server_name=url.host)

    async def _ask(
        self,
        send: Callable[[httpx.Request], Awaitable[httpx.Response]],
        url: httpx.URL,
        headers: dict[str, str],
        body: str,
        *,
        server_name: str | None = None,
    ) -> Attempt:
        extensions: dict[str, Any] = {"timeout": self._timeout}
        if server_name is not None:
            extensions["sni_hostname"] = server_name
        answer = await send(
            httpx.Request(
                "POST", url, content=body.encode(), headers=headers, extensions=extensions
            )
        )
        async with aclosing(answer):
            await read_beginning(answer.aiter_raw(), MAX_ANSWER_BYTES)
        if answer.is_success:
            return Attempt()
        error = f"answered {answer.status_code}"
        return Attempt(
            error,
            is_gone=answer.status_code == GONE,
            after_s=_seconds(answer.headers.get("retry-after", "")),
        )


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


def _seconds(text: str) -> float:
    """Read a Retry-After in seconds; a date counts as none."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else 0.0
