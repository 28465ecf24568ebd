"""One sign-in, from the first question to the stored token.

Source: OAuth 2.1, section 4.1; RFC 8707; RFC 9207; docs/mcp.md, "Sign-in".
"""

import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit

import anyio
import anyio.to_thread

from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.credentials import Credential, CredentialStore
from app_server.mcp.oauth.loading import find_authorization_server, load_discovery
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.tokens import renewed_by
from app_server.mcp.oauth.web import open_web
from app_server.runtime.clock import SystemClock
from app_server.runtime.http.callback_port import LoopbackListener, Page, Visit

if TYPE_CHECKING:
    from app_server.mcp.oauth.authorization import AuthorizationServer

Registration: TypeAlias = Literal["auto", "cimd", "dcr"]

CLIENT_NAME = "app-server"
"""The `client_name` that authorization servers show to the user."""

PREPARE_S = 30.0
"""For everything before the browser."""

EXCHANGE_S = 30.0
"""For everything after it."""

DEFAULT_TIMEOUT_S = 300
MIN_TIMEOUT_S = 1
MAX_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True)
class LoginWishes:
    """The options of one sign-in."""

    registration: Registration = "auto"
    scopes: Sequence[str] | None = None
    """None takes the configured ones, else what the server asks for."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Seconds to wait for the redirect of the browser."""

    @classmethod
    def within_bounds(
        cls,
        registration: Registration | None,
        scopes: Sequence[str] | None,
        timeout_s: int | None,
    ) -> "LoginWishes":
        """Take the options of a client, with the time between MIN_TIMEOUT_S and MAX_TIMEOUT_S."""
        wanted_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        bounded_s = min(max(wanted_s, MIN_TIMEOUT_S), MAX_TIMEOUT_S)
        return cls(registration or "auto", scopes, bounded_s)


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


class Login:
    """One sign-in to one server."""

    def __init__(self, target: SignInTarget, store: CredentialStore, wishes: LoginWishes) -> None:
        self._target = target
        self._transport = target.transport
        self._store = store
        self._wishes = wishes
        self._callback_id = secrets.token_urlsafe(16)
        self.succeeded = False
        """Set once the token is stored."""

    async def run(self, show: Callable[[str], None]) -> None:
        """Sign in; `show` gets the address for the browser. Returns when the token is stored.

        Cancelling gives the sign-in up. Raised before `show` is called, a failure means that no
        browser can help.

        Raises:
            OAuthFailed: it did not work out; the text says why.
            ServerUnavailable: a variable with a header is not set.
        """
        settings = self._transport.oauth
        if self._wishes.registration == "cimd" and not _is_document(settings.client_id):
            raise OAuthFailed("`oauth.client_id` is not the address of a client metadata document")
        stored = await anyio.to_thread.run_sync(self._target.load, self._store)
        await load_discovery()
        async with open_web(self._target) as web:
            with _deadline(PREPARE_S, "the authorization server did not answer in time"):
                found = await find_authorization_server(self._target, web)
                if found is None:
                    raise OAuthFailed("the server has no OAuth metadata")
                listener = await CallbackListener.open(settings.callback_port or 0)
            try:
                await self._authorize(found, self._scope(found, stored), listener, show)
            finally:
                await listener.aclose()

    async def _authorize(
        self,
        found: "AuthorizationServer",
        scope: str | None,
        listener: CallbackListener,
        show: Callable[[str], None],
    ) -> None:
        configured = self._uses_configured(found)
        redirect_uri = self._redirect_uri(listener.port, configured)
        if configured:
            client = found.configured_client(self._target)
        else:
            with _deadline(PREPARE_S, "the authorization server did not answer in time"):
                client = await found.register(redirect_uri, scope, CLIENT_NAME)
        proof, state = found.new_proof(), secrets.token_urlsafe(32)
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": proof.code_challenge,
            "code_challenge_method": "S256",
            "resource": found.resource,
            **({"scope": scope} if scope else {}),
        }
        if "offline_access" in (scope or "").split():
            # OpenID Connect Core, section 11: it is not given without asking the user.
            query["prompt"] = "consent"
        endpoint = str(found.metadata.authorization_endpoint)
        show(f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}")
        with _deadline(self._wishes.timeout_s, "timed out waiting for OAuth callback"):
            answer = await listener.wait(urlsplit(redirect_uri).path or "/", state)
        form = {
            "grant_type": "authorization_code",
            "code": found.code_of(answer.code, answer.error, answer.issuer),
            "redirect_uri": redirect_uri,
            "code_verifier": proof.code_verifier,
        }
        with _deadline(EXCHANGE_S, "the authorization server did not answer in time"):
            token = await found.request_token(client, form)
        blank = Credential(
            server_name=self._target.name,
            server_url=self._transport.url,
            issuer=found.issuer,
            client_id=client.client_id,
            access_token="",
            scopes=tuple((scope or "").split()),
            # A configured secret stays where it is.
            client_secret=None if configured else client.secret,
            client_auth_method=None if configured else client.auth_method,
            environment_id=self._target.environment_id,
        )
        credential = renewed_by(blank, token, SystemClock().now_ms())
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._store.save, credential)
            self.succeeded = True

    def _redirect_uri(self, port: int, registered: bool) -> str:
        if self._transport.oauth.callback_url is not None:
            return self._transport.oauth.callback_url
        # A client that somebody registered by hand has an address that was known beforehand.
        path = "/callback" if registered else f"/callback/{self._callback_id}"
        return f"http://127.0.0.1:{port}{path}"

    def _uses_configured(self, found: "AuthorizationServer") -> bool:
        """Whether `oauth.client_id` is the client; a document needs a server that knows such."""
        client_id, wished = self._transport.oauth.client_id, self._wishes.registration
        if client_id is None or wished == "dcr":
            return False
        metadata = found.metadata
        if not _is_document(client_id) or metadata.client_id_metadata_document_supported:
            return True
        if wished == "cimd":
            raise OAuthFailed("the authorization server knows no client metadata documents")
        return metadata.registration_endpoint is None

    def _scope(self, found: "AuthorizationServer", stored: Credential | None) -> str | None:
        scopes = self._wishes.scopes
        if scopes is None:
            scopes = self._transport.oauth.scopes
            scopes = (found.scope or "").split() if scopes is None else scopes
            if stored is not None and stored.wanted_scopes:
                # What was granted stays granted: MCP 2026-07-28, "Scope Challenge Handling".
                scopes = list(dict.fromkeys((*scopes, *stored.scopes, *stored.wanted_scopes)))
        return " ".join(scopes) or None


def _is_document(client_id: str | None) -> bool:
    """Whether a client id is the address of a client metadata document."""
    parts = urlsplit(client_id or "")
    return parts.scheme == "https" and bool(parts.netloc) and parts.path not in ("", "/")


@contextmanager
def _deadline(limit_s: float, text: str) -> Iterator[None]:
    try:
        with anyio.fail_after(limit_s):
            yield
    except TimeoutError:
        raise OAuthUnavailable(text) from None
