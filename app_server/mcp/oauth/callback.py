"""Where the browser comes back to: a listener on this machine that hears one answer and goes away.

Source: OAuth 2.1, section 8.4.2 (loopback redirection).
"""

import hmac
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

from app_server.mcp.errors import OAuthFailed

MAX_HEAD_BYTES = 16 * 1024
"""Bytes of one request; the code and the state are in its first line."""

HEAD_S = 10.0
MAX_VISITORS = 16
"""Requests at the same time; more wait."""

_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
    "<p>{title}</p><p>You can close this window.</p></html>"
)


@dataclass(frozen=True, slots=True)
class CallbackAnswer:
    """What the authorization server sent the browser back with."""

    code: str | None = field(default=None, repr=False)
    error: str | None = None
    issuer: str | None = None


class CallbackListener:
    """A port on 127.0.0.1; `wait` hears what arrives there."""

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream], port: int) -> None:
        self._listener = listener
        self.port = port
        self._answered = anyio.Event()
        self._answer = CallbackAnswer()
        self._path = ""
        self._state = ""
        self._room = anyio.Semaphore(MAX_VISITORS)

    @classmethod
    async def open(cls, port: int) -> "CallbackListener":
        """Listen on a port; 0 takes any free one.

        Raises:
            OAuthFailed: the port is taken.
        """
        try:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        except OSError as exc:
            raise OAuthFailed(f"cannot listen on port {port}: {exc.strerror}") from exc
        return cls(listener, listener.extra(anyio.abc.SocketAttribute.local_port))

    async def wait(self, path: str, state: str) -> CallbackAnswer:
        """Return the first answer that comes to `path` with this state.

        Everything else gets an error page and changes nothing. Waits without limit.
        """
        self._path, self._state = path, state
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listener.serve, self._receive, tasks)
            await self._answered.wait()
            tasks.cancel_scope.cancel()
        return self._answer

    async def aclose(self) -> None:
        """Give the port back."""
        await self._listener.aclose()

    async def _receive(self, stream: anyio.abc.SocketStream) -> None:
        async with self._room, stream:
            try:
                with anyio.fail_after(HEAD_S):
                    status, title, answer = self._judge(await _read_head(stream))
                    await stream.send(_render(status, title))
                    await stream.send_eof()
            except (OSError, ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                # Somebody who went away, or no browser; TimeoutError is an OSError.
                return
            if answer is not None and not self._answered.is_set():
                self._answer = answer
                self._answered.set()

    def _judge(self, head: bytes) -> tuple[HTTPStatus, str, CallbackAnswer | None]:
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if not hmac.compare_digest(target.path.encode(), self._path.encode()):
            return HTTPStatus.NOT_FOUND, "There is nothing here.", None
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "This is for browsers.", None
        values = {key: found[0] for key, found in parse_qs(target.query).items()}
        if not hmac.compare_digest(values.get("state", "").encode(), self._state.encode()):
            return HTTPStatus.BAD_REQUEST, "This belongs to another sign-in.", None
        answer = CallbackAnswer(values.get("code"), values.get("error"), values.get("iss"))
        if answer.error is not None or answer.code is None:
            return HTTPStatus.OK, "The sign-in was refused.", answer
        return HTTPStatus.OK, "The sign-in has been received.", answer


async def _read_head(stream: anyio.abc.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        try:
            head += await stream.receive()
        except anyio.EndOfStream:
            break
    return head


def _render(status: HTTPStatus, title: str) -> bytes:
    page = _PAGE.format(title=title).encode()
    return (
        f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: text/html; charset=utf-8\r\n"
        f"content-length: {len(page)}\r\ncache-control: no-store\r\n"
        "content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\n"
        "connection: close\r\n\r\n"
    ).encode() + page
