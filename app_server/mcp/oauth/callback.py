"""The listener for the OAuth redirect: it takes one answer and closes."""

import hmac
from dataclasses import dataclass, field
from http import HTTPStatus

import anyio

from app_server.mcp.errors import OAuthFailed
from app_server.runtime.http.callback_port import LoopbackListener, Page, Visit


@dataclass(frozen=True, slots=True)
class CallbackAnswer:
    """The query parameters of the OAuth redirect."""

    code: str | None = field(default=None, repr=False)
    error: str | None = None
    issuer: str | None = None


class CallbackListener:
    """A port on 127.0.0.1; `wait` returns what arrives there."""

    def __init__(self, listener: LoopbackListener) -> None:
        self._listener = listener
        self._answered = anyio.Event()
        self._answer = CallbackAnswer()
        self._path = ""
        self._state = ""

    @classmethod
    async def open(cls, port: int) -> "CallbackListener":
        """Listen on a port; 0 takes any free one.

        Raises:
            OAuthFailed: the port is taken.
        """
        try:
            return cls(await LoopbackListener.open(port))
        except OSError as exc:
            raise OAuthFailed(f"cannot listen on port {port}: {exc.strerror}") from exc

    @property
    def port(self) -> int:
        """The TCP port that it listens on."""
        return self._listener.port

    async def wait(self, path: str, state: str) -> CallbackAnswer:
        """Return the first answer that comes to `path` with this state.

        Everything else gets an error page and changes nothing. Waits without limit.
        """
        self._path, self._state = path, state
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listener.serve, self._judge)
            await self._answered.wait()
            tasks.cancel_scope.cancel()
        return self._answer

    async def aclose(self) -> None:
        """Give the port back."""
        await self._listener.aclose()

    async def _judge(self, visit: Visit) -> Page:
        if not hmac.compare_digest(visit.path.encode(), self._path.encode()):
            return Page(HTTPStatus.NOT_FOUND, "There is nothing here.")
        if visit.method != "GET":
            return Page(HTTPStatus.METHOD_NOT_ALLOWED, "This is for browsers.")
        if not hmac.compare_digest(visit.query.get("state", "").encode(), self._state.encode()):
            return Page(HTTPStatus.BAD_REQUEST, "This belongs to another sign-in.")
        query = visit.query
        answer = CallbackAnswer(query.get("code"), query.get("error"), query.get("iss"))
        refused = answer.error is not None or answer.code is None
        title = "The sign-in was refused." if refused else "The sign-in has been received."

        def settle() -> None:
            if not self._answered.is_set():
                self._answer = answer
                self._answered.set()

        return Page(HTTPStatus.OK, title, then=settle)
